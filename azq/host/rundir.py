"""A run as a folder: `runs/<run>/{run.toml,segments/,checkpoints/,weights/,logs/,tensorboard/}`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azq.config import RunSections, dump_run, parse_run
from azq.config.loading import read_toml, to_toml
from azq.errors import ConfigError, NotFound, meant
from azq.files import make_folders, publish_file

PARTS = ("segments", "checkpoints", "weights", "logs", "tensorboard")


@dataclass(frozen=True, slots=True)
class RunDir:
    home: Path
    name: str

    @property
    def path(self) -> Path:
        """The folder itself, absolute: other processes of this host use it too."""
        return (self.home / self.name).absolute()

    @property
    def settings(self) -> Path:
        return self.path / "run.toml"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def exists(self) -> bool:
        return self.settings.is_file()

    def create(self, sections: RunSections, host: Mapping[str, Any] | None = None) -> None:
        """Makes the folders and writes `run.toml`, and `host.toml` where a preset sets something of the host; each whole at any moment."""
        for part in PARTS:
            make_folder(self.path / part)
        if host:
            publish_file(self.path / "host.toml", to_toml(host).encode())
        publish_file(self.settings, to_toml(dump_run(sections)).encode())

    def values(self) -> dict[str, Any]:
        """The settings as plain values; `NotFound` names the runs there are."""
        if not self.exists():
            others = list_runs(self.home)
            raise NotFound(f"no run {self.name!r} under {self.home}{meant(self.name, others)}; there are: {', '.join(others) or 'none'}")
        return read_toml(self.settings)

    def host_values(self) -> dict[str, Any]:
        """What the run's preset sets of the host that runs it: no address, and nothing that may be loaded or started there."""
        file = self.path / "host.toml"
        settings_read = read_toml(file) if file.is_file() else {}
        broker = {name: value for name, value in settings_read.get("broker", {}).items() if name == "data_shards"}
        return {name: settings_read[name] for name in ("inference",) if name in settings_read} | ({"broker": broker} if broker else {})

    def sections(self) -> RunSections:
        return parse_run(self.values(), str(self.settings))


@contextlib.contextmanager
def naming_folder(home: Path) -> Iterator[None]:
    """Says what goes on from a run's folder here where the control plane does not know the run."""
    try:
        yield
    except NotFound as error:
        run = RunDir(home, error.run)
        if not error.run or not run.exists():
            raise
        goes_on = f"`azq up --run {error.run}` goes on from it, in a fleet `azq runs restore {run.path}` and its learner"
        raise NotFound(f"{error}; its folder {run.path} is there: {goes_on}", error.run) from None


def make_folder(path: Path) -> None:
    """Makes a folder that can be written to, and those above it. Raises `ConfigError` with the remedy."""
    try:
        make_folders(path)
    except OSError as error:
        why = "a file has that name" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise ConfigError(f"cannot make the folder {path}: {why}; give another place with --set home=FOLDER") from None
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raises `ConfigError` for what is no folder that this user may write to."""
    if not path.is_dir():
        raise ConfigError(f"{path} is a file, and a folder is needed there; give another place with --set home=FOLDER")
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"folder {path} cannot be written to by this user; give another place with --set home=FOLDER")


def list_runs(home: Path) -> list[str]:
    return sorted(path.parent.name for path in home.glob("*/run.toml"))


def name_of(game: str) -> str:
    """The default name of a run: the game's, or its class's."""
    return re.sub(r"[^a-z0-9_-]", "-", game.rpartition(":")[2].lower()).strip("-_")
