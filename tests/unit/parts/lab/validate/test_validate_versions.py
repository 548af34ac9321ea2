"""What a validation is set to, and how it is compared."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.config import RunSections, load, parse_run
from azq.errors import ConfigError
from azq.parts.lab.validate.validate import ValidationReport, machine_kind, read_baseline, shipped_baseline
from azq.parts.lab.validate.versions import LockstepVersion, fingerprint, first_difference, lockstep_sections, overrides_of

VERSIONS = [
    LockstepVersion(number, f"hash{number}", 16 * number, 32 * number, f"samples{number}", f"order{number}") for number in range(1, 6)
]


@given(st.integers(0, 4), st.sampled_from(["samples", "order", "hash", "step"]))
def test_the_first_version_that_differs_is_named_with_what_differs(place, field):
    other = list(VERSIONS)
    for index in range(place, 5):
        changed: dict[str, Any] = {"hash": "other", field: 0 if field == "step" else "other"}
        other[index] = replace(VERSIONS[index], **changed)
    found = first_difference("queue", other, VERSIONS)
    assert (found.version, found.differs) == (place + 1, {"hash": "gradients", "step": "missing"}.get(field, field))
    assert first_difference("queue", other[:place], VERSIONS) is None


def test_first_weights_that_differ_are_no_ones_gradients():
    bare = [LockstepVersion(1, "a", 0, 0, "", "")]
    assert first_difference("queue", bare, [replace(bare[0], hash="b")]).differs == "weights"


@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "backgammon", "blob", "beasty_bar", "gomoku", "hex", "othello"])
def test_overrides_say_all_that_weights_follow_from(game, tmp_path):
    sections = lockstep_sections(game, 3, "local")
    config = load(None, [f'home="{tmp_path}"', *overrides_of(sections)])
    assert fingerprint(config.run_sections()) == fingerprint(sections) == fingerprint(lockstep_sections(game, 3, "stream"))
    assert fingerprint(sections) != fingerprint(lockstep_sections(game, 4, "local"))


def test_lockstep_refuses_what_goes_by_the_clock():
    with pytest.raises(ConfigError, match=r"lockstep_games goes with none of learner.lr_drops, search.reuse_subtree"):
        parse_run({"learner": {"lockstep_games": 8}}, "here")
    assert [RunSections().learner.version_for(uid) for uid in (1, 9)] == [0, 0]
    settings = RunSections().learner.model_copy(update={"lockstep_games": 4})
    assert [settings.version_for(uid) for uid in (1, 4, 5, 9)] == [1, 1, 2, 3]


def report(**changes):
    facts: dict[str, Any] = {
        "game": "g",
        "seed": 0,
        "machine": "m",
        "settings": "s",
        "versions": VERSIONS,
        "runs": {},
        "baseline": "agrees",
    }
    return ValidationReport(**facts | {"first_difference": None} | changes)


def test_an_answer_is_a_baseline_for_its_own_kind_of_machine_alone(tmp_path):
    path = tmp_path / "baseline.json"
    path.write_bytes(msgspec.json.encode(report().values()))
    assert read_baseline(path, "g", "m", "s").versions == VERSIONS
    for what, asked in (("machine", ("g", "other", "s")), ("game", ("h", "m", "s")), ("settings", ("g", "m", "t"))):
        with pytest.raises(ConfigError, match=rf"another {what} .*leave --baseline out"):
            read_baseline(path, *asked)
    path.write_text("nonsense")
    with pytest.raises(ConfigError, match="no answer of"):
        read_baseline(path, "g", "m", "s")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_baseline(tmp_path / "none", "g", "m", "s")


def test_shipped_baselines_are_sound_and_found_by_machine_and_settings():
    assert str(shipped_baseline("tic_tac_toe", "an abacus", "s")).startswith("none of tic_tac_toe on this kind of machine")
    sections = lockstep_sections("tic_tac_toe", 0, "local")
    found = shipped_baseline("tic_tac_toe", machine_kind(), fingerprint(sections))
    assert isinstance(found, str) or (found.passed and found.versions[0].games == 0)


def test_a_report_names_where_runs_part():
    other = [*VERSIONS[:3], replace(VERSIONS[3], hash="other", order="other")]
    failed = report(first_difference=first_difference("queue with 4 workers", other, VERSIONS))
    assert (report().passed, failed.passed, failed.values()["hash"]) == (True, False, "hash5")
    assert "queue with 4 workers: version 4 differs, by its order: other, not hash4" in failed.as_text()
