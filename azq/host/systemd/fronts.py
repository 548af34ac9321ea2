"""The TLS fronts of a host's brokers as units: certificate, addresses, and what its settings tell other machines."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from azq.bus import certificate
from azq.config import load
from azq.host.fronts import Listen, parse_listen
from azq.host.systemd.brokers import CONTROL, has_settings
from azq.host.systemd.steps import WriteFile

CERTIFICATE, KEY = "broker.pem", "broker-key.pem"


def installed(config: Path, asked: str | None) -> Listen | None:
    """Where brokers are to be reached: as asked, else as an installation before this one had it. Raises `ConfigError`."""
    kept = _environment_file(config, CONTROL)
    return parse_listen(asked or (kept.read_text("ascii").strip().removeprefix("LISTEN=") if kept.exists() else None))


def steps(config: Path, listen: Listen | None, roles: Sequence[str]) -> Iterator[WriteFile]:
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
        yield WriteFile(_environment_file(config, role), functools.partial(str, line), 0o644)


def units(listen: Listen | None, roles: Sequence[str]) -> str:
    """The units that the target wants."""
    return "" if listen is None else " ".join(f"azq-front@{role}.service" for role in roles)


def settings(folder: Path, listen: Listen | None, data_brokers: int) -> dict[str, dict[str, object]]:
    """What `azq.toml` tells machines that join: addresses, the certificate that vouches for them, weights where they see them."""
    if listen is None:
        return {}
    data = [listen.url(place) for place in range(1, data_brokers + 1)]
    told: dict[str, object] = {"public_data_url": data[0]} if data_brokers == 1 else {"public_data_urls": data}
    broker = {"public_control_url": listen.url(0), **told, "tls_ca": str(folder / CERTIFICATE)}
    return {"broker": broker, "store": {"url": "redis"}}


def notes(settings_file: Path, listen: Listen | None) -> list[str]:
    """What an operator has to add to settings of his own."""
    if listen is None or not has_settings(settings_file) or load(settings_file).broker.public_control_url:
        return []
    return [
        f"{settings_file} is kept as it is: for other machines to join, broker.public_control_url and the like, broker.tls_ca and "
        'store.url = "redis" have to stand there; docs/5-operations.md has an example'
    ]


def _environment_file(config: Path, role: str) -> Path:
    return config / f"front-{role}.env"
