"""A joined machine under systemd: its units, a target without brokers, and their start."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from azq.errors import ConfigError
from azq.host.join.files import FilePlan, Membership, plan_files, plan_text
from azq.host.join.machine import Service
from azq.host.systemd.install import (
    CONFIG_FOLDER,
    SYSUSERS_FILE,
    UNIT_FOLDER,
    Places,
    assets,
    hidden_from_service,
    home_folders,
    installed_version,
    render,
)
from azq.host.systemd.steps import MakeFolder, RunCommand, Step, WriteFile

TEMPLATES = ("azq-inference@.service", "azq-worker@.service")
TARGET, JOINED_TARGET = "azq.target", "joined.target"


def runs_here() -> bool:
    """Whether a systemd is PID 1 and this process may tell it what to do."""
    return Path("/run/systemd/system").is_dir() and os.geteuid() == 0


def read_templates() -> dict[str, str]:
    """The units that a joined machine has, by the name they get."""
    folder = assets() / "systemd"
    named = {name: (folder / name).read_text("utf-8") for name in TEMPLATES}
    return {**named, TARGET: (folder / JOINED_TARGET).read_text("utf-8")}


def check_readable(places: Places) -> None:
    """Raises `ConfigError` where services could not start this azq."""
    if hidden := hidden_from_service((places.prefix, Path(sys.executable).resolve()), home_folders()):
        raise ConfigError(hidden)


def here() -> Places:
    """This installation. A joined machine runs no broker, so none is looked for."""
    return Places(prefix=Path(sys.prefix), server=Path("none"), systemd_version=installed_version(), users=False)


def plan(
    member: Membership, services: Sequence[Service], places: Places, templates: Mapping[str, str], force: bool, root: Path = Path("/")
) -> tuple[list[Step], list[str]]:
    """The steps of a join, in order, and what is to be said of files that stay. `root` is where files are looked for."""
    config, folder = root / CONFIG_FOLDER.relative_to("/"), root / UNIT_FOLDER.relative_to("/")
    files = plan_files(config, member, force)
    for service in services:
        if service.kind == "worker":
            files.append(_sizing(folder, service, force))
    units = [_unit(folder, name, text, places) for name, text in templates.items() if not _keeps_brokers(folder, name)]
    changed = any(plan.step for plan in (*files, *units))
    names = tuple(service.unit for service in services)
    steps: list[Step] = [
        WriteFile(root / SYSUSERS_FILE.relative_to("/"), lambda: f'u {places.user} - "azq" {places.state}\n', 0o644),
        RunCommand(("systemd-sysusers", str(SYSUSERS_FILE))),
        MakeFolder(config, 0o755),
        MakeFolder(folder, 0o755),
        *(file.step for file in (*files, *units) if file.step),
        RunCommand(("systemctl", "daemon-reload")),
        RunCommand(("systemctl", "enable", TARGET, *names)),
        # Services that play by these settings already go on with their games.
        RunCommand(("systemctl", "restart" if changed else "start", TARGET, *names)),
    ]
    return steps, [note for file in files for note in file.notes]


def _sizing(folder: Path, service: Service, force: bool) -> FilePlan:
    text = f"[Service]\nEnvironment=AZQ_WORKER__CONCURRENCY={service.concurrency}\n"
    return plan_text(folder / f"{service.unit}.d" / "concurrency.conf", text, 0o644, force)


def _unit(folder: Path, name: str, template: str, places: Places) -> FilePlan:
    return plan_text(folder / name, render(template, places.variables()), 0o644, force=True)


def _keeps_brokers(folder: Path, name: str) -> bool:
    """The first machine joins its own fleet: its target goes on to hold brokers and daemon."""
    return name == TARGET and (folder / "azq-daemon.service").exists()
