"""`azq` as its user calls it, and whether a command line is one that it takes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from azq.cli.app import app
from azq.process.start import AZQ, foreign_environment

SETTINGS = ("daemon.port=0", "selfplay.journal_s=1.0", "daemon.lease_s=4.0", "arena.every_s=0")  # of a run that reacts within seconds
QUICK = [word for setting in SETTINGS for word in ("--set", setting)]


def azq(home: Path, *arguments: str, stdin: str = "", timeout_s: float = 300.0, threads: int = 1) -> subprocess.CompletedProcess[str]:
    """A command of azq in its home, with no setting but its arguments."""
    env = {**foreign_environment(), "AZQ_HOME": str(home), "OMP_NUM_THREADS": str(threads)}
    return subprocess.run([*AZQ, *arguments], input=stdin, capture_output=True, text=True, env=env, timeout=timeout_s, cwd=home)


def parsed(arguments: Sequence[str]) -> dict[str, Any]:
    """The values that `azq ARGUMENTS` would run with; raises what the command line raises for a word that it does not know."""
    command: Any = typer.main.get_command(app)
    left, above = list(arguments), None
    while True:
        above = command.make_context(command.name, left, parent=above)
        if not hasattr(command, "resolve_command"):
            return dict(above.params)
        _, command, left = command.resolve_command(above, [*above._protected_args, *above.args])
