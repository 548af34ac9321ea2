"""What a person watches while an agent learns: one live table on a terminal, a log line without one, JSON lines for machines."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from azq import logs
from azq.errors import AzqError
from azq.ledger.types import RunState
from azq.status.stages import RunStage
from azq.status.summary import RanksStatus, RunStatus

LINE_EVERY_S = 30.0
REDRAW_EVERY_S = 1.0
THREE_COLUMNS = 110  # characters; with fewer there are two

log = logs.get(__name__)


class AboveTable:
    """A stream whose lines come above a live table and stay there."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest = ""

    def write(self, text: str) -> int:
        """Prints the lines that are whole by now; a long one is left to the terminal to wrap, so that links can be copied."""
        *whole, self._rest = (self._rest + text).split("\n")
        for text in whole:
            self._console.print(Group(Text(text, no_wrap=True, overflow="ignore")), crop=False)  # a bare text would be wrapped
        return len(text)

    def flush(self) -> None:
        """Does nothing: a line is printed once it is whole."""


class Screen(contextlib.AbstractContextManager["Screen"]):
    """Shows summaries as they come, each as often as its form can bear."""

    def __init__(self, run: str, *, as_json: bool, output: TextIO | None = None, dashboard: str = "", token: str = "") -> None:
        self._output = output or sys.stdout
        self._json = as_json
        self._console = Console(file=self._output)
        live = not as_json and self._output.isatty()
        self._live = Live(console=self._console, auto_refresh=False, redirect_stderr=False) if live else None
        self._errors = contextlib.ExitStack()
        self._last_s = -LINE_EVERY_S
        fragment = f"/#token={token}" if token and self._live else ""  # for the terminal alone: what is no terminal may be a log
        self._dashboard = f"dashboard {dashboard}{fragment}" if dashboard else ""
        self._note = f"Starting run {run}" + (f"; {self._dashboard}" if dashboard else "")
        self._last_lines: Sequence[str] = ()
        self._status: RunStatus | None = None
        self._refused = ""  # why the line before could not be written

    def __enter__(self) -> Screen:
        if self._live:
            logs.WARNINGS.clear()  # what was said so far stands above
            self._live.start()
            if sys.stderr.isatty():
                self._errors.enter_context(contextlib.redirect_stderr(AboveTable(self._console)))
        elif not self._json:
            self._write(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        self._errors.close()
        for text in self._last_lines if self._live else ():
            self._console.print(Text(text), soft_wrap=True)

    def note(self, text: str) -> None:
        """A sentence about what goes on now, until the run is next seen at work."""
        self._note = text
        if self._live:
            self._draw()
        elif not self._json:
            self._write(text)

    def finish(self, status: RunStatus, lines: Sequence[str]) -> None:
        """The last state of the run, and lines that stay below the table."""
        self._note, self._last_lines = "", lines
        self.show(status, force=True)
        for text in lines if not (self._live or self._json) else ():
            self._write(text)

    def show(self, status: RunStatus, *, force: bool = False) -> None:
        """Redraws the table, or writes a line when it is time for one."""
        every_s = REDRAW_EVERY_S if self._live else LINE_EVERY_S
        force = force or bool(status.no_games and self._status and _kind(status) != _kind(self._status))
        if not force and time.monotonic() - self._last_s < every_s:
            return
        self._last_s, self._status = time.monotonic(), status
        if self._live:
            if status.state == "running" and status.workers:
                self._note = ""
            self._draw()
        elif self._json:
            self._write(json.dumps(msgspec.to_builtins(status)))
        else:
            self._write(line(status))

    def _draw(self) -> None:
        if self._live and self._status:
            self._live.update(panel(self._status, self._note, self._dashboard, tuple(logs.WARNINGS)), refresh=True)

    def _write(self, text: str) -> None:
        """Writes a line; a full disk costs it, and no training."""
        try:
            self._output.write(text + "\n")
            self._output.flush()
        except AzqError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                log.warning("line_lost", reason=self._refused)
        else:
            self._refused = ""


def _kind(status: RunStatus) -> str:
    """Why a run has no games, without figures and names."""
    return re.sub(r"\d+", "", status.no_games)[:24]


def line(status: RunStatus) -> str:
    """The summary in one line of log."""
    stage = f" ({status.stages[-1].name})" if status.stages and status.state is RunState.RUNNING else ""
    return " ".join(
        [
            f"{clock(status.active_s)} {status.run} {status.state}{stage}",
            *_rates(status),
            f"open={status.open_games} games={status.ledger.finished} samples={count(status.samples)} steps={status.learner_step}",
            f"loss={_loss(status.loss_policy)}/{_loss(status.loss_value)} version={status.weight_version}",
            *([f"network={status.network.blocks}x{status.network.channels}"] if status.network and status.network.blocks else []),
            *(f"{measure.kind}={measure.text}" for measure in status.measures),
            *([f"eta={clock(status.eta_s)}"] if status.eta_s is not None else []),
            *([f"cost={money}"] if (money := cost(status)) else []),
            *(f"[{text}]" for text in (status.reason, *status.matches, *status.conditions) if text),
        ]
    )


def _rates(status: RunStatus) -> list[str]:
    """What a run does now; nothing where it does not run."""
    if status.state is not RunState.RUNNING:
        return []
    return [
        f"games/s={rate(status.games_per_s)} simulations/s={count(status.simulations_per_s)}",
        f"evaluations/s={count(status.evaluations_per_s)} batch={status.mean_batch:.0f} lag={status.policy_lag:.1f}",
    ]


def panel(status: RunStatus, note: str = "", below: str = "", warnings: Sequence[str] = ()) -> RenderableType:
    """The live table: the verdict, the figures, the newest warnings of the log; `below` stands in its lower border."""
    stages = " · ".join(f"{stage.name} {stage_text(stage)}" for stage in status.stages)
    notes = [Text(stages, style="dim")] if stages else []
    notes += [Text(status.reason, style="cyan")] if status.reason else []
    notes += [Text(match) for match in status.matches] + [Text(condition, style="yellow") for condition in status.conditions]
    notes += [Text(warning, style="dim", no_wrap=True, overflow="ellipsis") for warning in warnings]
    notes += [Text(note, style="cyan")] if note else []
    title = f"[bold]{status.run}[/] · {status.state} · {clock(status.active_s)}{_goal(status)}"
    style = "green" if status.state == "running" else "blue"
    answer = [Text(status.headline, style="bold")] if status.headline else []
    return Panel(Group(*answer, _Blocks(status), *notes), title=title, subtitle=below or None, border_style=style)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """What is known of a run, side by side; in two columns where three would cut their words."""

    status: RunStatus

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        selfplay, learner = _column("self-play", _selfplay(self.status)), _column("learner", _learner(self.status))
        strength, ledger = _column("strength", _strength(self.status)), _column("ledger", _ledger(self.status))
        narrow = options.max_width < THREE_COLUMNS
        grid = Table.grid(padding=(0, 3), expand=True)
        for _ in range(2 if narrow else 3):
            grid.add_column(ratio=1)
        if narrow:
            grid.add_row(selfplay, learner)
            grid.add_row(strength, ledger)
        else:
            grid.add_row(selfplay, learner, Group(strength, ledger))
        yield grid


def workers_table(status: RunStatus) -> Table:
    """Live processes with the age of their heartbeats."""
    table = Table("role", "worker", "queues", "tags", "age s", "up", box=None, header_style="bold")
    for worker in status.workers:
        table.add_row(worker.role, worker.worker, ",".join(worker.queues), ",".join(worker.tags), f"{worker.age_s:.1f}", clock(worker.up_s))
    return table


def _column(title: str, rows: Iterator[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1), title=title, title_style="bold", title_justify="left", expand=True)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, value)
    return table


