"""The commands of `azq devices`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from azq.cli.options import Answer, ConfigFile, Overrides, Preset, RunName, with_answer

devices_app = typer.Typer(no_args_is_help=True, help="GPUs and cores of this machine, and what each does.")


@devices_app.command("plan")
@with_answer
def plan(
    game: Annotated[str | None, typer.Option("--game", help="Game to learn; connect_four by default.")] = None,
    run: RunName = None,
    preset: Preset = "",
    overrides: Overrides = None,
    config: ConfigFile = None,
) -> Answer:
    """Show what `azq up` with these options would have each device of this machine do, and why."""
    from azq.console.up import UpRequest, read_start
    from azq.host.devices import Wishes, described
    from azq.host.devices import plan as plan_of
    from azq.host.hardware import detect

    machine = detect()
    found = plan_of(machine, Wishes.of(read_start(UpRequest(game, run, overrides or (), None, config, preset)).config))
    return Answer({"machine": asdict(machine), "plan": asdict(found)}, described(machine, found))
