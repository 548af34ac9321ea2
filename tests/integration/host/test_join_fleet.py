"""What a joining machine learns from a real control plane, and what the first machine tells it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from typer.testing import CliRunner

from azq import __version__
from azq.bus import embedded
from azq.bus.redis import RedisBus
from azq.bus.server_program import ServerProgram
from azq.cli.app import app
from azq.config import Config, load
from azq.errors import AccessRefused, BrokerRefused, ConfigError, NotFound, StateConflict
from azq.host.brokers import Brokers, resolve
from azq.host.fronts import Listen, free_port
from azq.host.join.checks import check_fleet, read_fleet
from azq.host.join.join import Wish, join
from azq.host.join.token import Invitee, Token, invitation, parse_token, with_login
from azq.host.users import give_roles, knows_roles, machines_of
from azq.ledger import Ledger
from azq.ledger.types import RunState
from azq.status.brokers import fleet_of
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import agree_on_schema, connect, translate
from azq.wire.kinds import Kind
from azq.wire.machines import AdmittedMachine
from azq.wire.messages import SCHEMA, Job, RunRecord


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[Path, int, redis.Redis]]:
    """Embedded brokers that listen, with a daemon's word of them."""
    port, config = free_port(2), load(overrides=[f'home="{tmp_path}"'])
    with Brokers(config, tmp_path, Listen("127.0.0.1", port, plaintext=True)) as brokers:
        client = connect(brokers.apply(config).broker.control_url)
        client.set(keys.FLEET, encode(fleet_of(brokers.apply(config))))
        yield tmp_path, port, client
        client.close()


def config_of(home: Path) -> Config:
    return load(overrides=[f'home="{home}"'])


def test_listening_brokers_let_a_machine_in_by_its_token(listening: tuple[Path, int, redis.Redis]) -> None:
    home, port, owner = listening
    told = invitation(config_of(home), Invitee("box", ("selfplay",), 2.0))
    assert told["command"] == f"azq join redis://127.0.0.1:{port}/0"
    assert told["name"] == "box"
    token = parse_token(told["token"])
    assert token.user == "machine-box"
    for plane in (port, port + 1):
        connect(with_login(f"redis://127.0.0.1:{plane}/0", token)).close()
        with pytest.raises(BrokerRefused):
            connect(f"redis://127.0.0.1:{plane}/0")
        with pytest.raises(BrokerRefused):
            connect(with_login(f"redis://127.0.0.1:{plane}/0", Token(token.text)))  # it is no password of the owner's
    held: Any = owner.hget(keys.MACHINES, "box")
    kept = decode(held, AdmittedMachine)
    assert (kept.roles, kept.expires_ms - kept.created_ms) == (("selfplay",), 2 * 86_400_000)
    with pytest.raises(StateConflict, match="box was let in before"):
        invitation(config_of(home), Invitee("box"))


def test_a_look_finds_the_way_and_changes_nothing(listening: tuple[Path, int, redis.Redis]) -> None:
    home, port, _ = listening
    token = parse_token(invitation(config_of(home), Invitee())["token"])
    said: list[str] = []
    wish = Wish(f"redis://127.0.0.1:{port}/0", token=token, roles="inference", folder=home / "second", foreground=True, dry_run=True)
    assert join(wish, said.append, lambda joined: None) == 0
    assert any(f"redis://127.0.0.1:{port + 1}/0 answers" in line for line in said)
    assert all(token.text not in line for line in said)
    assert not (home / "second").exists()


def test_a_machine_that_is_sent_away_is_out_at_once(listening: tuple[Path, int, redis.Redis]) -> None:
    home, port, owner = listening
    guests = {name: parse_token(invitation(config_of(home), Invitee(name))["token"]) for name in ("box", "other")}
    clients = {(name, at): connect(with_login(f"redis://127.0.0.1:{at}/0", guests[name])) for name in guests for at in (port, port + 1)}
    with machines_of(resolve(config_of(home))) as machines:
        assert [(seen.name, seen.addresses) for seen in machines.seen()] == [("box", ("127.0.0.1",)), ("other", ("127.0.0.1",))]
        machines.revoke("box")
        assert list(machines.all()) == ["other"]
        with pytest.raises(NotFound, match="there are: other"):
            machines.revoke("box")
    assert {one["user"] for one in owner.client_list()} == {"default", "machine-other"}  # its connections ended
    for (name, _), client in clients.items():
        with client, pytest.raises(AccessRefused) if name == "box" else contextlib.nullcontext(), translate(client):
            client.ping()


