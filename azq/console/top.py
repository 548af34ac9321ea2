"""`azq top`: all runs, queues and workers of a control plane on one screen that refreshes itself; needs no daemon."""

from __future__ import annotations

import contextlib
import json
import select
import sys
import termios
import threading
import time
import tty
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from azq.config import Config
from azq.console.show import brokers_text, planes_of
from azq.console.table import clock, count, rate
from azq.errors import BrokerError
from azq.host import brokers
from azq.ledger.types import RunState
from azq.metrics import gpu_texts
from azq.status.brokers import PlaneFacts
from azq.status.observe import Watch
from azq.status.summary import RunStatus
from azq.status.workers import QueueStatus, WorkerStatus

LATE_S = 4.0
SILENT_S = 8.0
QUIT = ("q", "Q", "\x03", "\x04")

Pause = Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything that one screen shows."""

    runs: tuple[RunStatus, ...]
    queues: tuple[QueueStatus, ...]
    workers: tuple[WorkerStatus, ...]
    brokers: tuple[PlaneFacts, ...] = ()


def top(config: Config, *, once: bool, as_json: bool, every_s: float) -> None:
    """Shows the control plane until q or Ctrl-C; one frame with `once`, for machines with `as_json`. Raises `BrokerError` at the start."""
    config, client = brokers.open_control(config)
    watch, planes = Watch(client), planes_of(config.broker, client)

    def look() -> Frame:
        runs, queues, workers = watch.everything()
        return Frame(runs, queues, workers, tuple(plane.look([run.run for run in runs]) for plane in planes))

    frame = look()
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(frame)) + "\n")
    elif once or not sys.stdout.isatty():
        Console().print(screen(frame))
    else:
        with keys_of_terminal() as pause:
            run_live(look, frame, Console(), pause, every_s)


def run_live(look: Callable[[], Frame], frame: Frame, console: Console, pause: Pause, every_s: float) -> None:
    """Redraws until `pause` says stop; while the broker is away the last frame stays, and says so."""
    problem = ""
    with Live(screen(frame), console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(screen(frame, problem, height=console.height), refresh=True)
            if pause(every_s):
                return
            try:
                frame, problem = look(), ""
            except BrokerError as error:
                problem = f"broker away, retrying: {error}"


@contextlib.contextmanager
def keys_of_terminal() -> Iterator[Pause]:
    """A pause that ends early, and says stop, when q or Ctrl-C is pressed; the terminal is as it was afterwards."""
    if not sys.stdin.isatty():
        yield threading.Event().wait  # nobody can press a key
        return
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    try:
        tty.setcbreak(file)
        yield _pause
    except KeyboardInterrupt:
        pass  # as q
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)


def _pause(seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and sys.stdin.read(1) in (*QUIT, ""):
            return True
    return False


def screen(frame: Frame, problem: str = "", *, height: int = 0) -> RenderableType:
    """The whole screen; where it is too low for all workers, hosts stand on one line each."""
    used = 10 + len(frame.runs) + len(frame.queues) + sum(len(run.conditions) for run in frame.runs)
    folded = bool(height) and used + len(frame.workers) + len({worker.host for worker in frame.workers}) > height
    conditions = [Text(f"{run.run}: {text}", style="yellow") for run in frame.runs for text in run.conditions]
    head = Text.assemble(("azq top", "bold"), f"  {time.strftime('%H:%M:%S')}  runs: {len(frame.runs)}  processes: {len(frame.workers)}  ")
    head.append(problem or "q quits", style="red" if problem else "dim")
    return Group(
        head,
        brokers_text(frame.brokers),
        Text(),
        runs_table(frame.runs),
        *conditions,
        Text(),
        queues_table(frame.queues),
        Text(),
        hosts_table(frame.workers, folded),
    )


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
    ("#ledger", 0, lambda run: Text("balanced", style="green") if run.ledger.balanced else Text("NOT BALANCED", style="bold red")),
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
    return _RunsTable(runs) if runs else Text("no runs yet; `azq up` starts one", style="dim")


@dataclass(frozen=True, slots=True)
class _RunsTable:
    runs: Sequence[RunStatus]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        endless = options.update(width=1000)
        for rank in sorted({rank for _, rank, _ in RUN_COLUMNS}, reverse=True):
            table = self._of(rank)
            if not rank or Measurement.get(console, endless, table).maximum <= options.max_width:
                yield table
                return

    def _of(self, most_rank: int) -> Table:
        columns = [(name, cell) for name, rank, cell in RUN_COLUMNS if rank <= most_rank]
        table = _table(*(name for name, _ in columns))
        for run in self.runs:
            table.add_row(*(cell(run) for _, cell in columns))
        return table


def queues_table(queues: Sequence[QueueStatus]) -> RenderableType:
    """A line for each queue."""
    if not queues:
        return Text("no live worker takes any queue, and no job waits", style="dim")
    table = _table("queue", "#ready", "#leased", "#slots", "#workers", "#oldest waits")
    for one in queues:
        waits = "-" if one.oldest_queued_s is None else f"{one.oldest_queued_s:.0f} s"
        table.add_row(
            one.queue, str(one.queued), str(one.leased), Text(str(one.slots), style="" if one.slots else "red"), str(one.workers), waits
        )
    return table


def hosts_table(workers: Sequence[WorkerStatus], folded: bool) -> RenderableType:
    """The processes by host, or a line for each host."""
    table = _table("host", "process", "tags", "does", "#up", "#heartbeat")
    for host, group in groupby(sorted(workers, key=lambda worker: (worker.host, worker.role, worker.worker)), lambda worker: worker.host):
        members = list(group)
        tags = ",".join(sorted({tag for worker in members for tag in worker.tags}))
        if folded:
            roles = ", ".join(f"{number} {role}" for role, number in sorted(Counter(worker.role for worker in members).items()))
            table.add_row(host, roles, tags, "", "", _age(max(worker.age_s for worker in members)))
            continue
        for number, worker in enumerate(members):
            name, place = f"{worker.role} {worker.run or worker.pid}", (host, tags) if number == 0 else ("", "")
            table.add_row(place[0], name, place[1], _does(worker), clock(worker.up_s), _age(worker.age_s))
    return table if workers else Text("no worker lives; start one with `azq worker` or `azq up`", style="dim")


def _does(worker: WorkerStatus) -> str:
    shown = (("games_per_s", "games/s"), ("simulations_per_s", "sims/s"), ("evaluations_per_s", "evals/s"), ("samples_per_s", "samples/s"))
    rates = ((worker.rates.get(name, 0.0), unit) for name, unit in shown)
    shares = [f"{rate:.1f} {unit}" if rate < 100 else f"{count(rate)} {unit}" for rate, unit in rates if rate]
    return "  ".join([*shares, *gpu_texts(worker.rates)])


def _age(seconds: float) -> Text:
    return Text(f"{seconds:.1f} s", style="red" if seconds >= SILENT_S else "yellow" if seconds >= LATE_S else "green")


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name.lstrip("#"), justify="right" if name.startswith("#") else "left", no_wrap=True)
    return table
