"""The one way to start azq apart from what is live here: own home, brokers and ports, and only the settings of a command line.

Neither `azq.toml`, a service's credentials nor `AZQ_` variables reach it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from azq.config.loading import APART, parse_overrides
from azq.errors import ConfigError
from azq.games.files import absolute
from azq.process.start import AZQ, PARENT_PIPE, foreign_environment, parent_pipe

OWN_BROKER = ("control_url", "data_url", "data_urls", "public_control_url", "public_data_url", "public_data_urls")
CREDENTIALS = "CREDENTIALS_DIRECTORY"  # of a systemd service, whose azq.env holds addresses and secrets
TOOLS = ("AZQ_LOG", "AZQ_COMMIT", "AZQ_PEERS_PYTHON", "AZQ_PEERS_SCRIPT")  # variables that are no settings and name nothing that is live
NO_SETTING: Mapping[str, str] = {}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Within the block this process, and whatever it starts, is a rehearsal: only what its command line says counts."""
    before = dict(os.environ)
    _become(environment() | {name: before[name] for name in TOOLS if name in before})
    try:
        yield
    finally:
        _become(before)


def own(folder: Path, overrides: Sequence[str] = ()) -> list[str]:
    """Settings of an azq that has `folder` to itself; raises `ConfigError` where `overrides` name another home or brokers."""
    chosen = parse_overrides(overrides)
    broker = chosen.get("broker", {})
    named = [*(name for name in ("home",) if name in chosen), *(f"broker.{name}" for name in OWN_BROKER if name in broker)]
    if named:
        raise ConfigError(f"--set {named[0]}: a rehearsal uses its own home and brokers; leave it out")
    return [f'home="{folder.absolute()}"', "daemon.port=0", *overrides]


def up(
    folder: Path, log: Path, game: str, run: str, overrides: Sequence[str], *options: str,
    env: Mapping[str, str] = NO_SETTING, **process: Any,
) -> subprocess.Popen[Any]:  # fmt: skip
    """Starts `azq up` in its own folder with these settings and options; it ends with this process. `log` gets its output."""
    sets = [word for setting in own(folder, overrides) for word in ("--set", setting)]
    command = [*AZQ, "up", "--json", "--game", absolute(game), "--run", run, *options, *sets]
    return start(command, folder, log, {APART: "1", PARENT_PIPE: "stdin", **env}, stdin=parent_pipe(), **process)


def start(arguments: Sequence[str], folder: Path, log: Path, env: Mapping[str, str] = NO_SETTING, **process: Any) -> subprocess.Popen[Any]:
    """Starts a process in a folder and a new session, with no setting of azq but those in `env`; its output is appended to a log."""
    with log.open("ab") as file:
        streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file, **process}
        return subprocess.Popen(arguments, cwd=folder, env={**_bare(), **env}, start_new_session=True, **streams)


def environment() -> dict[str, str]:
    """What a rehearsal's processes find: this one's environment without settings, tokens or credentials of azq, and that it is one."""
    return _bare() | {APART: "1"}


def _bare() -> dict[str, str]:
    return {name: value for name, value in foreign_environment().items() if name != CREDENTIALS}


def _become(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