def test_a_machine_works_within_its_rights(listening: tuple[Path, int, redis.Redis]) -> None:
    home, port, owner = listening
    token = parse_token(invitation(config_of(home), Invitee("box"))["token"])
    Ledger(owner).create_run(RunRecord("r", b"{}", {}, "x", 1))
    job = Ledger(owner).enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
    with connect(with_login(f"redis://127.0.0.1:{port}/0", token)) as client:
        agree_on_schema(client)
        ledger, bus = Ledger(client), RedisBus(client)
        lease = ledger.claim(job.job.job_id, job.attempt, "box", 30.0)
        assert lease is not None
        (game,) = ledger.adopt(lease, 1)
        ledger.journal(lease, [game])
        record = ledger.run("r").record
        for forbidden in (
            lambda: ledger.create_run(RunRecord("mine", b"{}", {}, "x", 1)),
            lambda: ledger.update_run(record),
            lambda: ledger.set_run_state("r", RunState.PAUSED),
            lambda: client.sadd(keys.RUNS, "mine"),
            lambda: bus.publish(keys.weights("r"), b"frame"),
            lambda: bus.put(keys.blob("0" * 64), b"weights"),
            lambda: bus.put(keys.FLEET, b"frame"),
            lambda: bus.put(keys.DAEMON, b"me"),
            lambda: bus.put(keys.SCHEMA, b"9"),
            lambda: bus.take_replies(keys.reply("machine-other:host:1:1"), timeout_s=0.0),
            lambda: client.hgetall(keys.MACHINES),
            lambda: client.config_get("dir"),
        ):
            with pytest.raises(AccessRefused), translate(client):
                forbidden()
        assert bus.take_replies(keys.reply("machine-box:host:1:1"), timeout_s=0.0) == []
    assert Ledger(owner).run("r").state is RunState.RUNNING
    assert owner.smembers(keys.RUNS) == {b"r"}


def test_an_older_server_goes_on_with_one_password_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "server_at", lambda path: ServerProgram("redis", (6, 2, 0)))
    port, config = free_port(2), config_of(tmp_path)
    with Brokers(config, tmp_path, Listen("127.0.0.1", port, plaintext=True)) as brokers:
        settings = brokers.apply(config)
        assert not knows_roles(settings)
        brokers.control.set(keys.FLEET, encode(fleet_of(settings)))
        told = invitation(config, Invitee("box"))
        assert "share one password" in told["warning"]
        said: list[str] = []
        wish = Wish(
            f"redis://127.0.0.1:{port}/0", token=parse_token(told["token"]), roles="selfplay", folder=tmp_path / "x", foreground=True
        )
        assert join(replace(wish, dry_run=True), said.append, lambda joined: None) == 0
        assert any("allows everything" in line for line in said)
        # The same server, told of users by its owner.
        assert any("has the users azq-daemon" in line for line in give_roles(settings, apply=True))
        assert knows_roles(settings)
        assert parse_token(invitation(config, Invitee("box"))["token"]).user == "machine-box"


def test_time_runs_out_for_a_machine_and_for_users_that_nobody_let_in(listening: tuple[Path, int, redis.Redis]) -> None:
    home, port, owner = listening
    with machines_of(resolve(config_of(home))) as machines:
        _, password = machines.let_in("short", ["selfplay"], 1.0, now_ms=1_000)
        machines.let_in("long", ["selfplay"], 2.0, now_ms=1_000)
        owner.execute_command("ACL", "SETUSER", "machine-stranger", "on", "nopass")
        owner.execute_command("ACL", "SETUSER", "operators-own", "on", "nopass")
        assert machines.expire(1_000 + 86_400_000) == ["short", "stranger"]
        assert machines.expire(1_000 + 86_400_000) == []
        assert list(machines.all()) == ["long"]
    assert {b"machine-long", b"operators-own"} < set(owner.execute_command("ACL", "USERS"))
    with pytest.raises(BrokerRefused):
        connect(with_login(f"redis://127.0.0.1:{port}/0", Token(password, user="machine-short")))


