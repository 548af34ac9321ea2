"""The rights that a server gives each role are those of the table of keys, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

from azq.bus.embedded import EmbeddedServer
from azq.wire import acl, keys
from azq.wire.connect import connect

MACHINE = acl.machine_user("box")
OTHER = acl.machine_user("other")
REAL = {
    "<what>": "load@h:cpu",
    "{run}": "{ttt}",
    "<number>": "7",
    "<name>": "abc",
    "<sha256>": "0" * 64,
    "<worker>": "selfplay.cpu-1@host",
    "<period>": "2026-11",
    "<kind>": "selfplay",
    "<tag>": "cpu",
    "[^_]<asker>": "4a5b.reply",
    "<asker>": "4a5b",
    "<binding>": "binding.reply",
    "<step>": "\x06\x163",
}
WRITES: dict[str, tuple[str, ...]] = {
    "list": ("RPUSH", "1"),
    "set": ("SADD", "1"),
    "hash": ("HSET", "1", "1"),
    "zset": ("ZADD", "1", "1"),
    "stream": ("XADD", "*", "1", "1"),
    "string": ("SET", "1"),
    "none": ("SETRANGE", "0", ""),
}
FORBIDDEN = (
    ("CONFIG", "GET", "dir"),
    ("CONFIG", "SET", "dir", "/tmp"),
    ("DEBUG", "SLEEP", "0"),
    ("MODULE", "LIST"),
    ("SHUTDOWN", "NOSAVE"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("REPLICAOF", "NO", "ONE"),
    ("SLAVEOF", "NO", "ONE"),
    ("ACL", "WHOAMI"),
    ("KEYS", "*"),
    ("CLIENT", "KILL", "ID", "1"),
    ("CLIENT", "LIST"),
    ("CLIENT", "TRACKING", "ON", "BCAST"),
    ("SCRIPT", "FLUSH"),
    ("SCRIPT", "KILL"),
    ("FUNCTION", "LIST"),
    ("FUNCTION", "FLUSH"),
    ("FUNCTION", "LOAD", "#!lua name=x\nredis.register_function('x', function() end)"),
    ("FCALL", "x", "0"),
    ("COPY", "azq:runs", keys.pool("ttt")),
    ("RESTORE", keys.pool("ttt"), "0", ""),
    ("SUNIONSTORE", keys.held("ttt", 7), "azq:runs"),
    ("MONITOR",),
    ("SAVE",),
    ("BGSAVE",),
    ("BGREWRITEAOF",),
    ("SWAPDB", "0", "1"),
    ("RANDOMKEY",),
    ("LATENCY", "RESET"),
    ("SLOWLOG", "GET"),
)
OF_USERS: dict[str, tuple[keys.Role, ...]] = {**{acl.role_user(role): (role,) for role in acl.ROLES}, MACHINE: ("worker", "inference")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer("control", tmp_path_factory.mktemp("acl") / "control")
    server.start()
    with connect(server.url) as owner:
        owner.execute_command("ACL", "SETUSER", MACHINE, acl.hashed("secret"), *acl.rules(MACHINE, OF_USERS[MACHINE]))
        owner.execute_command("ACL", "SETUSER", "plain", "on", acl.hashed("secret"), "~azq:{*}:", "+@all")
    yield server
    server.stop()


def client_of(server: EmbeddedServer, user: str) -> redis.Redis:
    password = "secret" if user in (MACHINE, "plain") else acl.role_password(server.password, *OF_USERS[user])
    return connect(server.url.replace("unix://:", f"unix://{user}:").replace(server.password, password))


def may(client: redis.Redis, *command: str) -> bool:
    """Whether the server lets a command through, be it that it finds nothing or another type."""
    try:
        client.execute_command(*command)
    except NoPermissionError:
        return False
    except ResponseError as error:
        return "acl failure" not in str(error).lower()
    return True


def wanted(user: str, key: keys.Key, client_name: str) -> set[str]:
    mine = client_name == user
    return {letter for role in OF_USERS[user] if mine or key.rights.get(role) != "own" for letter in acl.rights_of(key, role)}


@pytest.mark.parametrize("user", OF_USERS)
def test_each_role_reads_writes_and_ends_what_the_table_says(server: EmbeddedServer, user: str) -> None:
    """And writes nothing that would give a key another type: by no command of another one, whatever lies there."""
    with client_of(server, user) as client:
        for key in keys.TABLE:
            types = {key.type} - {"any"}
            for owner in {user, OTHER}:
                name = key.pattern.replace("<client>", f"{owner}:host:1:1")
                for mark, text in REAL.items():
                    name = name.replace(mark, text)
                assert "<" not in name, name
                asked = {kind: (command, name, *values) for kind, (command, *values) in WRITES.items()}
                written = {kind for kind, command in asked.items() if may(client, *command)}
                found = {letter for letter, command in (("r", "GET"), ("x", "UNLINK")) if may(client, command, name)}
                assert found == wanted(user, key, owner) - {"w"}, (user, name)
                assert written == (types if "w" in wanted(user, key, owner) else set()), (user, name)
                assert may(client, "RENAME", name, name) == (user == "azq-daemon" and "x" in found)


def test_keys_that_are_not_in_the_table_are_nobodys(server: EmbeddedServer) -> None:
    for user in OF_USERS:
        with client_of(server, user) as client:
            for name in ("azq:other", "azq:{ttt}:runs", "azq:{ttt}:learner_", "azq", "else"):
                assert not may(client, "GET", name)
                assert not may(client, "SET", name, "1")


@pytest.mark.parametrize("user", OF_USERS)
def test_nobody_but_the_owner_touches_the_server(server: EmbeddedServer, user: str) -> None:
    with connect(server.url) as owner:

        def lets(*command: str) -> bool:
            return bool(owner.execute_command("ACL", "DRYRUN", user, *command) == b"OK")

        assert [command for command in FORBIDDEN if lets(*command)] == []
        assert lets("SCAN", "0") == (user == acl.role_user("daemon"))
        assert all(lets(*command) for command in (("PING",), ("TIME",), ("INFO", "server"), ("CLIENT", "SETINFO", "LIB-NAME", "x")))


@pytest.mark.parametrize("user", OF_USERS)
def test_a_script_may_do_what_its_caller_may(server: EmbeddedServer, user: str) -> None:
    """Declared is the run's prefix alone; each call within is judged by itself, in a function that only the owner may load too."""
    write = "redis.call('HSET', keys[1] .. 'run', 'record', 'x')"
    code = f"#!lua name=azq\nredis.register_function('azq_try', function(keys) {write} end)"
    with client_of(server, user) as client, connect(server.url) as owner:
        is_daemon = user == acl.role_user("daemon")
        assert may(client, "EVAL", f"local keys = KEYS {write}", "1", keys.run_prefix("ttt")) == is_daemon
        owner.function_load(code, replace=True)
        owner.execute_command("ACL", "SETUSER", user, "+fcall")
        assert may(client, "FCALL", "azq_try", "1", keys.run_prefix("ttt")) == is_daemon
        owner.execute_command("ACL", "SETUSER", user, "-fcall")


