"""The token that a home has of its own: made once, private, and only where no other is set."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from azq.config import Config, load
from azq.config.access import TOKEN_FILE, has_operator, read_token, with_own_token
from azq.errors import ConfigError
from azq.process.start import machine_environment
from azq.wire import acl
from daemon.api.access import Keyring


def config_of(home: Path, *lines: str) -> Config:
    return load(None, [f'home="{home}"', *lines])


def secret(config: Config) -> str:
    return config.daemon.token.get_secret_value()


def test_it_is_made_once_for_its_user_alone(tmp_path: Path) -> None:
    home = tmp_path / "runs"
    config = config_of(home)
    assert secret(with_own_token(config)) == ""
    assert not home.exists()
    token = secret(with_own_token(config, make=True))
    assert len(token) >= 24
    assert secret(with_own_token(config, make=True)) == secret(with_own_token(config)) == token
    assert (home / TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in home.iterdir()] == [TOKEN_FILE]
    assert token not in f"{with_own_token(config)!r}"
    assert not any(
        token in str(machine_environment(config, role)) for role in acl.ROLES
    )  # children read the file, foreign code among them does not


def test_all_who_make_it_at_once_have_the_same(tmp_path: Path) -> None:
    config, found = config_of(tmp_path), list[str]()
    threads = [threading.Thread(target=lambda: found.append(secret(with_own_token(config, make=True)))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found))) == (16, 1)


@pytest.mark.parametrize("line", ['daemon.token="chosen-by-hand-1"', 'daemon.tokens.anna={ token = "token-of-anna", scope = "operate" }'])
def test_a_token_that_is_set_wins(tmp_path: Path, line: str) -> None:
    config = config_of(tmp_path, line)
    assert has_operator(config.daemon)
    assert with_own_token(config, make=True) is config
    assert not (tmp_path / TOKEN_FILE).exists()


def test_one_for_those_who_watch_leaves_it_to_the_user_of_the_host(tmp_path: Path) -> None:
    config = with_own_token(config_of(tmp_path, 'daemon.tokens.grafana={ token = "read-by-grafana" }'), make=True)
    assert [who.name for who, _ in Keyring.of(config.daemon).entries] == ["daemon.token", "grafana"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_one_that_others_may_read_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    with_own_token(config_of(tmp_path), make=True)
    (tmp_path / TOKEN_FILE).chmod(mode)
    with pytest.raises(ConfigError, match=r"open to other users .*delete it"):
        read_token(tmp_path)


@pytest.mark.parametrize("text", ["", "short", "two words of some length", "ü" * 20, "x" * 300])
def test_what_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / TOKEN_FILE).write_text(text)
    (tmp_path / TOKEN_FILE).chmod(0o600)
    with pytest.raises(ConfigError, match="delete it"):
        with_own_token(config_of(tmp_path), make=True)


def test_a_home_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be"):
        with_own_token(config_of(tmp_path / "file"), make=True)
