"""Commands of one machine's end: who watches it, its dead-man timer, and what stops it. Units of systemd call them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import Answer, with_settings

if TYPE_CHECKING:
    from azq.config import Config

machine_app = typer.Typer(no_args_is_help=True, help="What ends this machine: a budget, its provider, its dead-man timer.")

Folder = Annotated[Path, typer.Option("--folder", help="Where the three leave each other notes; its next start finds it empty.")]
NOTES = Path("/run/azq-machine")


@machine_app.command("watch")
@with_settings
def watch(settings: Config, folder: Folder = NOTES) -> None:
    """Say what this machine costs, and ask for its end once its provider takes it back or its fleet is over (azq-machine.service)."""
    from azq.host.ending.units import watch as command
    from azq.process.start import run_main

    raise typer.Exit(run_main("host", lambda: command(settings, folder)))


@machine_app.command("deadman")
@with_settings
def deadman(settings: Config, folder: Folder = NOTES) -> Answer:
    """Ask for this machine's end once its hours are over or no daemon was heard of for too long (azq-deadman.timer); needs no network."""
    from azq.host.ending.deadman import Notes, boot_s

    notes = Notes(folder)
    end = notes.look(settings.machine, boot_s())
    if end is not None:
        notes.ask(end)
    return Answer({"end": end.reason if end else ""}, f"this machine ends: {end.reason}" if end else "this machine goes on")


@machine_app.command("end")
@with_settings
def end(settings: Config, folder: Folder = NOTES) -> Answer:
    """Stop this machine's services in the order that loses nothing, then run machine.poweroff_command (azq-machine-end.service)."""
    from azq.host.ending.units import end as command

    asked = command(settings, folder)
    return Answer({"ended": asked.reason, "off": asked.off}, f"ended: {asked.reason}")