def test_celerys_channels_are_for_those_who_tell_and_those_who_watch(server: EmbeddedServer) -> None:
    for user, tells, watches, asks, answers in (
        (MACHINE, True, False, False, True),
        ("azq-worker", True, False, False, True),
        ("azq-flower", False, True, True, False),
        ("azq-daemon", True, False, False, False),
        ("azq-gateway", True, False, False, False),
        ("azq-learner", False, False, False, False),
    ):
        for words, may_do in (
            (("PUBLISH", "azq./0.celeryev/worker.heartbeat", "x"), tells),
            (("PSUBSCRIBE", "azq./0.celeryev/*"), watches),
            (("LLEN", "azq.celeryev.x"), watches),
            (("PUBLISH", "azq./0.celery.pidbox", "x"), asks),
            (("PSUBSCRIBE", "azq./0.celery.pidbox"), answers),
            (("PUBLISH", "azq./0.else", "x"), False),
            (("PSUBSCRIBE", "*"), False),
        ):
            with client_of(server, user) as client:
                assert may(client, *words) == may_do, (user, words)


def test_users_outlive_the_server_and_only_machines_are_kept(tmp_path: Path) -> None:
    server = EmbeddedServer("control", tmp_path / "control")
    server.start()
    with connect(server.url) as owner:
        owner.execute_command("ACL", "SETUSER", MACHINE, acl.hashed("secret"), *acl.rules(MACHINE, ["worker"]))
        owner.execute_command("ACL", "SETUSER", "stranger", "on", "nopass", "~*", "+@all")
        owner.execute_command("ACL", "SAVE")
    server.stop()
    assert (tmp_path / "control" / "users.acl").stat().st_mode & 0o777 == 0o600
    assert server.password not in (tmp_path / "control" / "users.acl").read_text()
    server.start()
    with connect(server.url) as owner:
        users = {name.decode() for name in owner.execute_command("ACL", "USERS")}
    server.stop()
    assert users == {keys.OWNER, MACHINE, *map(acl.role_user, acl.ROLES)}
