from __future__ import annotations

import os
from pathlib import Path

import pytest

from azq import config
from azq.errors import ConfigError


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_later_sources_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "azq.toml").write_text("[search]\nnum_simulations = 11\nc_puct = 3.0\n[daemon]\nport = 1\n")
    monkeypatch.setenv("AZQ_DAEMON__PORT", "2")
    monkeypatch.setenv("AZQ_SEARCH__NUM_SIMULATIONS", "12")
    settings = config.load(overrides=["search.num_simulations=13"], base={"search": {"c_puct": 9.0, "c_scale": 0.5}})
    assert settings.search.num_simulations == 13
    assert settings.search.c_puct == 3.0
    assert settings.search.c_scale == 0.5
    assert settings.daemon.port == 2


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["search.simulations=5"], "search.simulations"),
        (["nosuch.key=1"], "nosuch"),
        (["run.params.swap=None"], "None is no value; leave the key out"),
        (["search.num_simulations=0"], "search.num_simulations"),
        (["search.num_simulations"], "section.key=value"),
        (["selfplay.evaluator=magic"], "selfplay.evaluator"),
        (["run.tag=Has Space"], "run.tag"),
        (["search.schedule=[{at=0.5, num_simulations=32}, {at=0.5, num_simulations=64}]"], "search.schedule"),
        (["learner.growth=[{at=0.5, blocks=5, channels=64}]"], "is a setting of earlier versions"),
        (['learner.shard="full"'], "shard = 'full' is a setting of earlier versions"),
        (['learner.compression="powersgd"'], "should be 'none', 'fp16' or 'topk'"),
        (["learner.hidden_weight=1.0"], "hidden_weight = 1.0 is a setting of earlier versions"),
        (["store.chunk_bytes=4096"], "chunk_bytes = 4096 is a setting of earlier versions"),
    ],
)
def test_wrong_settings_are_named_in_one_line(overrides: list[str], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(overrides=overrides)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_without_effect_are_named_once_and_a_recorded_run_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "azq.toml").write_text("[daemon]\nmax_runs = 5\nport = 7\n[learner]\nrank_errors = 3\n")
    monkeypatch.setenv("AZQ_INFERENCE__CLAIM_AFTER_S", "4")
    settings = config.load(tmp_path / "azq.toml", ["store.timeout_s=3"], base={"learner": {"most_ratio": 2.0, "batch_size": 7}})
    assert (settings.daemon.port, settings.learner.batch_size) == (7, 7)
    names = "daemon.max_runs, inference.claim_after_s, learner.rank_errors, store.timeout_s"
    assert [record.getMessage() for record in caplog.records] == [f"settings of earlier versions, without effect: {names}; leave them out"]


def test_a_variable_whose_section_is_misspelt_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZQ_LOG", "AZQ_JOIN_TOKEN", "AZQ_SEARCH__NUM_SIMULATIONS", "XAZQ_SERACH__C_PUCT"):  # settings, or none by their form
        monkeypatch.setenv(name, "3")
    assert config.load().search.num_simulations == 3
    monkeypatch.setenv("AZQ_SERACH__C_PUCT", "3")
    with pytest.raises(ConfigError, match="AZQ_SERACH__C_PUCT names no section; there are: home, broker"):
        config.load()


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "azq.toml").write_text("[search\n")
    with pytest.raises(ConfigError, match=r"azq\.toml"):
        config.load()


def test_a_configuration_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        config.load(tmp_path / "gone.toml")


def test_the_token_never_shows() -> None:
    settings = config.load(overrides=["daemon.token=hunter22"])
    assert "hunter22" not in repr(settings)
    assert settings.daemon.token.get_secret_value() == "hunter22"


@pytest.mark.parametrize(
    "line",
    ["daemon.token=short77", 'daemon.tokens.anna={token="short77"}', 'daemon.tokens.anna={token=""}'],
)
def test_a_token_that_can_be_guessed_is_refused_and_does_not_show(line: str) -> None:
    with pytest.raises(ConfigError, match="a token has at least 8 characters") as refused:
        config.load(overrides=[line])
    assert "short77" not in str(refused.value)


def test_run_sections_survive_plain_values() -> None:
    sections = config.load(overrides=["learner.batch_size=7"]).run_sections()
    assert config.parse_run(config.dump_run(sections), "test") == sections


def test_a_services_credentials_lie_between_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "azq.toml").write_text('[daemon]\nport = 1000\nhost = "127.0.0.9"\n')
    (tmp_path / "azq.env").write_text(
        "# secrets\nAZQ_BROKER__CONTROL_URL=unix://:pw@/run/x.sock\nAZQ_DAEMON__PORT=2000\nAZQ_DAEMON__LEASE_S=3\n"
    )
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("AZQ_DAEMON__LEASE_S", "4")
    settings = config.load(tmp_path / "azq.toml")
    assert settings.broker.control_url == "unix://:pw@/run/x.sock"
    assert (settings.daemon.host, settings.daemon.port, settings.daemon.lease_s) == ("127.0.0.9", 2000, 4.0)


def test_settings_are_taken_out_of_the_environment_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZQ_BROKER", "AZQ_BROKER__CONTROL_URL", "azq_daemon__token", "AZQ_HOME", "AZQ_STORE__OPTIONS__SECRET"):
        monkeypatch.setenv(name, "planted")
    kept = {"AZQ_LOG": "json", "AZQ_PARENT_PID": "7", "AWS_REGION": "x", "MY_AZQ_BROKER": "x"}
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    config.forget_environment()
    assert "planted" not in os.environ.values()
    assert {name: os.environ[name] for name in kept} == kept
