"""The base of every engine: a process asked over pipes, a line or a few at a time.

A crash, silence and nonsense all end the process and become one `EngineError` that names engine, position and remedy.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from azq.arena.player import DEADLINE_S, Player, Tick, no_tick
from azq.errors import EngineError
from azq.waiting import AwakeClock

POLL_S = 0.1
END_AFTER_S = 2.0
MAX_ANSWER_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16
LAST_WORDS = 200  # characters of its standard error that a crash report quotes
#: what an engine gets of this process's environment, which holds passwords and tokens
INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "TEMP", "TMP"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS"),
)

Complete = Callable[[Sequence[str]], bool]  # whether these lines are a whole answer; `bool`: one line is


class EngineProcess:
    """A running engine; raises `EngineError` where the command cannot be started.

    `remedy` is what an operator can do about this engine. `tick` is called ten times a second while an answer is awaited;
    what it raises is passed on.
    """

    def __init__(self, name: str, command: Sequence[str], *, remedy: str, deadline_s: float = DEADLINE_S, tick: Tick = no_tick) -> None:
        self.name = name
        self._remedy = remedy
        self._deadline_s = deadline_s
        self._tick = tick
        self._answer = b""
        self._last_words = b""
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(os.environ),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise EngineError(f"engine {name} cannot be started: {error}; {remedy}") from None
        self._stdin, self._stdout, self._stderr = (
            _pipe(stream) for stream in (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        self._ready = selectors.DefaultSelector()
        for stream in (self._stdout, self._stderr):
            self._ready.register(stream, selectors.EVENT_READ)

    def ask(self, question: str, about: str, *, complete: Complete = bool) -> list[str]:
        """The lines of the answer to one line; `about` names the position in errors.

        Raises `EngineError` where the engine died, or gave no complete answer by the deadline; the process is ended.
        """
        self._answer = b""
        waiting = question.encode() + b"\n"
        awake_s = AwakeClock()
        while not complete(lines := self._lines()):
            self._tick()
            if awake_s() > self._deadline_s:
                raise self.broke(f"gave no answer to {question[:80]!r} within {self._deadline_s:g} s", about)
            waiting = self._send(waiting)
            self._receive(question, about)
        return lines

    def ask_json(self, question: Any, about: str) -> dict[str, Any]:
        """The object that answers an object, a line of JSON each; raises as `ask`, and for what is no object."""
        (line, *_) = self.ask(json.dumps(question), about)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self.broke(f"answered nonsense, {line[:80]!r},", about)
        return answer

    def broke(self, what: str, about: str) -> EngineError:
        """Ends the process; the error that says what it did wrong."""
        self.kill()
        return EngineError(f"engine {self.name} {what} at {about}; {self._remedy}")

    def close(self) -> None:
        """Ends the process, by the end of its input or else by a signal."""
        with suppress(OSError):
            self._stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_AFTER_S)
        self.kill()

    def kill(self) -> None:
        """Ends the process and all it started, at once. May be called again."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._ready.close()
        for stream in (self._stdin, self._stdout, self._stderr):
            with suppress(OSError):
                stream.close()

    def _lines(self) -> list[str]:
        """What was answered so far, in whole lines."""
        return self._answer.decode("utf-8", "replace").split("\n")[:-1]

    def _send(self, data: bytes) -> bytes:
        """Sends what the pipe takes; the rest."""
        try:
            return data[os.write(self._stdin.fileno(), data) :] if data else data
        except BlockingIOError:
            return data
        except (OSError, ValueError):  # closed: reading says how it ended
            return b""

    def _receive(self, question: str, about: str) -> None:
        if self._stdout.closed:
            raise EngineError(f"engine {self.name} has ended; it was asked about {about} too late; {self._remedy}")
        for key, _ in self._ready.select(POLL_S):
            data = os.read(key.fd, CHUNK_BYTES)
            if key.fileobj is self._stderr:
                self._last_words = (self._last_words + data)[-LAST_WORDS:]
                if not data:
                    self._ready.unregister(self._stderr)
            elif not data:
                raise self.broke(self._end(question), about)
            elif len(self._answer) > MAX_ANSWER_BYTES:
                raise self.broke(f"answered {question[:80]!r} with more than {MAX_ANSWER_BYTES} bytes", about)
            else:
                self._answer += data

    def _end(self, question: str) -> str:
        """How the process ended, once its output did."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_AFTER_S)
        with suppress(BlockingIOError):
            self._last_words = (self._last_words + (os.read(self._stderr.fileno(), CHUNK_BYTES) or b""))[-LAST_WORDS:]
        words = " ".join(self._last_words.decode("utf-8", "replace").split())
        code = self._process.poll()
        how = "closed its output" if code is None else f"died (exit code {code})"
        return f"{how} when asked {question[:80]!r}" + (f", last saying {words!r}," if words else "")


class EnginePlayer(Player):
    """A player that asks an engine's process."""

    def __init__(self, process: EngineProcess) -> None:
        self.name = process.name
        self._process = process

    def close(self) -> None:
        self._process.close()


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """What an engine gets to see of this process's environment. Pure."""
    return {name: value for name, value in own.items() if name in INHERITED or name.startswith("LC_")}


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """A pipe that never blocks."""
    assert stream is not None
    os.set_blocking(stream.fileno(), False)
    return stream
