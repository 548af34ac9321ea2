"""The check of a game that others wrote, in processes that it may end, block or write to: what it does to them is a finding.

A second process, with another order of sets, replays what the first one recorded: what is drawn when a file is imported differs there.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from azq import games
from azq.errors import AzqError, ConfigError, GameContractError, MissingExtra, UnknownGameError
from azq.findings import Finding
from azq.games.check import Recorded, Report, check, replayed
from azq.games.files import is_python_file

PATIENCE_S = 60.0  # with one position
SIGN_S = 0.5
TRACE_S = 2.0  # for the last words of a process that is stuck
KEPT_BYTES = 1 << 16  # of what it prints
REPLAYED_PLIES = 20_000  # of the first games, at least one, in the second process
HASH_SEEDS = {"check": "1", "replay": "2"}  # by which sets of texts have their orders
REFUSALS = {kind.__name__: kind for kind in (ConfigError, GameContractError, MissingExtra, UnknownGameError)}
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+) in (\S+)')


@dataclass(slots=True)
class _Heard:
    """What a child said and how it ended."""

    messages: list[list[Any]] = field(default_factory=list)
    printed: bytes = b""
    errors: bytes = b""  # the end of it
    stuck: bool = False
    code: int = 0

    def of(self, kind: str) -> list[Any]:
        return [message[1] for message in self.messages if message[0] == kind]


def check_apart(
    name: str, params: Mapping[str, Any], count: int, progress: Callable[[int], None] = lambda done: None, *, patience_s: float = PATIENCE_S
) -> Report:
    """As `check`, of a game by its name. Raises what loading it raises."""
    job = {"name": name, "params": dict(params), "games": count}
    heard = _listen(job | {"task": "check"}, progress, patience_s)
    for kind, text in heard.of("refused"):
        raise REFUSALS.get(kind, GameContractError)(text)
    report = _report(name, heard, patience_s)
    if not report.sound:
        return report
    again = _listen(job | {"task": "replay", "recorded": _some(heard.of("kept"))}, progress, patience_s)
    differ = "another process replays the recorded actions to other positions or results: something is drawn when the file is imported, "
    differ += "or hangs on the order of a set"
    findings = [Finding("process", "fail", differ, history=tuple(history)) for history in again.of("differs")]
    findings += [Finding("process", "fail", f"another process does not replay it: {text}") for _, text in again.of("refused")]
    return Report(**{**_fields(report), "findings": (*findings[:1], *_death(name, again, patience_s))})


def _fields(report: Report) -> dict[str, Any]:
    return {name: getattr(report, name) for name in Report.__slots__}


def _some(recorded: list[Recorded]) -> list[Recorded]:
    chosen, plies = recorded[:1], 0
    for game in recorded[1:]:
        plies += len(game[0])
        if plies > REPLAYED_PLIES:
            break
        chosen.append(game)
    return chosen


def _report(name: str, heard: _Heard, patience_s: float) -> Report:
    """The child's report, or what it had reported by its death."""
    notes = [*dict.fromkeys(heard.of("note"))]
    if lines := heard.printed.decode(errors="replace").splitlines():
        notes.append(f"it prints to standard output, which slows it and fills logs; first {lines[0][:80]!r}")
    findings = [Finding(**values | {"history": tuple(values["history"])}) for values in heard.of("finding")]
    findings += _death(name, heard, patience_s)
    figures = {"game": name, "games": max(heard.of("sign"), default=0), "plies": 0, "playouts_per_s": 0.0, "planes": (0, 0, 0)}
    for report in heard.of("report"):
        figures |= report | {"planes": tuple(report["planes"])}
    return Report(**figures | {"findings": tuple(findings), "notes": tuple(notes)})


def _death(name: str, heard: _Heard, patience_s: float) -> Iterator[Finding]:
    if not heard.stuck and not heard.code and (heard.of("report") or heard.of("refused")):
        return
    frames = _FRAME.findall(heard.errors.decode(errors="replace"))
    folder = str(Path(name.rpartition(":")[0]).resolve().parent) + "/" if is_python_file(name) else ""
    own = next((frame for frame in frames if folder and frame[0].startswith(folder)), None)
    where = f" in {own[2]} ({Path(own[0]).name}, line {own[1]})" if own else ""
    if heard.stuck:
        yield Finding("time", "fail", f"no answer within {patience_s:g} s{where}")
    elif heard.code < 0:
        yield Finding("process", "fail", f"its process died of {signal.Signals(-heard.code).name}{where}")
    else:
        yield Finding("process", "fail", f"its process ended with exit code {heard.code}{where}; a game must not end its player's process")


