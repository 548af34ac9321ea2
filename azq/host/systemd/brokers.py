"""The brokers that run as units of one host: how many data planes, their settings, and the addresses that all services read."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from azq.config import load
from azq.errors import ConfigError
from azq.host.rundir import to_toml
from azq.wire import acl
from azq.wire.keys import Role

CONTROL = "control"
CONTROL_KEY, DATA_KEY, DATA_KEYS = "AZQ_BROKER__CONTROL_URL", "AZQ_BROKER__DATA_URL", "AZQ_BROKER__DATA_URLS"
_OURS = re.compile(r"unix://:([^@]+)@(/run/azq-\w+/broker\.sock)")
TOKEN_NOTE = "# AZQ_DAEMON__TOKEN=... is needed once daemon.host is not a loopback address"


def wanted_count(settings: Path, asked: int | None) -> int:
    """How many data planes this host is to have: `asked`, else broker.data_shards of its azq.toml, else one.

    Raises `ConfigError` where that file has settings and another number: it belongs to the operator.
    """
    kept = load(settings).broker.data_shards if has_settings(settings) else None
    if None not in (asked, kept) and asked != kept:
        raise ConfigError(f"{settings} is kept as it is and has broker.data_shards = {kept}; set {asked} there, then install again")
    return asked or kept or 1


def has_settings(path: Path) -> bool:
    """Whether a file holds more than comments."""
    return path.exists() and any(line.strip() and not line.lstrip().startswith("#") for line in path.read_text("utf-8").splitlines())


def host_settings(count: int, told: Mapping[str, Mapping[str, object]]) -> str:
    """The first azq.toml of a host. `told`: what machines that join have to know."""
    text = "# Settings of this host; `azq config show` lists every key.\n"
    broker = {**({} if count == 1 else {"data_shards": count}), **told.get("broker", {})}
    return f"{text}\n{to_toml({**told, 'broker': broker})}" if broker else text


def conf(role: str) -> str:
    """A server's settings, with a new password; address and folder are given by the unit."""
    durable = "appendonly yes\nappendfsync everysec\nmaxmemory-policy noeviction\n" if role == CONTROL else "appendonly no\n"
    return f'port 0\nprotected-mode yes\nsave ""\n{durable}requirepass {secrets.token_hex(24)}\n'


def password(path: Path) -> str:
    """The password in a server's settings. Raises `ConfigError`."""
    for line in path.read_text("utf-8").splitlines():
        key, _, value = line.partition(" ")
        if key == "requirepass":
            return value.strip()
    raise ConfigError(f"{path} sets no requirepass; add one, or delete the file and install again")


def environment(passwords: Mapping[str, str]) -> str:
    """The addresses of this host's brokers, as `azq.env` has them. `passwords`: by role, the data planes in their order."""
    control = f"{CONTROL_KEY}={_url(CONTROL, passwords[CONTROL])}"
    return "\n".join([control, _data_line(passwords), TOKEN_NOTE, ""])


def renewed(text: str, passwords: Mapping[str, str]) -> str:
    """An `azq.env` whose line of data planes is that of `passwords`; all else is as it was."""
    return "\n".join(_data_line(passwords) if _names_data(line) else line for line in text.split("\n"))


def role_file(role: Role) -> str:
    """What a role's services read in place of `azq.env`, which is the owner's."""
    return f"role-{role}.env"


def role_environment(text: str, role: Role) -> str:
    """An `azq.env` for the services of a role: its user at this host's brokers, and tokens of the REST interface for the daemon alone."""
    kept = [line for line in text.splitlines() if role == "daemon" or not line.strip().startswith("AZQ_DAEMON__TOKEN")]
    user = acl.role_user(role)
    return _OURS.sub(lambda found: f"unix://{user}:{acl.role_password(found[1], role)}@{found[2]}", "\n".join([*kept, ""]))


def leads_elsewhere(text: str) -> bool:
    """Whether an `azq.env` names data planes that are no units of this host."""
    return any(not address.rpartition("@")[2].startswith("/run/azq-") for address in _data_addresses(text))


def is_renewed(text: str, count: int) -> bool:
    """Whether an installation with `count` data planes changes this `azq.env`: only where all that it names are units of this host."""
    addresses = _data_addresses(text)
    return bool(addresses) and len(addresses) != count and not leads_elsewhere(text)


def _data_addresses(text: str) -> list[str]:
    values = [line.partition("=")[2] for line in text.splitlines() if _names_data(line)]
    return [part.strip("[]\"' ") for value in values for part in value.split(",")]


def _names_data(line: str) -> bool:
    return line.partition("=")[0].strip() in (DATA_KEY, DATA_KEYS)


def _data_line(passwords: Mapping[str, str]) -> str:
    urls = [_url(role, password) for role, password in passwords.items() if role != CONTROL]
    return f"{DATA_KEY}={urls[0]}" if len(urls) == 1 else f"{DATA_KEYS}={json.dumps(urls)}"


def _url(role: str, password: str) -> str:
    return f"unix://:{password}@/run/azq-{role}/broker.sock"
