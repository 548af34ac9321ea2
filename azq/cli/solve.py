"""`azq solve`: small games, or the ends of larger ones, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import Answer, with_settings

if TYPE_CHECKING:
    from azq.config import Config


@with_settings
def solve(
    settings: Config,
    game: Annotated[str, typer.Argument(help="A game for one or two without secrets: its name, path/to/file.py:Class, openspiel:NAME.")],
    params: Annotated[list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="A parameter; may be repeated.")] = None,
    endgames: Annotated[int, typer.Option("--endgames", metavar="PLIES", min=0, help="Only so many plies before random games end.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Where graded positions go; the home folder by default.")] = None,
    positions: Annotated[int, typer.Option("--positions", min=1, help="At most so many of those where the choice matters.")] = 600,
    max_states: Annotated[int, typer.Option("--max-states", min=1, help="Give up beyond so many positions.")] = 1_000_000,
    by_looks: Annotated[
        bool, typer.Option("--by-looks", help="Positions that both players see alike, with the same moves, are one.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the choice of positions.")] = 0,
) -> Answer:
    """Solve a small game exactly, and write graded positions that `azq grade` and the arena use from then on."""
    from azq.config import parse_params
    from azq.console.solve import SolveRequest, solve_text
    from azq.console.solve import solve as command

    values = settings.run.params | parse_params(params or [])
    asked = SolveRequest(game, values, settings.home, endgames, out, positions, max_states, by_looks, seed)
    told = command(asked, lambda line: typer.echo(line, err=True))
    return Answer(told, solve_text(told))