def _selfplay(status: RunStatus) -> Iterator[tuple[str, str]]:
    if status.state is not RunState.RUNNING:
        yield "games", count(status.ledger.finished)
        yield "open games", str(status.open_games)
        return
    yield "games/s", rate(status.games_per_s)
    yield "simulations/s", count(status.simulations_per_s)
    yield "evaluations/s", count(status.evaluations_per_s)
    yield "mean batch", f"{status.mean_batch:.0f}"
    yield "open games", str(status.open_games)
    yield "policy lag", f"{status.policy_lag:.1f}"
    yield "jobs", f"{status.jobs_leased} ({status.jobs_queued} queued)"
    yield "balance", "self-play paused" if status.selfplay_stalled else "learner waits" if status.learner_waiting else "OK"


def _learner(status: RunStatus) -> Iterator[tuple[str, str]]:
    yield "steps", count(status.learner_step)
    yield "samples", count(status.samples)
    yield "samples per insert", f"{status.samples_per_insert:.2f}"
    if status.state is RunState.RUNNING:
        yield "samples/s", count(status.samples_per_s)
    yield "loss, policy", _loss(status.loss_policy)
    yield "loss, value", _loss(status.loss_value)
    yield "learning rate", f"{status.learning_rate:.1e}" if status.learning_rate else "-"
    yield "weight version", str(status.weight_version)
    yield "network", str(status.network or "-")
    if status.ranks.configured > 1:
        yield from _ranks(status.ranks)


