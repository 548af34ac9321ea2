"""`azq ranks`: the processes that train one network together, watched for a while."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from azq.config import Config
from azq.console.show import only_run
from azq.console.table import count
from azq.errors import StateConflict
from azq.host import brokers
from azq.ledger import Ledger
from azq.status.observe import Watch
from azq.status.summary import RankRow, RanksStatus, RunStatus

EVERY_S = 1.0


def show_ranks(config: Config, run: str | None, seconds: float, as_json: bool, wait: Callable[[float], object] | None = None) -> None:
    """Shows a run's ranks as they are after `seconds`, where a person looks each second until then.

    Raises `StateConflict` where one process trains alone.
    """
    config, client = brokers.open_control(config)
    watch, name, console = Watch(client), run or only_run(Ledger(client)), Console()
    status = _of_many(watch.summary(name))
    with Live(drawn(status), console=console, auto_refresh=False) if console.is_terminal and not as_json else nullcontext() as live:
        for _ in range(round(seconds / EVERY_S)):
            (wait or threading.Event().wait)(EVERY_S)
            status = _of_many(watch.summary(name))
            if live:
                live.update(drawn(status), refresh=True)
    if as_json:
        sys.stdout.write(json.dumps({"run": status.run, "step": status.learner_step, **asdict(status.ranks)}) + "\n")
    elif not live:
        console.print(drawn(status))


def _of_many(status: RunStatus) -> RunStatus:
    if status.ranks.configured < 2:
        why = "learner.ranks is 1" if status.learner_live else "its learner is not there"
        raise StateConflict(f"run {status.run} has no ranks to show: {why}; `azq status --run {status.run}` shows the rest")
    return status


def drawn(status: RunStatus) -> Group:
    """What they do together, and a line for each."""
    both = Table(box=None, show_header=False, title=f"ranks of {status.run}", title_justify="left", title_style="bold")
    for name, text in together(status):
        both.add_row(name, text)
    return Group(both, ranks_table(status.ranks))


def together(status: RunStatus) -> Iterator[tuple[str, str]]:
    ranks = status.ranks
    yield "steps", count(status.learner_step)
    yield "samples processed", count(ranks.samples_processed)
    yield "healthy ranks", _named(ranks, lambda row: row.state == "trains")
    yield "failed ranks", _named(ranks, lambda row: row.state != "trains")
    yield "throughput", f"{count(status.samples_per_s)} samples/s"
    yield "mean step", f"{1e3 * ranks.batch_s:.1f} ms"
    yield "mean synchronisation", f"{1e3 * ranks.sync_s:.1f} ms"
    yield "scaling efficiency", f"{ranks.efficiency:.0%}"
    yield "fallback", "active" if ranks.fallback_active else "no"
    yield "ranks lost so far", str(ranks.losses)


def ranks_table(ranks: RanksStatus) -> Table:
    table = Table(
        "rank", "state", "host", "device", "rows", "samples/s", "step ms", "sync ms", "memory", "holds", "errors", "last error", box=None
    )
    for row in ranks.each:
        state = row.state.replace("_", " ")
        rows = f"{row.rows} by {row.micro_batch}" if 0 < row.micro_batch < row.rows else str(row.rows)
        table.add_row(
            str(row.rank),
            state if row.state == "trains" else f"[yellow]{state}[/]",
            row.host,
            row.device,
            rows,
            count(row.samples_per_s),
            f"{1e3 * row.batch_s:.1f}",
            f"{1e3 * row.sync_s:.1f}",
            f"{row.memory_bytes / 1e6:,.0f} MB",
            f"{row.state_bytes / 1e6:,.1f} MB",
            str(row.errors),
            row.reason,
        )
    return table


def _named(ranks: RanksStatus, is_one: Callable[[RankRow], bool]) -> str:
    found = [str(row.rank) for row in ranks.each if is_one(row)]
    return f"{len(found)} of {ranks.configured}" + (f": {', '.join(found)}" if found else "")
