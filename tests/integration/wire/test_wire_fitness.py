"""Real servers that are no brokers for azq: everybody who would work with one refuses it, and those that merely hide something serve."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from bare_servers import bare_server

from azq.bus.embedded import EmbeddedServer
from azq.bus.server_program import candidates
from azq.config import Config, load
from azq.console.doctor import examine
from azq.errors import BrokerUnavailable, ConfigError
from azq.host.brokers import Brokers
from azq.host.join.checks import check_broker
from azq.wire import acl
from azq.wire.connect import connect, open_client
from azq.wire.fitness import admit, facts_of, judge

SOUND = ("--appendonly", "yes")
EVICTS = (*SOUND, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
CLUSTER = (*SOUND, "--cluster-enabled", "yes")
NEVER = {"evicts": (EVICTS, "set noeviction"), "cluster": (CLUSTER, "cluster mode")}
PROGRAMS = sorted(set(candidates()))


@pytest.fixture(scope="module", params=NEVER)
def unfit(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The URL of a server that azq never works with, and words of the reason."""
    options, words = NEVER[request.param]
    with bare_server(PROGRAMS[0], *options) as url:
        if request.param == "cluster":
            with contextlib.closing(connect(url)) as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        yield url, words


def _worker(config: Config) -> None:
    from workers.worker import main

    main(config, ["selfplay.cpu"], 1)


def _inference(config: Config) -> None:
    from workers.inference import main

    main(config)


def _learner(config: Config) -> None:
    from workers.learner import main

    main(config, "ttt")


def _gateway(config: Config) -> None:
    from azq.parts.volunteers.main import main

    main(config)


def _daemon(config: Config) -> None:
    from daemon.main import main

    main(config, lambda: pytest.fail("it serves"))


def _up(config: Config) -> None:
    config.home.mkdir(exist_ok=True)
    with Brokers(config, config.home):
        pass


def _doctor(config: Config) -> None:
    if failed := [check.evidence for check in examine(config) if (check.rule, check.severity) == ("control", "fail")]:
        raise ConfigError(failed[0])


Entry = Callable[[Config], None]
ENTRIES: tuple[Entry, ...] = (_worker, _inference, _learner, _gateway, _daemon, _up, _doctor)


@pytest.mark.parametrize("enter", ENTRIES)
def test_everybody_refuses_a_control_plane_that_never_works(enter: Entry, unfit: tuple[str, str], tmp_path: Path) -> None:
    url, words = unfit
    with pytest.raises(ConfigError, match=words):
        enter(settings(tmp_path, url))


@pytest.mark.parametrize("unfit", ["cluster"], indirect=True)
@pytest.mark.parametrize("enter", [_worker, _inference, _up])
def test_nobody_sends_evaluations_to_a_cluster(enter: Entry, broker: Any, unfit: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cluster mode"):
        enter(settings(tmp_path, broker.control_url, unfit[0]))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
@pytest.mark.parametrize("hidden", ["INFO", "CONFIG"])
def test_a_server_that_hides_a_command_serves(program: Path, hidden: str) -> None:
    with bare_server(program, *SOUND, "--rename-command", hidden, "") as url, contextlib.closing(connect(url)) as client:
        admit(client)
        found = [check for check in check_broker(client, "control") if "CVE" not in check.evidence]  # an old server of the distribution
        assert {check.severity for check in found} <= ({"ok", "warn"} if hidden == "INFO" else {"ok"})
        assert not client.dbsize()  # to look changes nothing


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ((), "advice"),
        (EVICTS, "never"),
        ((*CLUSTER, "--rename-command", "INFO", ""), "never"),
        ((*SOUND, "--replicaof", "127.0.0.1", "1"), "passing"),
        ((*SOUND, "--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "no"), "away"),
        ((*SOUND, "--min-replicas-to-write", "1"), "passing"),
        ((*SOUND, "--maxmemory", "1"), "full"),
        ((*SOUND, "--rename-command", "EVAL", ""), "refused"),
    ],
)
def test_what_servers_answer_is_understood(program: Path, options: tuple[str, ...], verdict: str) -> None:
    with bare_server(program, *options) as url, contextlib.closing(open_client(url)) as client:
        if verdict == "away":
            with pytest.raises(BrokerUnavailable, match="primary"):
                facts_of(client)
        else:
            assert judge(facts_of(client), "control", "here").verdict == verdict


def test_a_replica_refuses_until_it_is_the_primary(tmp_path: Path) -> None:
    with bare_server(PROGRAMS[0], *SOUND, "--replicaof", "127.0.0.1", "1") as url:
        with pytest.raises(BrokerUnavailable, match="read only replica"):
            _worker(settings(tmp_path, url))
        with contextlib.closing(connect(url)) as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
            admit(client)


def test_every_role_may_ask(tmp_path: Path) -> None:
    server = EmbeddedServer("control", tmp_path / "control")
    server.start()
    try:
        for role in (role for role in acl.ROLES if role != "flower"):
            user, password = acl.role_user(role), acl.role_password(server.password, role)
            url = f"unix://{user}:{quote(password, safe='')}@{server.socket}"
            with contextlib.closing(connect(url)) as client:
                found = facts_of(client)
                assert found.info
                assert judge(found, "control", "here").verdict == "sound", role
    finally:
        server.stop()


def settings(folder: Path, control_url: str, data_url: str = "") -> Config:
    chosen = [f'home="{folder / "home"}"', "daemon.port=0", "gateway.port=0", f'broker.control_url="{control_url}"']
    return load(None, [*chosen, *([f'broker.data_url="{data_url}"'] if data_url else [])])
