"""The brokers that run as units of one host and their TLS fronts: how many, their settings, and the addresses that services read."""

from __future__ import annotations

import functools
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from azq.bus import certificate
from azq.config import load
from azq.config.host import data_settings
from azq.config.loading import to_toml
from azq.errors import ConfigError
from azq.host.fronts import Listen, parse_listen
from azq.host.machine_end import ending_units
from azq.host.systemd.steps import WriteFile
from azq.wire import acl
from azq.wire.keys import Role

CONTROL = "control"
SETTINGS, ADDRESSES = "azq.toml", "azq.env"
CERTIFICATE, KEY = "broker.pem", "broker-key.pem"
CONTROL_KEY, DATA_KEY, DATA_KEYS = "AZQ_BROKER__CONTROL_URL", "AZQ_BROKER__DATA_URL", "AZQ_BROKER__DATA_URLS"
_OURS = re.compile(r"unix://:([^@]+)@(/run/azq-\w+/broker\.sock)")
TOKEN_NOTE = "# AZQ_DAEMON__TOKEN=... is needed once daemon.host is not a loopback address"


def wanted_count(settings: Path, requested: int | None) -> int:
    """How many data planes this host is to have: `asked`, else broker.data_shards of its azq.toml, else one.

    Raises `ConfigError` where that file has settings and another number: it belongs to the operator.
    """
    lines_left = load(settings).broker.data_shards if has_settings(settings) else None
    if None not in (requested, lines_left) and requested != lines_left:
        raise ConfigError(
            f"{settings} is kept as it is and has broker.data_shards = {lines_left}; set {requested} there, then install again"
        )
    return requested or lines_left or 1


def ending(config: Path) -> tuple[str, ...]:
    """Units of what ends this host, by the settings that are there. Raises `ConfigError`."""
    settings = config / SETTINGS
    loaded = load(settings) if has_settings(settings) else None
    return ending_units(loaded.machine, loaded.budget) if loaded else ()


def has_settings(path: Path) -> bool:
    """Whether a file holds more than comments."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in _text(path).splitlines())


def host_settings(folder: Path, count: int, listen: Listen | None) -> str:
    """The first azq.toml of a host.

    It names the public addresses, the certificate in `folder` that verifies them, and a store that joining machines can read.
    """
    text = "# Settings of this host; `azq config show` lists every key.\n"
    broker: dict[str, object] = {} if count == 1 else {"data_shards": count}
    if listen is None:
        return f"{text}\n{to_toml({'broker': broker})}" if broker else text
    data = [listen.url(place) for place in range(1, count + 1)]
    broker |= {"public_control_url": listen.url(0), **data_settings(data, "public_"), "tls_ca": str(folder / CERTIFICATE)}
    return f"{text}\n{to_toml({'broker': broker, 'store': {'url': 'redis'}})}"


def conf_file(role: str) -> str:
    return f"broker-{role}.conf"


def conf(role: str) -> str:
    """They, with a new password; address and folder are given by the unit."""
    durable = "appendonly yes\nappendfsync everysec\nmaxmemory-policy noeviction\n" if role == CONTROL else "appendonly no\n"
    return f'port 0\nprotected-mode yes\nsave ""\n{durable}requirepass {secrets.token_hex(24)}\n'


def password(path: Path) -> str:
    """The password in a server's settings. Raises `ConfigError`."""
    for line in path.read_text("utf-8").splitlines():
        key, _, value = line.partition(" ")
        if key == "requirepass":
            return value.strip()
    raise ConfigError(f"{path} sets no requirepass; add one, or delete the file and install again")


def environment(config: Path, roles: Sequence[str]) -> str:
    """`azq.env`: the addresses of this host's brokers, with the passwords of their settings, which exist by then.

    `roles`: control first, then the data planes in their order. One that is there keeps all but its line of data planes.
    """
    control, *data = [f"unix://:{password(config / conf_file(role))}@/run/azq-{role}/broker.sock" for role in roles]
    planes = f"{DATA_KEY}={data[0]}" if len(data) == 1 else f"{DATA_KEYS}={json.dumps(data)}"
    if present := _text(config / ADDRESSES):
        return "\n".join(planes if _names_data(line) else line for line in present.split("\n"))
    return "\n".join([f"{CONTROL_KEY}={control}", planes, TOKEN_NOTE, ""])