def _ranks(ranks: RanksStatus) -> Iterator[tuple[str, str]]:
    healthy = f"{ranks.healthy} of {ranks.configured}"
    yield "ranks", f"[yellow]{healthy}[/]" if ranks.fallback_active else healthy
    yield "step, of it sync", f"{1e3 * ranks.batch_s:.1f} / {1e3 * ranks.sync_s:.1f} ms"
    yield "scaling efficiency", f"{ranks.efficiency:.0%}"


def _strength(status: RunStatus) -> Iterator[tuple[str, str]]:
    yield from ((measure.name, measure.text) for measure in status.measures)
    if status.strength.baseline_score is not None:
        yield status.strength.baseline, f"{status.strength.baseline_score:,.0f}"
    version = next((measure.version for measure in status.measures if measure.version), None)
    yield "evaluated", f"version {version}" if version else "-"


def _ledger(status: RunStatus) -> Iterator[tuple[str, str]]:
    yield "games opened", count(status.ledger.opened)
    yield "finished", count(status.ledger.finished)
    yield "inserted", count(status.ledger.inserted)
    yield "abandoned, duplicated", f"{status.ledger.abandoned}, {status.ledger.duplicates_dropped}"
    yield "balance", "[green]OK[/]" if status.ledger.balanced else "[red]NOT BALANCED[/]"


def _goal(status: RunStatus) -> str:
    goal = " or ".join(f"{value:g} {key}" for key, value in status.until.items())
    ends = [f"{status.progress:.0%} of {goal}"] if goal else []
    ends += [f"{clock(status.eta_s)} left"] if status.eta_s is not None else []
    return "".join(f" · {part}" for part in (*ends, cost(status)) if part)


def cost(status: RunStatus) -> str:
    """What a run cost so far, and will have cost at its end where that is in sight; empty where no price is known."""
    cost = status.cost
    if cost is None or not (cost.money or cost.per_hour):
        return ""
    end = "" if cost.ends_money is None else f" of {cost.ends_money:.2f}"
    return f"{cost.money:.2f}{end} {cost.currency}"


def rate(per_s: float) -> str:
    """Games a second, those that take long as well: 31.5, 0.04."""
    return f"{per_s:.1f}" if per_s >= 1 or not per_s else f"{per_s:.2g}"


