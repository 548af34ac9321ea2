"""Whether a command line is one that azq takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from azq.cli.app import app


def parsed(arguments: Sequence[str]) -> dict[str, Any]:
    """The values that `azq ARGUMENTS` would run with; raises what the command line raises for a word that it does not know."""
    command: Any = typer.main.get_command(app)
    left, above = list(arguments), None
    while True:
        above = command.make_context(command.name, left, parent=above)
        if not hasattr(command, "resolve_command"):
            return dict(above.params)
        _, command, left = command.resolve_command(above, [*above._protected_args, *above.args])
