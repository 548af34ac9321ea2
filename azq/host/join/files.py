"""The files that a joined machine keeps: settings and a certificate for everybody to read, addresses with passwords for the owner alone."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azq.errors import StateConflict
from azq.host.rundir import to_toml
from azq.host.systemd.steps import WriteFile
from azq.wire.connect import address

SETTINGS, SECRETS, CERTIFICATE = "azq.toml", "azq.env", "broker.pem"


@dataclass(frozen=True, slots=True)
class Membership:
    """Where the fleet is, with passwords, and what it is agreed on."""

    control_url: str
    data_urls: tuple[str, ...]
    store_url: str
    lease_s: float
    heartbeat_s: float
    heartbeat_life_s: float
    tags: tuple[str, ...] = ()
    shards_per_run: int = 0
    certificate: str = ""  # PEM: what the brokers are verified with
    anchors: str = ""  # the file that it is kept in

    def settings(self) -> str:
        """`azq.toml`, without secrets."""
        values: dict[str, Any] = {
            "broker": {"control_url": address(self.control_url), **self._data(address), **self._trust()},
            "store": {"url": self.store_url},
            "daemon": {"lease_s": self.lease_s},  # of the jobs that this machine claims
            "worker": {"tags": list(self.tags), "heartbeat_s": self.heartbeat_s, "heartbeat_life_s": self.heartbeat_life_s},
        }
        return f"# Written by azq join; the brokers' passwords are in {SECRETS}. `azq config show` lists every key.\n\n{to_toml(values)}"

    def secrets(self) -> str:
        """`azq.env`: the addresses with passwords, over those of `azq.toml`."""
        lines = [f"AZQ_BROKER__CONTROL_URL={self.control_url}"]
        lines += [f"AZQ_BROKER__{name.upper()}={_plain(value)}" for name, value in self._data(str).items() if name != "shards_per_run"]
        return "\n".join(lines) + "\n"

    def overrides(self) -> list[str]:
        """The same as `section.key=value`."""
        data = [f"broker.{name}={json.dumps(value)}" for name, value in self._data(str).items()]
        trust = [f"broker.{name}={json.dumps(value)}" for name, value in self._trust().items()]
        return [f'broker.control_url="{self.control_url}"', *data, *trust]

    def _trust(self) -> dict[str, str]:
        return {"tls_ca": self.anchors} if self.certificate else {}

    def _data(self, shown: Callable[[str], str]) -> dict[str, Any]:
        """The settings that name the data planes; one plane has its own key."""
        if len(self.data_urls) == 1:
            return {"data_url": shown(self.data_urls[0])}
        return {"data_urls": [shown(url) for url in self.data_urls], "shards_per_run": self.shards_per_run}


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A file that is to be: the step that writes it, or None where it stays, and what is said of that."""

    path: Path
    step: WriteFile | None
    notes: tuple[str, ...] = ()


def plan_files(folder: Path, member: Membership, force: bool) -> list[FilePlan]:
    """The files below a folder. One that is there and differs stays as it is, and the difference is shown, unless `force`.

    Raises `StateConflict` where the secrets that are there lead to other brokers: nothing here would work for this fleet then.
    """
    secrets, settings = folder / SECRETS, folder / SETTINGS
    return [
        _plan(secrets, member.secrets(), 0o600, force, secret=True),
        # The token vouched for it today, whatever was there before.
        *([plan_text(folder / CERTIFICATE, member.certificate, 0o644, force=True)] if member.certificate else []),
        _plan(settings, member.settings(), 0o644, force, secret=False),
    ]


def plan_text(path: Path, wanted: str, mode: int, force: bool) -> FilePlan:
    """A file of no secret."""
    return _plan(path, wanted, mode, force, secret=False)


def _plan(path: Path, wanted: str, mode: int, force: bool, *, secret: bool) -> FilePlan:
    there = _read(path)
    step = WriteFile(path, lambda: wanted, mode, secret=secret)
    if there is None or (secret and not _addresses(there)):
        return FilePlan(path, step)
    if _meaning(there) == _meaning(wanted):
        return FilePlan(path, None, (f"{path} is as it should be",))
    if force:
        return FilePlan(path, step, (f"{path} is replaced",))
    if secret:
        raise StateConflict(f"{path} leads to {' and '.join(_addresses(there))}, with other passwords or addresses; --force replaces it")
    return FilePlan(path, None, (f"{path} is kept; --force would change it:", *difference(there, wanted)))


def difference(there: str, wanted: str) -> Sequence[str]:
    """The lines that differ, as `-` there and `+` wanted."""
    lines = difflib.unified_diff(_meaning(there), _meaning(wanted), lineterm="", n=0)
    return [f"    {line}" for line in lines if not line.startswith(("---", "+++", "@@"))]


def _meaning(text: str) -> list[str]:
    """Its lines but for comments and blank ones."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def _addresses(text: str) -> list[str]:
    values = [line.partition("=")[2] for line in _meaning(text) if line.startswith("AZQ_BROKER__")]
    return [address(part.strip("[]\"' ")) for value in values for part in value.split(",")]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StateConflict(f"{path} is there and cannot be read: {error}; mend or move it") from None
