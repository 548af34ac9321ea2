"""`azq sweep`: better settings by search."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import Answer, with_settings
from azq.errors import MissingExtra
from azq.process.interrupts import end_as_ctrl_c

if TYPE_CHECKING:
    from azq.config import Config


@with_settings
def sweep(
    settings: Config,
    file: Annotated[Path, typer.Argument(help=r"The study: `\[study]`, `\[settings]`, `\[space]` (docs/sweeps.md).")],
    look: Annotated[bool, typer.Option("--look", help="Only what is known so far.")] = False,
    url: Annotated[str, typer.Option("--url", help="The daemon whose dashboard shows the study.")] = "",
    report: Annotated[Path | None, typer.Option("--report", help="Write a page: importance, parallel coordinates, trials.")] = None,
) -> Answer:
    """Search for better settings: a study of runs, resumed where it was left; Ctrl-C ends it safely."""
    if importlib.util.find_spec("optuna") is None:
        raise MissingExtra("azq sweep needs Optuna; `pip install 'azq[sweep]'`, or `pip install optuna`")
    from azq import logs
    from azq.console.report import as_html
    from azq.files import publish_file
    from azq.sweep.plan import read_plan
    from azq.sweep.report import as_sections, as_text, as_values, swept
    from azq.sweep.sweep import open_study

    end_as_ctrl_c()
    logs.setup("sweep", level=logging.WARNING)
    plan = read_plan(file)
    folder = (settings.home / "sweeps" / plan.name).absolute()
    study = open_study(plan, folder) if look else swept(plan, folder, settings, url, lambda said: typer.echo(said, err=True))
    if report:
        publish_file(report, as_html(f"Study {plan.name}", as_sections(plan, study)).encode())
    return Answer(as_values(plan, study), as_text(plan, study) + (f"\n{report}" if report else ""))