def stage_text(stage: RunStage) -> str:
    """How long a stage took without its pauses, how long those were, and whether it lasts."""
    paused_ms = sum(pause.ended_ms - pause.began_ms for pause in stage.pauses if pause.ended_ms is not None)
    more = [f"paused {clock(paused_ms / 1000)}"] if paused_ms else []
    more += ["so far"] if stage.ended_ms is None else []
    return clock(stage.lasted_s) + (f" ({', '.join(more)})" if more else "")


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def count(value: float) -> str:
    """A number with at most four digits and a letter: 12.3k, 4.56M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}" if abs(value) < size * 999.5 else f"{value / size:.0f}{letter}"
    return f"{value:.0f}"


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def plain_table(*columns: str) -> Table:
    """A table without lines; a column whose heading begins with `#` stands to the right."""
    table = Table(box=None, header_style="bold dim", show_header=any(columns), pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name.lstrip("#"), justify="right" if name.startswith("#") else "left", no_wrap=True)
    return table


def tabled(rows: Iterable[Sequence[object]], *columns: str) -> list[str]:
    """The same in lines, as wide as they have to be."""
    table = plain_table(*columns)
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    if not table.columns:
        return []
    console = Console(file=io.StringIO(), width=10_000)
    with console.capture() as drawn:
        console.print(table)
    return [line.rstrip() for line in drawn.get().splitlines()]


#: of a run: heading, on how narrow a screen it still stands (0: on every one), what stands there
RUN_COLUMNS: tuple[tuple[str, int, Callable[[RunStatus], str | Text]], ...] = (
    ("run", 0, lambda run: run.run),
    ("state", 0, lambda run: Text(run.state, style="green" if run.state == "running" else "yellow")),
    ("active", 1, lambda run: clock(run.active_s)),
    ("#games/s", 0, lambda run: _now(run, rate(run.games_per_s))),
    ("#sims/s", 0, lambda run: _now(run, count(run.simulations_per_s))),
    ("#evals/s", 2, lambda run: _now(run, count(run.evaluations_per_s))),
    ("#batch", 3, lambda run: _now(run, f"{run.mean_batch:.0f}")),
    ("#busy", 1, lambda run: _now(run, f"{run.network_busy:.0%}")),
    ("#lag", 4, lambda run: _now(run, f"{run.policy_lag:.1f}")),
    ("#step", 0, lambda run: _step(run)),
    ("#loss p/v", 2, lambda run: "-" if run.loss_policy is None else f"{run.loss_policy:.2f}/{run.loss_value:.2f}"),
    ("#version", 3, lambda run: str(run.weight_version)),
    ("#network", 4, lambda run: str(run.network or "-")),
    ("strength", 0, lambda run: _headline(run)),
    ("#elo", 2, lambda run: next((measure.text for measure in run.measures if measure.kind == "elo"), "-")),
    ("#left", 4, lambda run: "-" if run.eta_s is None else clock(run.eta_s)),
    ("#cost", 3, lambda run: f"{run.cost.money:.2f}" if run.cost else "-"),
    ("#open", 3, lambda run: count(run.open_games)),
    ("#ledger", 0, lambda run: Text("OK", style="green") if run.ledger.balanced else Text("NOT BALANCED", style="bold red")),
)


def _now(run: RunStatus, text: str) -> str:
    return text if run.state is RunState.RUNNING else "-"


def _headline(run: RunStatus) -> str:
    first = run.measures[0]
    return first.text if first.against or first.value is None else f"{first.text} {first.name}"


def _step(run: RunStatus) -> str | Text:
    lacks = run.state is RunState.RUNNING and not run.learner_live
    return Text("no learner", style="red") if lacks else count(run.learner_step)


def runs_table(runs: Sequence[RunStatus]) -> RenderableType:
    """A line for each run, with as many columns as there is room for."""
    return _RunsTable(runs) if runs else Text("No runs yet. Start one with `azq up`.", style="dim")


@dataclass(frozen=True, slots=True)
class _RunsTable:
    runs: Sequence[RunStatus]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        endless = options.update(width=1000)
        for most_rank in sorted({rank for _, rank, _ in RUN_COLUMNS}, reverse=True):
            columns = [(name, cell) for name, rank, cell in RUN_COLUMNS if rank <= most_rank]
            table = plain_table(*(name for name, _ in columns))
            for run in self.runs:
                table.add_row(*(cell(run) for _, cell in columns))
            if not most_rank or Measurement.get(console, endless, table).maximum <= options.max_width:
                yield table
                return
