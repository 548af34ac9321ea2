"""`azq` as its user calls it, and whether a command line is one that it takes."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import typer

from azq.cli.app import app, main
from azq.process.start import AZQ, foreign_environment

SETTINGS = ("daemon.port=0", "selfplay.journal_s=1.0", "daemon.lease_s=4.0", "arena.every_s=0")  # of a run that reacts within seconds
QUICK = [word for setting in SETTINGS for word in ("--set", setting)]


def azq(home: Path, *arguments: str, stdin: str = "", timeout_s: float = 300.0, threads: int = 1) -> subprocess.CompletedProcess[str]:
    """A command of azq in its home, with no setting but its arguments."""
    env = {**foreign_environment(), "AZQ_HOME": str(home), "OMP_NUM_THREADS": str(threads)}
    return subprocess.run([*AZQ, *arguments], input=stdin, capture_output=True, text=True, env=env, timeout=timeout_s, cwd=home)


def azq_here(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which loads no library again: for a command that ends at once."""
    env = {**foreign_environment(), "AZQ_HOME": str(home), **environment}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with (
            mock.patch.dict(os.environ, env, clear=True),
            mock.patch.object(sys, "argv", ["azq", *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                main()
                code = 0
            except SystemExit as ended:
                code = int(ended.code or 0)
        with warnings.catch_warnings(action="ignore"):
            gc.collect()  # connections that the end of its process would have closed
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(["azq", *arguments], code, out.read(), err.read())


def parsed(arguments: Sequence[str]) -> dict[str, Any]:
    """The values that `azq ARGUMENTS` would run with; raises what the command line raises for a word that it does not know."""
    command: Any = typer.main.get_command(app)
    left, above = list(arguments), None
    while True:
        above = command.make_context(command.name, left, parent=above)
        if not hasattr(command, "resolve_command"):
            return dict(above.params)
        _, command, left = command.resolve_command(above, [*above._protected_args, *above.args])
