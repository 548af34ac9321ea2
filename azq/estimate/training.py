"""Training that is measured, in a process of its own that trains when told to, as a run's learner stands beside self-play."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from subprocess import Popen
from typing import Any

from azq.bench.rig import child, in_turns, last_words, say
from azq.config import RunSections, dump_run, parse_run
from azq.errors import EvaluationTimeout
from azq.estimate.rates import Side

WINDOW_SAMPLES = 20_000  # that the learner draws from while it is measured
ROUNDS = 2
WARM_UP = 0.5 / ROUNDS  # of what is measured, before it: what `in_turns` takes for it
ALLOWANCE_S = 120.0  # beyond the time itself: torch is loaded and the window filled


@contextlib.contextmanager
def workbench(sections: RunSections) -> Iterator[Callable[[float], Side]]:
    """Takes whole training steps for so many seconds, drawing and decoding included, each time it is called."""
    from azq.bench.learner import steps_for, whole_step, workplace
    from azq.learner.opening import prepare_training

    device, batch = prepare_training(sections.learner), sections.learner.batch_size
    trainer, _, feed = workplace(sections, device, WINDOW_SAMPLES)
    steps = partial(steps_for, whole_step(trainer, feed, feed.order(0, batch, WINDOW_SAMPLES)), device)

    def train(seconds: float) -> Side:
        spent = in_turns({"steps": (steps, (os.getpid(),))}, seconds, ROUNDS)["steps"]
        return Side(spent.done / spent.wall_s, spent.cpu_s / spent.done)

    try:
        yield train
    finally:
        feed.close()


def train_alone(sections: RunSections, seconds: float) -> Side:
    """What a learner does with the machine to itself."""
    with learner(sections) as training:
        return training.begin(seconds)()


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """A process that trains when it is told to."""

    _process: Popen[str]

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, seconds: float) -> Callable[[], Side]:
        """Training starts now, with its warm-up; what comes back waits for what was done, or raises `EvaluationTimeout`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # of one that died, which whoever waits is told
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
        return lambda: Side(**json.loads(self.said((1.0 + WARM_UP) * seconds)))

    def said(self, seconds: float = 0.0) -> str:
        """Its next line, of something that takes so long; raises `EvaluationTimeout` where it died, or is ended because it hangs."""
        assert self._process.stdout is not None
        with ended_after(self._process, seconds + ALLOWANCE_S):
            line = self._process.stdout.readline()
        if not line:
            _, complaint = self._process.communicate()
            raise EvaluationTimeout(f"the learner's process ended with exit code {self._process.returncode}: {last_words(complaint)[:300]}")
        return line


@contextlib.contextmanager
def ended_after(process: Popen[str], seconds: float) -> Iterator[None]:
    """Within it, the process is killed once it took longer."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def learner(sections: RunSections) -> Iterator[TrainingProcess]:
    """One that is ready to train; it ends with the block."""
    process = child(train_as_told, sections=dump_run(sections))
    try:
        found = TrainingProcess(process)
        found.said()
        yield found
    finally:
        process.kill()
        process.communicate()


def train_as_told(sections: dict[str, Any]) -> None:
    """What that process does: it says that it is ready, and answers each line, a number of seconds, by what it then did."""
    with workbench(parse_run(sections, "the settings of the estimate")) as train:
        train(0.0)  # kernels are made with the first steps
        say("ready")
        for line in sys.stdin:
            say(asdict(train(float(line))))
