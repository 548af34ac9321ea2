"""`azq drill`: failures rehearsed on a system of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import Answer, AsJson, Overrides, emit, rehearsal, with_answer
from azq.errors import ExitCode
from azq.process.interrupts import end_as_ctrl_c

if TYPE_CHECKING:
    from azq.drill import Rehearsal

drill_app = typer.Typer(no_args_is_help=True, help="Rehearse failures on a system of its own, with proof that nothing was lost.")


Patience = Annotated[float, typer.Option("--patience", min=1.0, help="Times the bounds on time, on a machine with other work.")]


@drill_app.command("list")
@with_answer
def drill_list() -> Answer:
    """The failures that can be rehearsed."""
    from azq.drill import load_all

    scenarios = load_all()
    shown = ("name", "summary", "role", "fault", "within_s")
    facts = [{name: getattr(one, name) for name in shown} for one in scenarios]
    return Answer(facts, [f"{one.name:<29}{one.summary}" for one in scenarios])


@drill_app.command("run")
@rehearsal
def drill_run(
    name: Annotated[str, typer.Argument(help="Drills, separated by commas, or `all`.")] = "all",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Times that each fault is made.")] = 1,
    chaos_minutes: Annotated[float, typer.Option("--minutes", min=0.0, help="Instead: any of them at random for so long.")] = 0.0,
    every_s: Annotated[float, typer.Option("--every", min=0.0, help="With --minutes: seconds from a fault to the next, 0: no rest.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Of what is random.")] = 0,
    patience: Patience = 1.0,
    game: str = "tic_tac_toe",
    as_json: AsJson = False,
    overrides: Overrides = None,
) -> None:
    """Start a system of its own in a temporary folder, hurt it, time its recovery, and prove that nothing was lost."""
    from azq.drill import Chaos, Intent, choose, load_all, rehearse

    end_as_ctrl_c()
    chaos = Chaos(60 * chaos_minutes, every_s) if chaos_minutes else None
    plan = Intent(rounds, game, tuple(overrides or ()), seed, chaos, patience)
    _answer(rehearse(choose(load_all(), name), plan, _tell), as_json)


@drill_app.command("chaos")
@rehearsal
def drill_chaos(
    mtbf_s: Annotated[float, typer.Option("--mtbf-s", min=0.1, help="Mean seconds from a fault to the next, healed or not.")] = 5.0,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.0, help="How long; with --faults: at most. 10 where neither is given.")
    ] = 0.0,
    faults: Annotated[int, typer.Option("--faults", min=0, help="How many faults.")] = 0,
    seed: Annotated[int, typer.Option("--seed", help="The same faults at the same times, as far as who they befall is there.")] = 0,
    patience: Patience = 1.0,
    game: str = "tic_tac_toe",
    as_json: AsJson = False,
    overrides: Overrides = None,
) -> None:
    """Hurt a system of its own at random times, healed or not, and compare the ledger with the disk in between and at the end."""
    from azq.drill import Intent, Storm, weather

    end_as_ctrl_c()
    lasts_s = 60 * minutes if minutes or faults else 600.0
    plan = Intent(game=game, overrides=tuple(overrides or ()), patience=patience)
    _answer(weather(Storm(mtbf_s, faults, lasts_s, seed), plan, _tell), as_json)


def _answer(rehearsal: Rehearsal, as_json: bool) -> None:
    emit(rehearsal.values(), as_json, rehearsal.as_text())
    if not rehearsal.passed():
        raise typer.Exit(int(ExitCode.CRASH))


def _tell(line: str) -> None:
    typer.echo(line, err=True)
