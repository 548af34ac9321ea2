"""`azq runs delete`: asks, has the daemon forget a run, and removes its folder where that is asked for and here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from azq.client import Client
from azq.errors import ConfigError, StoreError


def delete_run(client: Client, name: str, files: bool, confirm: Callable[[str], bool]) -> dict[str, Any]:
    """Whether it was deleted, and its files.

    Raises `NotFound`, `StateConflict` while it works, and `ConfigError` where its files are asked for and not here.
    """
    run = client.run(name)
    folder = Path(run.directory)
    if files:
        check_run_folder(folder)
    kept = {"run": name, "deleted": False, "folder": run.directory, "files": False}
    if not confirm(f"forget run {name} ({run.game}, {run.state}): its ledger, jobs, results and history?"):
        return kept
    if files and not confirm(f"and remove {folder} with its games, checkpoints and weights, which nothing brings back?"):
        return kept
    client.delete_run(name)
    if files:
        _remove(folder)
    return {**kept, "deleted": True, "files": files}


def check_run_folder(folder: Path) -> None:
    """Raises `ConfigError` for what is no folder of a run on this host."""
    if folder.is_symlink() or not folder.is_absolute() or not (folder / "segments").is_dir():
        raise ConfigError(f"{folder} is no folder of a run on this host; give --files on the host that has it, or remove it by hand")


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise StoreError(f"the run is forgotten, and {folder} cannot be removed ({error.strerror or error}); remove it by hand") from None
