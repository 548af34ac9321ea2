"""Commands that only read: `azq status`, `azq ledger`, `azq config check`, `azq games check`; and how brokers are told."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import msgspec
import redis
import typer
from rich.console import Console, Group
from rich.progress import Progress
from rich.text import Text

from azq import games
from azq.bus.redis import admitted
from azq.config import BrokerConfig, Config, parse_params
from azq.config.access import check_binding
from azq.console import table
from azq.errors import AzqError, NotFound
from azq.games.apart import check_apart
from azq.games.check import Report, check
from azq.host import brokers
from azq.ledger import Ledger
from azq.status.brokers import Plane, PlaneFacts, open_planes
from azq.status.cost import RunCost
from azq.status.observe import Watch
from azq.wire.connect import open_client
from azq.wire.doorman import CONTROL

ASK_TIMEOUT_S = 1.0  # a plane that hangs holds up whoever looks for so long


def show_status(config: Config, run: str | None, as_json: bool) -> None:
    """Prints one run in full, or a line for each run."""
    config, client = brokers.open_control(config)
    watch = Watch(client)
    names = [run] if run else [view.record.run for view in Ledger(client).runs()]
    seen = [plane.look(names) for plane in planes_of(config.broker, client)]
    wrong = conditions(seen)
    summaries = [replace(summary, conditions=(*summary.conditions, *wrong)) for summary in map(watch.summary, names)]
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(summaries[0] if run else summaries)))
    elif run:
        Console().print(Group(table.panel(summaries[0]), table.workers_table(summaries[0])))
        typer.echo(brokers_text(seen))
    else:
        for summary in summaries:
            typer.echo(table.line(summary))
        if not summaries:
            typer.echo("no runs yet; `azq up` starts one")
        typer.echo(brokers_text(seen))


def cost_of_run(config: Config, run: str) -> RunCost:
    """What a run cost so far. Raises `NotFound` where there is no such run, or no daemon has counted yet."""
    with brokers.reading_control(config) as client:
        cost = Watch(client).summary(run).cost
    if cost is None:
        raise NotFound(f"nobody has counted what run {run} costs; a daemon does from its first seconds on")
    return cost


def ledger_counts(config: Config, run: str | None) -> dict[str, Any]:
    """The counts of one run, or of the only one, by their public names."""
    ledger = Ledger(brokers.open_control(config)[1])
    name = run or only_run(ledger)
    found = ledger.counts(ledger.run(name).record.run)
    return {"run": name, **asdict(found), "balanced": found.balanced}


def only_run(ledger: Ledger) -> str:
    """The name of the only run; `NotFound` asks for `--run` otherwise."""
    names = sorted(view.record.run for view in ledger.runs())
    if len(names) != 1:
        raise NotFound(f"name one run with --run; there are: {', '.join(names) or 'none'}")
    return names[0]


def check_config(config: Config) -> list[str]:
    """What is wrong with the settings: game, broker, REST binding; empty when all is sound."""
    problems: list[str] = []
    looks = (
        lambda: games.load(config.run.game, **config.run.params),
        lambda: _check_brokers(config),
        lambda: check_binding(config.daemon),
    )
    for look in looks:
        try:
            look()
        except AzqError as error:
            problems.append(str(error))
    return problems


def _check_brokers(config: Config) -> None:
    planes = dict.fromkeys(config.broker.data_planes, "data") | ({url: CONTROL} if (url := config.broker.control_url) else {})
    for url, plane in planes.items():
        admitted(url, timeout_s=config.broker.connect_timeout_s, plane=plane).close()


def planes_of(broker: BrokerConfig, control: redis.Redis) -> tuple[Plane, ...]:
    """All planes of a fleet, asked over connections of their own but for the control plane."""
    return open_planes(control, [open_client(url, timeout_s=ASK_TIMEOUT_S) for url in broker.data_planes])


def brokers_text(planes: Sequence[PlaneFacts]) -> Text:
    """One line: each plane with its memory, what waits there and what nobody could read, or that it is away."""
    line = Text("brokers")
    for plane in planes:
        line.append(f"  {plane.plane} ")
        line.append(_state(plane) if plane.up else "does not answer", style="" if plane.up else "bold red")
    return line


def conditions(planes: Sequence[PlaneFacts]) -> tuple[str, ...]:
    """What an operator should know of them."""
    return tuple(f"broker {plane.plane} does not answer: {plane.reason}" for plane in planes if not plane.up)


def _state(plane: PlaneFacts) -> str:
    limit = f" of {plane.limit_bytes / 1e6:.0f}" if plane.limit_bytes else ""
    waiting, dead = sum(plane.waiting.values()), plane.dead_letters
    what = "samples" if plane.plane == "control" else "requests"
    return f"{plane.used_bytes / 1e6:.1f}{limit} MB, {waiting} {what} wait" + (f", {dead} dead letters" if dead else "")


def check_game(name: str, params: Sequence[str], count: int) -> Report:
    """What random games of a game show, with their progress on a terminal."""
    values = parse_params(params)
    with Progress(console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(f"random games of {name}", total=count)
        told = partial(progress.update, task)
        if name in games.names():
            return check(games.load(name, **values), count, progress=lambda done: told(completed=done))
        return check_apart(name, values, count, lambda done: told(completed=done))


def report_text(report: Report) -> str:
    """The report in lines."""
    speed = f", {report.playouts_per_s:,.0f} random games a CPU-second" if report.playouts_per_s else ""
    lines = [f"{report.game}: {report.games} random games, {report.plies} plies{speed}", *(f"note: {note}" for note in report.notes)]
    for finding in report.findings:
        history = ",".join(map(str, finding.history[-40:]))
        lines.append(f"BROKEN {finding.rule}: {finding.detail} (after actions {history or 'none'})")
    if report.findings:
        return "\n".join(lines)
    planes, rows, columns = report.planes
    board = f"observations are {planes} planes of {rows} x {columns} cells: `azq up --preset board` has a network for boards"
    return "\n".join([*lines, "every rule holds", *([board] if ":" in report.game and min(rows, columns) > 2 else [])])
