"""Structured log lines: an event name, then key=value pairs; JSON with `AZQ_LOG=json`. Secrets are never passed in."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TextIO

import structlog


class Tolerant:
    """A stream whose full disk costs the line, and not the process that says it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Writes if it can."""
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flushes if it can."""
        with contextlib.suppress(OSError):
            self._stream.flush()


def setup(role: str, *, stream: TextIO | None = None) -> None:
    """Sends this process's log lines to standard error, stamped with its role."""
    output = Tolerant(stream or sys.stderr)
    renderer: structlog.typing.Processor
    renderer = structlog.processors.JSONRenderer() if os.environ.get("AZQ_LOG") == "json" else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(output),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(role=role)


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger; call it as `log.info("event_name", key=value)`."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger
