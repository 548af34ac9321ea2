from __future__ import annotations

from pathlib import Path

import pytest

from azq.config import Config, load
from azq.errors import BrokerAbsent, BrokerUnavailable, ConfigError
from azq.host import brokers
from azq.host.fronts import Listen


def settings(home: Path, *overrides: str) -> Config:
    return load(overrides=[f'home="{home}"', *overrides])


def test_configured_addresses_are_taken_and_one_may_serve_both(tmp_path: Path) -> None:
    found = brokers.resolve(settings(tmp_path, 'broker.control_url="redis://h:1/0"'))
    assert (found.broker.control_url, found.broker.data_url) == ("redis://h:1/0", "redis://h:1/0")
    found = brokers.resolve(settings(tmp_path, 'broker.control_url="redis://h:1/0"', 'broker.data_url="redis://h:2/0"'))
    assert found.broker.data_url == "redis://h:2/0"


def test_without_any_broker_the_remedies_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="azq up"):
        brokers.resolve(settings(tmp_path))


def test_an_embedded_broker_at_rest_asks_for_azq_up(tmp_path: Path) -> None:
    for role in ("control", "data"):
        folder = tmp_path / brokers.BROKER_FOLDER / role
        folder.mkdir(parents=True)
        (folder / "password").write_text("secret")
    with pytest.raises(BrokerAbsent, match=r"nothing runs in .*No such file or directory.*start `azq up`") as caught:
        brokers.open_control(settings(tmp_path))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("words", ["MISCONF Errors writing to the AOF file: No space left on device", "READONLY of a replica"])
def test_an_embedded_broker_that_answers_is_not_called_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BrokerUnavailable(f"broker at there takes no writes: {words}")

    monkeypatch.setattr(brokers, "connect", refuse)
    monkeypatch.setattr(brokers, "resolve", lambda config: config)
    with pytest.raises(BrokerUnavailable, match=f"^broker at there takes no writes: {words}$"):
        brokers.open_control(settings(tmp_path))


def test_a_configured_broker_that_is_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        brokers.open_control(settings(tmp_path, 'broker.control_url="redis://:pw@127.0.0.1:1/0"'))


def test_several_data_planes_are_kept_in_their_order(tmp_path: Path) -> None:
    urls = ("redis://h:2/0", "redis://h:3/0")
    found = brokers.resolve(settings(tmp_path, 'broker.control_url="redis://h:1/0"', f"broker.data_urls={list(urls)}"))
    assert found.broker.data_planes == urls
    assert found.broker.data_url == ""
    with pytest.raises(ConfigError, match="data_url and data_urls are both set"):
        settings(tmp_path, 'broker.data_url="redis://h:1/0"', f"broker.data_urls={list(urls)}")


def test_every_embedded_data_plane_is_found_where_it_was_started(tmp_path: Path) -> None:
    for role in ("control", "data", "data1", "data2"):
        folder = tmp_path / brokers.BROKER_FOLDER / role
        folder.mkdir(parents=True)
        (folder / "password").write_text(f"of-{role}")
    found = brokers.resolve(settings(tmp_path, "broker.data_shards=3")).broker
    assert [url.partition("@")[0].rpartition(":")[2] for url in found.data_planes] == ["of-data", "of-data1", "of-data2"]
    with pytest.raises(ConfigError, match="azq up"):
        brokers.resolve(settings(tmp_path, "broker.data_shards=4"))


def test_commands_beside_azq_up_know_how_many_data_planes_it_started(tmp_path: Path) -> None:
    with brokers.Brokers(settings(tmp_path, "broker.data_shards=2"), tmp_path) as running:
        expected = running.apply(settings(tmp_path)).broker.data_planes
        assert len(expected) == 2
        assert brokers.resolve(settings(tmp_path)).broker.data_planes == expected
    with brokers.Brokers(settings(tmp_path), tmp_path):
        assert len(brokers.resolve(settings(tmp_path, "broker.data_shards=2")).broker.data_planes) == 1


def test_an_address_of_another_machine_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--listen 203.0.113.7: this machine cannot listen there"):
        brokers.Brokers(settings(tmp_path), tmp_path, Listen("203.0.113.7", 6379))
    brokers.check_address("127.0.0.1")
