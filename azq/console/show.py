"""Commands that only read: `azq status`, `ledger`, `why`, `games check`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import msgspec
import redis
import typer
from rich.console import Console, Group
from rich.progress import Progress
from rich.text import Text

from azq import games, logs
from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.config import BrokerConfig, Config, parse_params
from azq.console import table
from azq.console.move import folder_of
from azq.console.table import count, tabled
from azq.errors import AzqError, BrokerError, ConfigError, NotFound
from azq.games.apart import check_apart
from azq.games.check import Report, check
from azq.host import brokers
from azq.host.brokers import reading_control
from azq.host.game_files import load_game
from azq.host.rundir import RunDir
from azq.ledger import Ledger
from azq.replay.readers import SegmentReader
from azq.status.brokers import Plane, PlaneFacts, open_planes
from azq.status.observe import Watch
from azq.status.spending import RunCost
from azq.status.summary import RanksStatus
from azq.status.why.gather import GAMES, Diagnosis, diagnose
from azq.wire.connect import open_client

ASK_TIMEOUT_S = 1.0  # longest wait for a plane that hangs


def show_status(config: Config, run: str | None, as_json: bool) -> None:
    """Prints one run in full, or a line for each run."""
    config, client = brokers.open_control(config)
    watch = Watch(client)
    names = [run] if run else [view.record.run for view in Ledger(client).runs()]
    seen = [plane.read(names) for plane in planes_of(config.broker, client)]
    wrong = conditions(seen)
    summaries = [replace(summary, conditions=(*summary.conditions, *wrong)) for summary in map(watch.summary, names)]
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(summaries[0] if run else summaries)))
    elif run:
        Console().print(Group(table.panel(summaries[0]), table.workers_table(summaries[0])))
        typer.echo("\n".join([*ranks_text(summaries[0].ranks), brokers_text(seen).plain]))
    elif summaries and not sys.stdout.isatty():
        typer.echo("\n".join([*map(table.line, summaries), brokers_text(seen).plain]))
    else:
        notes = [Text(f"{summary.run}: {text}", style="yellow") for summary in summaries for text in summary.conditions]
        Console().print(table.runs_table(summaries), *notes, brokers_text(seen), sep="\n")


def cost_of_run(config: Config, run: str) -> RunCost:
    """What a run cost so far. Raises `NotFound` where there is no such run, or no daemon has counted yet."""
    with brokers.reading_control(config) as client:
        cost = Watch(client).summary(run).cost
    if cost is None:
        raise NotFound(f"the cost of run {run} is not counted yet; a daemon counts it from its first seconds on")
    return cost


def ledger_counts(config: Config, run: str | None) -> dict[str, Any]:
    """The counts of one run, or of the only one, by their public names."""
    ledger = Ledger(brokers.open_control(config)[1])
    name = run or only_run(ledger)
    result = ledger.counts(ledger.run(name).record.run)
    return {"run": name, **asdict(result), "balanced": result.balanced}


def only_run(ledger: Ledger) -> str:
    """The name of the only run; `NotFound` asks for `--run` otherwise."""
    names = sorted(view.record.run for view in ledger.runs())
    if len(names) != 1:
        raise NotFound(f"name one run with --run; there are: {', '.join(names) or 'none'}")
    return names[0]


def planes_of(broker: BrokerConfig, control: redis.Redis) -> tuple[Plane, ...]:
    """All planes of a fleet, each data plane with its own connection."""
    return open_planes(control, [open_client(url, timeout_s=ASK_TIMEOUT_S) for url in broker.data_planes])


def brokers_text(planes: Sequence[PlaneFacts]) -> Text:
    """One line: each plane with its memory, what waits there and its dead letters, or that it is away."""
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
        advance = partial(progress.update, task)
        if name in games.names():
            return check(games.load(name, **values), count, progress=lambda done: advance(completed=done))
        return check_apart(name, values, count, lambda done: advance(completed=done))


def report_text(report: Report) -> str:
    """The answer first, then notes and broken rules."""
    speed = f", {report.playouts_per_s:,.0f} random games a CPU-second" if report.playouts_per_s else ""
    result = f"{len(report.findings)} rules are broken" if report.findings else "No problems found"
    lines = [f"{report.game}: {result} ({report.games:,} games, {report.plies:,} plies checked{speed})"]
    lines += [f"note: {note}" for note in report.notes]
    for finding in report.findings:
        history = ",".join(map(str, finding.history[-40:]))
        lines.append(f"{finding} (after actions {history or 'none'})")
    if report.findings:
        return "\n".join(lines)
    planes, rows, columns = report.planes
    board = f"observations are {planes} planes of {rows} x {columns} cells: `azq up --preset board` has a network for boards"
    return "\n".join([*lines, *([board] if ":" in report.game and min(rows, columns) > 2 else [])])


def ranks_text(ranks: RanksStatus) -> list[str]:
    """A line for each of the processes that train one network together; none where one trains alone."""
    rows = (
        (
            *(row.rank, row.state.replace("_", " "), row.host, row.device),
            f"{row.rows} by {row.micro_batch}" if 0 < row.micro_batch < row.rows else row.rows,
            *(count(row.samples_per_s), f"{1e3 * row.batch_s:.1f}", f"{1e3 * row.sync_s:.1f}"),
            *(f"{row.memory_bytes / 1e6:,.0f} MB", f"{row.state_bytes / 1e6:,.1f} MB", row.errors, row.reason),
        )
        for row in ranks.each
    )
    speed, health = ("rows", "#samples/s", "#step ms", "#sync ms"), ("#memory", "#holds", "#errors", "last error")
    return tabled(rows, "#rank", "state", "host", "device", *speed, *health) if ranks.each else []


ADVISE_EVERY_S = 60.0  # between two looks of a run at work
GAMES_AT_WORK = 300  # a diagnosis takes a fraction of a second, in which no child is restarted

log = logs.get(__name__)


def why(config: Config, run: str, most: int = GAMES) -> Diagnosis:
    """What is wrong with a run; without its control plane from its games alone. Raises `NotFound`, `StoreError`."""
    folder = folder_of(config, None, run)
    sections = folder.sections()
    rules = load_game(config, sections.run.game, sections.run.params, folder.settings)
    reader = SegmentReader(folder.path / "segments")
    try:
        with reading_control(config) as client:
            bus = RedisBus(client)
            result = diagnose(bus, run, sections, rules, reader, games=most)
            with contextlib.suppress(NotFound):  # it was never started here
                result = replace(result, no_games=Watch(client).summary(run).no_games)
            return result
    except (BrokerError, ConfigError) as error:  # no broker serves it, or it was never started here
        return diagnose(None, run, sections, rules, reader, games=most, note=f"no history: {error}")


def why_text(diagnosis: Diagnosis) -> list[str]:
    """Who dies again and again, a line a finding, the first cause first; then what was looked at."""
    lines = [*diagnosis.dying, *([f"no games: {diagnosis.no_games}"] if diagnosis.no_games else [])]
    for finding in diagnosis.findings:
        lines += [str(finding), *(f"  then: {step}" for step in finding.plan)]
    steps = "no history" if diagnosis.steps is None else f"{diagnosis.steps:,} steps"
    checked = f"{diagnosis.games:,} games and {steps} checked"
    blind = [f"Not checked without {what}: {', '.join(rules)}" for what, rules in diagnosis.blind.items()]
    nothing = f"No problems found ({checked})" if diagnosis.games else f"No answer: this host has no recorded games of the run ({checked})"
    return [*([*lines, checked] if lines else [nothing]), *blind, *([diagnosis.note] if diagnosis.note else [])]


class Adviser:
    """Looks at a run at work every `ADVISE_EVERY_S`, and keeps what it found as sentences."""

    def __init__(self, folder: RunDir, config: Config, bus: Bus, clock: Callable[[], float]) -> None:
        self._rules, self._reader = load_game(config, config.run.game, config.run.params), SegmentReader(folder.path / "segments")
        self._run, self._sections, self._bus, self._clock = folder.name, config.run_sections(), bus, clock
        self._looked_s = clock()  # in its first minute a run has hardly a game
        self.warnings: tuple[str, ...] = ()

    def advise(self) -> tuple[str, ...]:
        """The sentences of now. Raises `BrokerError`; a log that cannot be read is left to who needs it."""
        if self._clock() - self._looked_s < ADVISE_EVERY_S:
            return self.warnings
        self._looked_s = self._clock()
        try:
            result = diagnose(self._bus, self._run, self._sections, self._rules, self._reader, games=GAMES_AT_WORK)
        except BrokerError:
            raise
        except AzqError as error:
            log.warning("why_unknown", run=self._run, reason=str(error))
            return self.warnings
        before, self.warnings = self.warnings, tuple(f"azq why: {finding}" for finding in result.findings)
        for finding in result.findings:
            if not any(text.startswith(f"azq why: {finding.rule}:") for text in before):
                log.warning("does_not_learn", run=self._run, rule=finding.rule, evidence=finding.evidence, setting=str(finding.setting))
        return self.warnings
