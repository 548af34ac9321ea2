"""A run's settings in its record."""

from __future__ import annotations

import pytest

from azq.config import LearnerConfig, RunSections
from azq.errors import ConfigError
from azq.ledger.records import plain_sections, record_of, sections_of
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