def renews(config: Path, count: int) -> bool:
    """Whether an installation with `count` data planes changes `azq.env`: only where all that it names are units of this host."""
    addresses = _data_addresses(config)
    return bool(addresses) and len(addresses) != count and not _leads_elsewhere(config)


def role_file(role: Role) -> str:
    """What a role's services read in place of `azq.env`, which is the owner's."""
    return f"role-{role}.env"


_DAEMONS = ("AZQ_DAEMON__TOKEN", "AZQ_NOTICES__")  # what begins so is the daemon's alone


def role_environment(config: Path, role: Role) -> str:
    """`azq.env`, as it is by then, for a role's services: its user at this host's brokers, and what is secret of the daemon's for that."""
    lines = _text(config / ADDRESSES).splitlines()
    lines_left = [line for line in lines if role == "daemon" or not line.strip().startswith(_DAEMONS)]
    user = acl.role_user(role)
    return _OURS.sub(lambda match: f"unix://{user}:{acl.role_password(match[1], role)}@{match[2]}", "\n".join([*lines_left, ""]))


def installed_listen(config: Path, requested: str | None) -> Listen | None:
    """Where brokers are to be reached: as asked, else as an installation before this one had it. Raises `ConfigError`."""
    return parse_listen(requested or _text(_front_file(config, CONTROL)).strip().removeprefix("LISTEN="))


def front_files(config: Path, listen: Listen | None, roles: Sequence[str]) -> Iterator[WriteFile]:
    """What `azq-front@` reads below the folder of settings; nothing where brokers stay on their sockets."""
    if listen is None:
        return

    @functools.cache
    def pair() -> certificate.Pair:
        return certificate.make(certificate.names_of(listen.host))

    whole = (config / CERTIFICATE).exists() and (config / KEY).exists()  # a certificate without its key is of no use
    yield WriteFile(config / KEY, lambda: pair().key, 0o600, keep=whole, secret=True)
    yield WriteFile(config / CERTIFICATE, lambda: pair().certificate, 0o644, keep=whole)
    for place, role in enumerate(roles):
        line = f"LISTEN={listen.host}:{listen.port + place}\n"
        yield WriteFile(_front_file(config, role), functools.partial(str, line), 0o644)


def notes(config: Path, count: int, listen: Listen | None) -> Iterator[str]:
    if renews(config, count):
        yield "the data planes change: `systemctl restart azq.target` starts them and lets every service read the new addresses"
    elif _leads_elsewhere(config):
        yield f"{config / ADDRESSES} names data planes of other hosts and is kept; those of this host are used once it names them"
    settings = config / SETTINGS
    if listen and has_settings(settings) and not load(settings).broker.public_control_url:
        yield (
            f"{settings} is kept as it is: for other machines to join, broker.public_control_url and the like, broker.tls_ca and "
            'store.url = "redis" have to stand there; docs/5-operations.md has an example'
        )


def _leads_elsewhere(config: Path) -> bool:
    """Whether `azq.env` names data planes that are no units of this host."""
    return any(not address.rpartition("@")[2].startswith("/run/azq-") for address in _data_addresses(config))


def _data_addresses(config: Path) -> list[str]:
    return addresses_in(line for line in _text(config / ADDRESSES).splitlines() if _names_data(line))


def addresses_in(lines: Iterable[str]) -> list[str]:
    """The addresses that lines of an `azq.env` give, one each or a list."""
    return [part.strip("[]\"' ") for line in lines for part in line.partition("=")[2].split(",")]


def _names_data(line: str) -> bool:
    return line.partition("=")[0].strip() in (DATA_KEY, DATA_KEYS)


def _front_file(config: Path, role: str) -> Path:
    return config / f"front-{role}.env"


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""
