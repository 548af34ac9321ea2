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
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from azq.config import Config
from azq.console.show import brokers_text, planes_of
from azq.console.table import clock, count, plain_table, runs_table
from azq.errors import BrokerError
from azq.host import brokers
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

    def read() -> Frame:
        runs, queues, workers = watch.everything()
        return Frame(runs, queues, workers, tuple(plane.read([run.run for run in runs]) for plane in planes))

    frame = read()
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(frame)) + "\n")
    elif once or not sys.stdout.isatty():
        Console().print(screen(frame))
    else:
        with keys_of_terminal() as pause:
            run_live(read, frame, Console(), pause, every_s)


def run_live(read: Callable[[], Frame], frame: Frame, console: Console, pause: Pause, every_s: float) -> None:
    """Redraws until `pause` says stop; while the broker is away the last frame stays, and says so."""
    problem = ""
    with Live(screen(frame), console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(screen(frame, problem, height=console.height), refresh=True)
            if pause(every_s):
                return
            try:
                frame, problem = read(), ""
            except BrokerError as error:
                problem = f"broker away, retrying: {error}"


@contextlib.contextmanager
def keys_of_terminal() -> Iterator[Pause]:
    """A pause that ends early, and says stop, when q or Ctrl-C is pressed; the terminal is as it was afterwards."""
    if not sys.stdin.isatty():
        yield threading.Event().wait  # no key can be pressed
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


def queues_table(queues: Sequence[QueueStatus]) -> RenderableType:
    """A line for each queue."""
    if not queues:
        return Text("no live worker takes any queue, and no job waits", style="dim")
    table = plain_table("queue", "#ready", "#leased", "#slots", "#workers", "#oldest waits")
    for queue in queues:
        waits = "-" if queue.oldest_queued_s is None else f"{queue.oldest_queued_s:.0f} s"
        table.add_row(
            queue.queue,
            str(queue.queued),
            str(queue.leased),
            Text(str(queue.slots), style="" if queue.slots else "red"),
            str(queue.workers),
            waits,
        )
    return table


def hosts_table(workers: Sequence[WorkerStatus], folded: bool) -> RenderableType:
    """The processes by host, or a line for each host."""
    table = plain_table("host", "process", "tags", "does", "#up", "#heartbeat")
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
