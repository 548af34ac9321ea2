"""Structured log lines: an event name, then key=value pairs; JSON with `AZQ_LOG=json`.

Passwords in URLs are masked, and tracebacks show no values of variables; other secrets are never passed in.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections import deque
from typing import TextIO

import structlog

from azq.masking import masked

LOUD = ("warning", "error", "exception", "critical")
STAMPS = ("event", "level", "role", "timestamp", "exception")  # of a line, and not what it is about


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


WARNINGS: deque[str] = deque(maxlen=3)  # the newest of this process, shortened


def setup(role: str, *, stream: TextIO | None = None, level: int = logging.INFO, to_person: bool = False) -> None:
    """Sends this process's log lines, those of `level` and above, to standard error, stamped with its role; `to_person` as sentences."""
    output = Tolerant(stream)
    renderer: structlog.typing.Processor = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    if to_person:
        renderer = _sentence
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
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(output),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(role=role)


def _sentence(_logger: object, method: str, event: structlog.typing.EventDict) -> str:
    """A line as a person reads it at the start of a command: `warning: disk full: path /data, free 0`."""
    about = {key: value for key, value in event.items() if key not in STAMPS}
    pairs = [f"{key.replace('_', ' ')} {value}" for key, value in about.items()] if len(about) > 1 else map(str, about.values())
    begin = f"{method}: " if method in LOUD else ""
    sentence = begin + ": ".join(filter(None, [str(event["event"]).replace("_", " "), ", ".join(pairs)]))
    return "\n".join(filter(None, [sentence, str(event.get("exception", ""))]))


def _mask(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {key: _shown(masked(value)) if isinstance(value, str) else value for key, value in event.items()}


def _shown(text: str) -> str:
    """A text with its escapes spelt out: some are others', and logs are read on terminals."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1] for letter in text)


def _warn(_logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if method in LOUD:
        words = [f"{key}={value}" for key, value in event.items() if key not in STAMPS]
        WARNINGS.append(" ".join([str(event.get("timestamp", ""))[11:19], str(event["event"]), *words]))
    return event


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger; call it as `log.info("event_name", key=value)`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger
