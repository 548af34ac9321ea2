"""Joining over TLS: the token vouches for the brokers' certificate before it is sent, and the certificate is kept beside the settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from front_doubles import FrontProcess

from azq.bus import certificate
from azq.bus.embedded import EmbeddedServer
from azq.config import Config, load
from azq.errors import BrokerRefused, BrokerUnavailable, ConfigError
from azq.host import fronts
from azq.host.brokers import Brokers
from azq.host.fronts import Listen, free_port
from azq.host.join.join import Wish, join
from azq.host.join.token import Invitee, Token, invitation, parse_token
from azq.status.brokers import fleet_of
from azq.wire import keys, tls
from azq.wire.codec import encode
from azq.wire.connect import connect


@dataclass(frozen=True)
class First:
    """The first machine."""

    config: Config
    port: int
    brokers: Brokers

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0"

    def token(self) -> Token:
        return parse_token(invitation(self.config, Invitee())["token"])

    def connections(self) -> int:
        return int(self.brokers.control.info("stats")["total_connections_received"])


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[First]:
    """Brokers on unix sockets, with their fronts and a daemon's word of them."""
    tmp_path = tmp_path_factory.mktemp("first")
    port, config = free_port(2), load(overrides=[f'home="{tmp_path}"'])
    with Brokers(config, tmp_path, Listen("127.0.0.1", port)) as brokers, contextlib.ExitStack() as stack:
        for plan in brokers.fronts:
            server = EmbeddedServer("control" if plan.role == "control" else "data", tmp_path / ".broker" / plan.role)
            stack.callback(FrontProcess(server, tmp_path / ".broker", int(plan.address.rpartition(":")[2])).stop)
        brokers.control.set(keys.FLEET, encode(fleet_of(brokers.apply(config))))
        yield First(config, port, brokers)


def wish(first: First, token: Token, **other: object) -> Wish:
    given = {"roles": "selfplay", "folder": first.config.home / "second", "foreground": True, "dry_run": True, **other}
    return Wish(first.url, token=token, **given)  # type: ignore[arg-type]


def ask(wanted: Wish) -> list[str]:
    said: list[str] = []
    assert join(wanted, said.append, lambda joined: None) == 0
    return said


def test_the_servers_themselves_stay_on_their_sockets(first: First) -> None:
    for plane in (first.brokers.control, connect(first.brokers.apply(first.config).broker.data_url)):
        assert plane.info("server")["tcp_port"] == 0
    told = first.brokers.apply(first.config).broker
    assert (told.public_control_url, told.public_data_url) == (first.url, f"rediss://127.0.0.1:{first.port + 1}/0")


def test_the_token_names_the_certificate_and_a_look_finds_the_way(first: First) -> None:
    told = invitation(first.config, Invitee())
    assert told["command"] == f"azq join {first.url}"
    assert first.token().fingerprint == tls.fingerprint(first.brokers.fronts[0].certificate.read_text())
    said = ask(wish(first, first.token()))
    for place in (0, 1):
        assert any(f"rediss://127.0.0.1:{first.port + place}/0 answers" in line for line in said)
    assert any("broker.pem" in line for line in said)
    assert all(first.token().text not in line for line in said)
    assert not (first.config.home / "second").exists()


def test_what_is_written_is_all_it_takes_to_connect(first: First, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Config] = []

    class Idle:
        def __init__(self, of_role: Callable[[str], Config], folder: Path) -> None:
            seen.append(of_role("worker"))

        def run(self, services: object) -> int:
            return 0

    monkeypatch.setattr("azq.host.join.join.MachineWork", Idle)
    folder = tmp_path / "second"
    token = first.token()
    for _ in range(2):  # and again
        ask(wish(first, token, dry_run=False, folder=folder))
    assert (folder / "broker.pem").read_text() == first.brokers.fronts[0].certificate.read_text()
    secrets = dict(line.split("=", 1) for line in (folder / "azq.env").read_text().splitlines())
    for name, value in secrets.items():
        assert "ssl_ca_certs" not in value
        monkeypatch.setenv(name, value)
    by_hand = load(folder / "azq.toml")
    for config in (*seen, by_hand):
        connect(config.broker.control_url).close()
        connect(config.broker.data_url).close()
    assert by_hand.broker.tls_ca == folder / "broker.pem"


def test_a_server_with_another_certificate_never_sees_the_token(first: First) -> None:
    token = first.token()
    unnamed, before = replace(token, fingerprint=""), first.connections()
    with pytest.raises(BrokerRefused, match="so the token was not sent"):
        ask(wish(first, replace(token, fingerprint="0" * 64)))
    assert first.connections() <= before + 1  # that of the handshake, in which nothing was said
    other = certificate.ensure(first.config.home / "other", "127.0.0.1")[0]
    with pytest.raises(BrokerUnavailable, match="certificate"):
        ask(wish(first, unnamed, tls_ca=other))
    with pytest.raises(BrokerUnavailable, match="certificate"):
        ask(wish(first, unnamed))  # the system's authorities do not know it
    assert first.connections() <= before + 1
    assert any("rediss" in line for line in ask(wish(first, unnamed, tls_ca=first.brokers.fronts[0].certificate)))


def test_a_token_for_tls_is_not_sent_in_the_clear(first: First) -> None:
    token = first.token()
    for wanted in (wish(first, token), wish(first, replace(token, fingerprint=""), tls_ca=Path("/none"))):
        with pytest.raises(ConfigError, match="write rediss://"):
            ask(replace(wanted, control_url=f"redis://127.0.0.1:{first.port}/0"))
    with pytest.raises(ConfigError, match="leave --tls-ca out"):
        ask(wish(first, token, tls_ca=Path("/none")))


def test_brokers_of_an_operator_are_known_by_tls_ca(first: First) -> None:
    own = first.brokers.fronts[0].certificate
    control = first.brokers.apply(first.config).broker.control_url
    config = load(overrides=[f'broker.control_url="{control}"', f'broker.public_control_url="{first.url}"', f'broker.tls_ca="{own}"'])
    assert parse_token(invitation(config, Invitee())["token"]).fingerprint == tls.fingerprint(own.read_text())
    assert fronts.own_fingerprint(config, own, "redis://first:6379/0") == ""
    assert fronts.own_fingerprint(load(overrides=['broker.control_url="rediss://h:1/0"']), own, "rediss://h:1/0") == ""
