"""Standard output that may fail: a full disk behind `>`, a reader of a pipe that has seen enough."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, TextIO

from azq.errors import AzqError, ExitCode

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Output(io.FileIO):
    """The descriptor of standard output."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise AzqError(f"cannot write to standard output: {error.strerror}") from None


@contextmanager
def answers_apart() -> Iterator[TextIO]:
    """Standard output for answers alone: what else prints meanwhile, as the code of somebody's game, goes to standard error."""
    answers = sys.stdout
    with redirect_stdout(sys.stderr):
        yield answers


@contextmanager
def checked_output() -> Iterator[None]:
    """Has everything on its way by the end. Raises `AzqError` where it cannot be written, and ends quietly where nobody reads it."""
    output = sys.stdout
    if output is None or output.isatty():
        yield
        return
    raw = io.BufferedWriter(_Output(output.fileno(), "w", closefd=False))
    sys.stdout = io.TextIOWrapper(raw, output.encoding, output.errors, line_buffering=bool(output.line_buffering))
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except (AzqError, BrokenPipeError) as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # what is left goes nowhere
            if isinstance(error, AzqError):
                raise
            sys.exit(int(ExitCode.CRASH))
