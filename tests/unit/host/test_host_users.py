"""What a child process gets to see: the brokers as its role's user, and its role's secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from azq.config import Config, load
from azq.errors import ConfigError
from azq.host import users
from azq.host.users import as_role, in_roles, knows_roles
from azq.process.start import child_environment, use_config
from azq.wire import acl, keys
from azq.wire.machines import AdmittedMachine

SECRETS = ["daemon.token=hunter2-operate", 'daemon.tokens.ci={token="hunter2-ci"}', 'store.options.secret="for-all"']


def settings(*overrides: str) -> Config:
    return load(None, [*SECRETS, *overrides])


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_addresses_of_the_owner_become_those_of_a_role_and_others_stay() -> None:
    urls = ["unix://:pw@/run/a%20b.sock", "redis://h:1/0", "redis://machine-x:pw@h:2/0", "rediss://default:p%2Fw@[::1]:3/0"]
    broker = as_role(settings(f'broker.control_url="{urls[0]}"', f"broker.data_urls={urls[1:]}"), "worker").broker
    assert broker.control_url == f"unix://azq-worker:{acl.role_password('pw', 'worker')}@/run/a%20b.sock"
    assert broker.data_urls == (urls[1], urls[2], f"rediss://azq-worker:{acl.role_password('p/w', 'worker')}@[::1]:3/0")


def test_a_server_without_password_or_with_a_user_in_its_address_is_taken_as_it_is() -> None:
    for url, known in (("redis://h:1/0", False), ("", False), ("redis://machine-x:pw@h:1/0", True)):
        config = settings(f'broker.control_url="{url}"')
        assert knows_roles(config) is known
        assert in_roles(config)("learner").broker == config.broker


def test_a_child_sees_the_settings_of_its_role_and_nothing_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZQ_DAEMON__TOKEN", "AZQ_DAEMON", "AZQ_STORE__OPTIONS__KEY", "AZQ_JOIN_TOKEN", "AZQ_BROKER__CONTROL_URL"):
        monkeypatch.setenv(name, '"left-over"')
    monkeypatch.setenv("AZQ_LOG", "json")
    monkeypatch.setenv("AZQ_SEARCH__NUM_SIMULATIONS", "7")
    config = Config.model_construct(**{name: getattr(CLEAN, name) for name in Config.model_fields})
    for role in keys.AZQ_ROLES:
        env = child_environment(config, role)
        assert "left-over" not in str(env)
        assert (env["AZQ_LOG"], env["AZQ_SEARCH__NUM_SIMULATIONS"]) == ("json", "7")
        assert ("hunter2-operate" in str(env), "hunter2-ci" in str(env)) == (role == "daemon",) * 2
        assert "for-all" in env["AZQ_STORE"]


def test_a_process_forgets_what_its_role_does_not_need(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ["AZQ_DAEMON__TOKEN"] = "hunter2-operate"
    config = use_config(None, [], "worker")
    assert config.daemon.token.get_secret_value() == "hunter2-operate"  # it was told; its children are not
    assert "hunter2" not in str(os.environ)


def test_who_may_stay_is_whoever_was_let_in_and_has_time_left() -> None:
    known = {"box": AdmittedMachine(("selfplay",), 0, 10), "old": AdmittedMachine(("selfplay",), 0, 9)}
    there = ["default", "azq-worker", "operators", "machine-box", "machine-old", "machine-unknown"]
    assert users.unwelcome(there, known, 9) == {"machine-old", "machine-unknown"}
    assert users.unwelcome(there, known, 10) == {"machine-box", "machine-old", "machine-unknown"}
    assert users.words_of("box", AdmittedMachine(("selfplay", "eval"), 0, 1)) == acl.rules("machine-box", ["worker"])


@pytest.mark.parametrize("url", ["redis://h:1/0", "redis://:short@h:1/0", "redis://machine-x:0123456789abcdef@h:1/0"])
def test_users_are_made_with_the_owners_password_only_and_no_weak_one(url: str) -> None:
    with pytest.raises(ConfigError, match="16 letters"):
        list(users.give_roles(settings(f'broker.control_url="{url}"'), apply=False))


def test_the_roles_of_a_server_are_printed_without_any_password() -> None:
    lines = list(users.give_roles(settings('broker.control_url="redis://:0123456789abcdef@h:1/0"'), apply=False))
    assert lines[0] == "# redis://h:1/0"
    assert [line.split()[1] for line in lines[1:]] == list(map(acl.role_user, acl.ROLES))
    assert "0123456789abcdef" not in str(lines)


CLEAN = settings()
