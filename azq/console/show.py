"""Commands that only read: `azq status`, `azq ledger`, `azq config check`."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import msgspec
import typer

from azq import games
from azq.config import Config
from azq.console import planes, table
from azq.errors import AzqError, NotFound
from azq.host import brokers
from azq.ledger import Ledger
from azq.status.observe import Watch
from azq.wire.connect import connect


def show_status(config: Config, run: str | None, as_json: bool) -> None:
    """Prints one run in full, or a line for each run."""
    config, client = brokers.open_control(config)
    watch = Watch(client)
    names = [run] if run else [view.record.run for view in Ledger(client).runs()]
    seen = [plane.look(names) for plane in planes.planes_of(config.broker, client)]
    wrong = planes.conditions(seen)
    summaries = [replace(summary, conditions=(*summary.conditions, *wrong)) for summary in map(watch.summary, names)]
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(summaries[0] if run else summaries)))
    elif run:
        table.print_summary(summaries[0])
        typer.echo(planes.brokers_text(seen))
    else:
        for summary in summaries:
            typer.echo(table.line(summary))
        if not summaries:
            typer.echo("no runs yet; `azq up` starts one")
        typer.echo(planes.brokers_text(seen))


def show_ledger(config: Config, run: str | None, as_json: bool) -> None:
    """Prints the counts of one run, or of the only one."""
    ledger = Ledger(brokers.open_control(config)[1])
    name = run or only_run(ledger)
    found = ledger.counts(ledger.run(name).record.run)
    counts = {**asdict(found), "balanced": found.balanced}
    if as_json:
        typer.echo(json.dumps({"run": name, **counts}))
        return
    for key, value in counts.items():
        typer.echo(f"{key:<20} {value}")


def only_run(ledger: Ledger) -> str:
    """The name of the only run; `NotFound` asks for `--run` otherwise."""
    names = sorted(view.record.run for view in ledger.runs())
    if len(names) != 1:
        raise NotFound(f"name one run with --run; there are: {', '.join(names) or 'none'}")
    return names[0]


def check_config(config: Config) -> list[str]:
    """What is wrong with the settings: game, broker, REST binding; empty when all is sound."""
    problems: list[str] = []
    checks = (
        lambda: games.load(config.run.game, **config.run.params),
        lambda: _check_brokers(config),
        lambda: _check_binding(config),
    )
    for check in checks:
        try:
            check()
        except AzqError as error:
            problems.append(str(error))
    return problems


def _check_brokers(config: Config) -> None:
    for url in {config.broker.control_url, *config.broker.data_planes} - {""}:
        connect(url, timeout_s=config.broker.connect_timeout_s).close()


def _check_binding(config: Config) -> None:
    from azq.config.listening import check_binding

    check_binding(config.daemon)
