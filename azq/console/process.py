"""What every azq process does first: die with the process that started it, log under its role, translate errors to exit codes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

from azq import logs
from azq.errors import AzqError, ExitCode

PARENT_VARIABLE = "AZQ_PARENT_PID"
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Asks Linux for SIGTERM when the supervising process dies; does nothing where no supervisor said its pid."""
    parent = os.environ.get(PARENT_VARIABLE)
    if not parent or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before the request was in place
        sys.exit(ExitCode.INTERRUPTED)


def run_main(role: str, main: Callable[[], int]) -> int:
    """Runs a process's main under its role's log; an `AzqError` becomes one line and its exit code."""
    logs.setup(role)
    die_with_parent()
    try:
        return main()
    except AzqError as error:
        logs.get(role).error("stopped", reason=str(error))
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
