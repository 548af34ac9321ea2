"""What a joining machine learns from a real control plane, and what the first machine tells it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
import redis

from azq import __version__
from azq.bus.connect import connect
from azq.config import load
from azq.console.brokers import Brokers
from azq.console.fronts import Listen
from azq.console.join import Wish, invitation, join
from azq.console.join.checks import check_fleet, read_fleet
from azq.console.join.token import Token
from azq.errors import BrokerRefused, ConfigError, StateConflict
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import SCHEMA
from daemon.invitation import fleet_of


def free_port(beside: int = 1) -> int:
    """A port that is free together with the next ones."""
    for _ in range(50):
        with socket.socket() as first, contextlib.ExitStack() as others:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                for place in range(1, beside + 1):
                    others.enter_context(socket.socket()).bind(("127.0.0.1", port + place))
                return port
    raise AssertionError("no two free ports side by side")


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[Path, int, redis.Redis]]:
    """Embedded brokers that listen, with a daemon's word of them."""
    port, config = free_port(), load(overrides=[f'home="{tmp_path}"'])
    with Brokers(config, tmp_path, Listen("127.0.0.1", port, plaintext=True)) as brokers:
        client = connect(brokers.apply(config).broker.control_url)
        client.set(keys.FLEET, encode(fleet_of(brokers.apply(config))))
        yield tmp_path, port, client
        client.close()


def test_listening_brokers_have_one_token_and_invite(listening: tuple[Path, int, redis.Redis]) -> None:
    home, port, _ = listening
    told = invitation(load(overrides=[f'home="{home}"']))
    assert told["command"] == f"azq join redis://127.0.0.1:{port}/0"
    for plane in (port, port + 1):
        connect(f"redis://:{quote(told['token'], safe='')}@127.0.0.1:{plane}/0").close()
        with pytest.raises(BrokerRefused):
            connect(f"redis://127.0.0.1:{plane}/0")


def test_a_look_finds_the_way_and_changes_nothing(listening: tuple[Path, int, redis.Redis]) -> None:
    home, port, _ = listening
    token = Token(invitation(load(overrides=[f'home="{home}"']))["token"])
    said: list[str] = []
    wish = Wish(f"redis://127.0.0.1:{port}/0", token=token, roles="inference", folder=home / "second", foreground=True, dry_run=True)
    assert join(wish, said.append, lambda joined: None) == 0
    assert any(f"redis://127.0.0.1:{port + 1}/0 answers" in line for line in said)
    assert all(token.text not in line for line in said)
    assert not (home / "second").exists()


@pytest.mark.parametrize(("token", "words"), [("", "is needed"), ("wrong", "is wrong")])
def test_nobody_joins_without_the_token(listening: tuple[Path, int, redis.Redis], token: str, words: str) -> None:
    with pytest.raises(BrokerRefused, match=words):
        join(Wish(f"redis://127.0.0.1:{listening[1]}/0", token=Token(token)), lambda line: None, lambda joined: None)


def test_a_fleet_of_another_schema_is_refused_and_of_another_version_told(listening: tuple[Path, int, redis.Redis]) -> None:
    _, _, client = listening
    told = read_fleet(client)
    assert told is not None
    assert told.store_url == "redis"  # a folder of the first machine is none of the second's
    assert check_fleet(told).verdict == "ok"
    assert check_fleet(msgspec.structs.replace(told, version="9.9")).verdict == "warn"
    assert check_fleet(None).verdict == "warn"
    client.set(keys.FLEET, msgspec.msgpack.encode((SCHEMA + 1, told)))
    with pytest.raises(StateConflict, match=f"schema {SCHEMA + 1}, this azq speaks {SCHEMA}"):
        read_fleet(client)


def test_several_data_planes_listen_side_by_side_and_are_all_told(tmp_path: Path) -> None:
    port, config = free_port(3), load(overrides=[f'home="{tmp_path}"', "broker.data_shards=3", "broker.shards_per_run=2"])
    with Brokers(config, tmp_path, Listen("127.0.0.1", port, plaintext=True)) as brokers:
        settings = brokers.apply(config)
        assert len(set(settings.broker.data_planes)) == 3
        assert len(brokers.pids) == 4
        told = fleet_of(settings)
        assert told.data_urls == tuple(f"redis://127.0.0.1:{port + place}/0" for place in (1, 2, 3))
        assert (told.data_url, told.shards_per_run) == (told.data_urls[0], 2)
        brokers.control.set(keys.FLEET, encode(told))
        token, said = Token(invitation(config)["token"]), list[str]()
        wish = Wish(f"redis://127.0.0.1:{port}/0", token=token, roles="selfplay", folder=tmp_path / "second", foreground=True, dry_run=True)
        assert join(wish, said.append, lambda joined: None) == 0
        assert all(any(f"redis://127.0.0.1:{port + place}/0 answers" in line for line in said) for place in (1, 2, 3))


def test_brokers_on_unix_sockets_invite_nobody(tmp_path: Path) -> None:
    config = load(overrides=[f'home="{tmp_path}"'])
    with Brokers(config, tmp_path) as brokers:
        told = fleet_of(brokers.apply(config))
        assert (told.control_url, told.data_url, told.version) == ("", "", __version__)
        with pytest.raises(ConfigError, match="--listen"):
            invitation(config)


def test_a_server_that_is_configured_says_itself_where_it_listens(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--listen"):
        Brokers(load(overrides=['broker.control_url="redis://h:1/0"']), tmp_path, Listen("127.0.0.1", 6379))