def _listen(job: Mapping[str, Any], progress: Callable[[int], None], patience_s: float) -> _Heard:
    """Starts a child on a job and hears it to its end; one that says nothing for too long is asked where it is, and killed."""
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", "azq.games.apart", str(writing)]
    pipe, heard = subprocess.PIPE, _Heard()
    environment = os.environ | {"PYTHONHASHSEED": HASH_SEEDS[job["task"]]}
    child = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=(writing,), start_new_session=True)
    os.close(writing)
    with open(reading, "rb", buffering=0) as messages, child:
        try:
            assert child.stdin
            with suppress(BrokenPipeError), child.stdin as job_line:
                job_line.write(json.dumps(job).encode())
            _read(child, messages, heard, progress, patience_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        heard.code = child.wait()
    return heard


def _read(child: subprocess.Popen[bytes], messages: BinaryIO, heard: _Heard, progress: Callable[[int], None], patience_s: float) -> None:
    """Takes in what a child says until it ends, or keeps silent and has written its traceback."""
    rest, deadline_s = b"", time.monotonic() + patience_s
    with selectors.DefaultSelector() as waiting:
        for stream in (messages, child.stdout, child.stderr):
            waiting.register(stream, selectors.EVENT_READ)  # type: ignore[arg-type]
        while waiting.get_map():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 and heard.stuck:
                return
            if left_s <= 0:
                heard.stuck, deadline_s = True, time.monotonic() + TRACE_S
                child.send_signal(signal.SIGUSR1)
            for key, _ in waiting.select(max(0.0, left_s)):
                data = os.read(key.fd, KEPT_BYTES)
                if not data:
                    waiting.unregister(key.fileobj)
                elif key.fileobj is child.stdout:
                    heard.printed = (heard.printed + data)[:KEPT_BYTES]
                elif key.fileobj is child.stderr:
                    heard.errors = (heard.errors + data)[-KEPT_BYTES:]
                elif not heard.stuck:
                    *lines, rest = (rest + data).split(b"\n")
                    heard.messages += map(json.loads, lines)
                    deadline_s = time.monotonic() + patience_s
                    progress(max(heard.of("sign")[-1:], default=0))


class _Teller:
    """In a child: its messages, a line each."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._signed_s = descriptor, 0.0

    def send(self, kind: str, what: Any) -> None:
        line = json.dumps([kind, what]).encode() + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]

    def sign(self, done: int) -> None:
        if time.monotonic() - self._signed_s >= SIGN_S:
            self._signed_s = time.monotonic()
            self.send("sign", done)


def _main(descriptor: int) -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    os.set_inheritable(descriptor, False)
    job, teller = json.load(sys.stdin), _Teller(descriptor)
    _name_who_exits(os._exit)
    _name_warnings(teller)
    try:
        game = games.GameFiles.named(job["name"]).load(job["name"], job["params"])
    except AzqError as error:
        teller.send("refused", [type(error).__name__, str(error)])
        return
    if job["task"] == "replay":
        for history, digest in job["recorded"]:
            teller.sign(0)
            try:
                if replayed(game, history)[2] != digest:
                    teller.send("differs", history)
            except AzqError:
                teller.send("differs", history)
        teller.send("report", None)
        return
    before = _shared(job["name"])
    report = check(
        game,
        job["games"],
        progress=teller.sign,
        keep=partial(teller.send, "kept"),
        on_finding=lambda finding: teller.send("finding", asdict(finding)),
    )
    for note in _changes(job["name"], before):
        teller.send("note", note)
    figures = {key: value for key, value in _fields(report).items() if key not in ("findings", "notes")}
    teller.send("report", figures)


def _name_who_exits(end: Callable[[int], Any]) -> None:
    def end_with_traceback(code: int) -> None:
        faulthandler.dump_traceback(all_threads=False)
        end(code)

    os._exit = end_with_traceback  # type: ignore[assignment]


def _name_warnings(teller: _Teller) -> None:
    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        teller.send("note", f"it warns: {category.__name__}: {message} ({Path(filename).name}, line {lineno})")

    warnings.simplefilter("default")
    warnings.showwarning = show  # type: ignore[assignment]


@np.printoptions(threshold=sys.maxsize, floatmode="unique")
def _shared(name: str) -> dict[str, str]:
    """What positions share: values of the game's module and of its classes, the threads there are, the state of the generators."""
    shared = {"": repr((random.getstate(), np.random.get_state()))} if is_python_file(name) else {}
    shared |= {f"thread {thread.name}": "" for thread in threading.enumerate()}
    for module in [module for key, module in sys.modules.items() if key.startswith("azq_user_game_")]:
        values = dict(vars(module))
        for key, kind in vars(module).items():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                values |= {f"{key}.{inner}": value for inner, value in vars(kind).items()}
        for key, value in values.items():
            if "__" not in key and not callable(value):
                with suppress(Exception):  # what cannot be compared
                    shared[key] = repr(vars(value) if "__dict__" in dir(value) else value)
    return shared


def _changes(name: str, before: Mapping[str, str]) -> Iterator[str]:
    for key, value in _shared(name).items():
        if before.get(key) == value:
            continue
        if not key:
            yield "it draws from random or numpy.random, which no record replays; dice and deals are chance nodes, redraws have their rng"
        elif key.startswith("thread "):
            yield f"it leaves {key} at work; a position changes by apply_action alone"
        else:
            yield f"{key} changes while games are played; each process has its own, so that nothing but a cache may be kept there"


if __name__ == "__main__":
    _end = os._exit
    _main(int(sys.argv[1]))
    sys.stdout.flush()
    _end(0)  # whatever threads the game has left at work
