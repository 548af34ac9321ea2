"""A run's name, and its settings in its record."""

from __future__ import annotations

import pytest

from azq.config import LearnerConfig, RunSections, SelfPlayConfig
from azq.errors import ConfigError
from azq.ledger.records import check_run_name, max_waiting, per_version, plain_sections, record_of, sections_of
from azq.wire.messages import RunRecord


def stored(sections: bytes) -> RunRecord:
    return RunRecord("ttt", sections, {}, "", 0)


def test_settings_come_back_as_they_were_written() -> None:
    sections = RunSections(learner=LearnerConfig(batch_size=7))
    record = record_of("ttt", sections, "runs/ttt", 5, {"games": 3.0})
    assert sections_of(record) == sections
    assert plain_sections(record)["learner"]["batch_size"] == 7
    assert (record.run, record.until, record.directory, record.created_ms) == ("ttt", {"games": 3.0}, "runs/ttt", 5)


def test_settings_of_a_run_that_do_not_fit_name_the_run() -> None:
    assert sections_of(stored(b"{}")).learner.batch_size == 512
    for unreadable in (b"{", b"\xff", b'"\xff"', b"[]"):
        with pytest.raises(ConfigError, match="run 'ttt'"):
            sections_of(stored(unreadable))
        assert plain_sections(stored(unreadable)) == {}
    with pytest.raises(ConfigError, match=r"learner\.batch: unknown key"):
        sections_of(stored(b'{"learner": {"batch": 1}}'))


@pytest.mark.parametrize(
    ("sections", "games"),
    [
        (b'{"selfplay": {"max_waiting_games": 7, "games": 2}}', 7),
        (b'{"learner": {}}', SelfPlayConfig().max_waiting_games),
        (b"noise", SelfPlayConfig().max_waiting_games),
        (b'{"selfplay": {"max_waiting_games": "many"}}', SelfPlayConfig().max_waiting_games),
    ],
)
def test_games_that_may_wait_are_the_settings_or_the_default(sections: bytes, games: int) -> None:
    assert max_waiting(stored(sections)) == games


@pytest.mark.parametrize(("sections", "games"), [(b'{"learner": {"lockstep_games": 7}}', 7), (b'{"learner": {}}', 0), (b"noise", 0)])
def test_games_of_a_version_are_any_number_but_in_lockstep(sections: bytes, games: int) -> None:
    assert per_version(stored(sections)) == games


@pytest.mark.parametrize("name", ["a" * 64, "a-1_b"])
def test_a_run_name_is_itself(name: str) -> None:
    assert check_run_name(name) == name


@pytest.mark.parametrize("name", ["a" * 65, "", "A", "Upper", "a:b", "a}b", "a\n", "../up", "with space"])
def test_what_is_no_run_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="choose another"):
        check_run_name(name)