def test_machines_are_known_after_a_restart_with_the_rights_of_now(tmp_path: Path) -> None:
    port, config = free_port(2), config_of(tmp_path)
    with Brokers(config, tmp_path, Listen("127.0.0.1", port, plaintext=True)) as brokers:
        brokers.control.set(keys.FLEET, encode(fleet_of(brokers.apply(config))))
        token = parse_token(invitation(config, Invitee("box"))["token"])
        brokers.control.execute_command("ACL", "SETUSER", "machine-box", "resetkeys", "-@all")  # as an older azq might have had it
        brokers.control.execute_command("ACL", "SAVE")
    with Brokers(config, tmp_path, Listen("127.0.0.1", port, plaintext=True)) as brokers:
        assert brokers.expire(0) == []
        for at in (port, port + 1):
            connect(with_login(f"redis://127.0.0.1:{at}/0", token)).close()
        assert brokers.expire(2**52) == ["box"]
        for at in (port, port + 1):
            with pytest.raises(AccessRefused):
                connect(with_login(f"redis://127.0.0.1:{at}/0", token))


def test_the_owners_commands(listening: tuple[Path, int, redis.Redis]) -> None:
    def azq(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--set", f'home="{listening[0]}"'])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "for machine box (selfplay, eval), 3 days" in azq("join-token", "--name", "box", "--roles", "selfplay,eval", "--days", "3")
    assert azq("fleet", "list").split()[:5] == ["box", "selfplay,eval", "3.0", "days", "left"]
    assert azq("fleet", "expire").strip() == ""
    assert [line.split()[1] for line in azq("fleet", "acl").splitlines() if line.startswith("user ")][:2] == ["azq-daemon", "azq-learner"]
    assert "box is out" in azq("fleet", "revoke", "box")
    assert "no machine was let in" in azq("fleet", "list")


@pytest.mark.parametrize(("token", "words"), [("", "is needed"), ("wrong", "is wrong")])
def test_nobody_joins_without_the_token(listening: tuple[Path, int, redis.Redis], token: str, words: str) -> None:
    with pytest.raises(BrokerRefused, match=words):
        join(Wish(f"redis://127.0.0.1:{listening[1]}/0", token=Token(token)), lambda line: None, lambda joined: None)


def test_a_fleet_of_another_schema_is_refused_and_of_another_version_told(listening: tuple[Path, int, redis.Redis]) -> None:
    _, _, client = listening
    told = read_fleet(client)
    assert told is not None
    assert told.store_url == "redis"  # a folder of the first machine is none of the second's
    assert check_fleet(told).severity == "ok"
    assert check_fleet(msgspec.structs.replace(told, version="9.9")).severity == "warn"
    assert check_fleet(None).severity == "warn"
    client.set(keys.FLEET, msgspec.msgpack.encode((SCHEMA + 1, told)))
    with pytest.raises(StateConflict, match=f"schema {SCHEMA + 1}, this azq speaks {SCHEMA}"):
        read_fleet(client)


def test_several_data_planes_listen_side_by_side_and_are_all_told(tmp_path: Path) -> None:
    port, config = free_port(4), load(overrides=[f'home="{tmp_path}"', "broker.data_shards=3"])
    with Brokers(config, tmp_path, Listen("127.0.0.1", port, plaintext=True)) as brokers:
        settings = brokers.apply(config)
        assert len(set(settings.broker.data_planes)) == 3
        assert len(brokers.pids) == 4
        told = fleet_of(settings)
        assert told.data_urls == tuple(f"redis://127.0.0.1:{port + place}/0" for place in (1, 2, 3))
        assert told.data_url == told.data_urls[0]
        brokers.control.set(keys.FLEET, encode(told))
        token, said = parse_token(invitation(config, Invitee())["token"]), list[str]()
        wish = Wish(f"redis://127.0.0.1:{port}/0", token=token, roles="selfplay", folder=tmp_path / "second", foreground=True, dry_run=True)
        assert join(wish, said.append, lambda joined: None) == 0
        assert all(any(f"redis://127.0.0.1:{port + place}/0 answers" in line for line in said) for place in (1, 2, 3))


def test_brokers_on_unix_sockets_invite_nobody(tmp_path: Path) -> None:
    config = load(overrides=[f'home="{tmp_path}"'])
    with Brokers(config, tmp_path) as brokers:
        told = fleet_of(brokers.apply(config))
        assert (told.control_url, told.data_url, told.version) == ("", "", __version__)
        with pytest.raises(ConfigError, match="--listen"):
            invitation(config, Invitee())


def test_a_server_that_is_configured_says_itself_where_it_listens(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--listen"):
        Brokers(load(overrides=['broker.control_url="redis://h:1/0"']), tmp_path, Listen("127.0.0.1", 6379))
