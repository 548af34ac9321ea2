"""Structured log lines: an event name, then key=value pairs; JSON with `AZQ_LOG=json`.

Passwords in URLs are masked, and tracebacks show no values of variables; other secrets are never passed in.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from typing import Any, TextIO

import structlog

from azq.masking import masked

LOUD = ("warning", "error", "exception", "critical")


class Tolerant:
    """A stream whose full disk costs the line, and not the process that says it; None: standard error, whatever that is by then."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Writes if it can."""
        with contextlib.suppress(OSError):
            (self._stream or sys.stderr).write(text)

    def flush(self) -> None:
        """Flushes if it can."""
        with contextlib.suppress(OSError):
            (self._stream or sys.stderr).flush()


class Tail:
    """The newest lines of log of this process and of those that it forks, which hand theirs over by a pipe and never wait for that.

    What does not fit is dropped here; the file or journal that the lines go to has them all.
    """

    KEPT = 1000  # lines
    WARNINGS = 3
    LONGEST = 4096  # bytes that a pipe takes whole, whoever else writes

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lines: deque[str] = deque(maxlen=self.KEPT)
        self.warnings: deque[str] = deque(maxlen=self.WARNINGS)  # the newest of this process, shortened
        self._source, self._sink = os.pipe()
        os.set_blocking(self._source, False)
        os.set_blocking(self._sink, False)
        self._rest = b""
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        """A line that was said, by this process or a forked one."""
        if os.getpid() == self._owner:
            self._lines.append(line)
            self.collect()
        else:
            with contextlib.suppress(OSError):
                os.write(self._sink, line.encode("utf-8", "replace")[: self.LONGEST - 1] + b"\n")

    def collect(self) -> None:
        """Takes over what forked processes said; passed over while another thread does it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            while said := self._read():
                *whole, self._rest = (self._rest + said).split(b"\n")
                self._lines.extend(line.decode("utf-8", "replace") for line in whole)
        finally:
            self._lock.release()

    def newest(self, most: int) -> list[str]:
        """Up to so many lines, oldest first."""
        self.collect()
        return [line for entry in self._lines.copy() for line in entry.splitlines()][-most:]

    def _read(self) -> bytes:
        try:
            return os.read(self._source, 16 * self.LONGEST)
        except BlockingIOError:
            return b""


TAIL = Tail()  # of the process that imported this; what it forks goes on with it


def setup(role: str, *, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Sends this process's log lines, those of `level` and above, to standard error, stamped with its role."""
    output = Tolerant(stream)
    renderer: structlog.typing.Processor = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    if os.environ.get("AZQ_LOG") == "json":
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _mask,
            _warn,
            renderer,
            _keep,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(output),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(role=role)


def _mask(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {key: _shown(masked(value)) if isinstance(value, str) else value for key, value in event.items()}


def _shown(text: str) -> str:
    """A text with its escapes spelt out: some are others', and logs are read on terminals."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1] for letter in text)


def _warn(_logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if method in LOUD:
        words = [f"{key}={value}" for key, value in event.items() if key not in ("event", "level", "role", "timestamp", "exception")]
        TAIL.warnings.append(" ".join([str(event.get("timestamp", ""))[11:19], str(event["event"]), *words]))
    return event


def _keep(_logger: object, _method: str, line: Any) -> str:  # Any: what a renderer made of the event
    TAIL.add(masked(line))
    return str(line)


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger; call it as `log.info("event_name", key=value)`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger
