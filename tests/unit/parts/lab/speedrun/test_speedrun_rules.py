"""Entries and tracks as their files say them, records by an exact test, and which versions of a run are examined."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from commands import azq_here

from azq.arena.engines.solver import SolverPlayer
from azq.config import load, parse_overrides
from azq.errors import ConfigError, EvaluationTimeout, NotFound
from azq.parts.lab.speedrun import claim, exam
from azq.parts.lab.speedrun.rules import SpeedrunEntry, entry_named, judgement, rules_of, shipped
from azq.presets import preset
from azq.ratings import positions
from azq.stats import chance_above

PAGE = Path(__file__).parents[5] / "docs" / "speedrun.md"


@pytest.mark.parametrize("name", shipped())
def test_an_entry_of_azq_fits_its_track_its_preset_and_the_page(name: str) -> None:
    entry = shipped()[name]
    track, _ = rules_of().places(entry)
    chosen = parse_overrides(entry.overrides(track.params, 7))
    assert {section: chosen[section] for section in entry.settings} == entry.settings
    assert load(None, entry.overrides(track.params, 7), preset(track.game, entry.preset)).run.seed == 7
    assert any(f"| `{name}` |" in line and entry.cost in line for line in PAGE.read_text("utf-8").splitlines())


def test_a_wrong_name_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no entry 'connect-four-prset'; did you mean connect-four-preset"):
        entry_named("connect-four-prset")
    (tmp_path / "mine.toml").write_text('track = "chess"\nclass = "two-cores"\nauthor = ""\ndate = ""\nnew = ""\n')
    with pytest.raises(ConfigError, match="track 'chess' is none of connect-four-4"):
        rules_of().places(entry_named(str(tmp_path / "mine.toml")))
    (tmp_path / "mine.toml").write_text('trck = "chess"\n')
    with pytest.raises(ConfigError, match="trck"):
        entry_named(str(tmp_path / "mine.toml"))


def test_a_record_takes_more_than_luck() -> None:
    assert chance_above(1.959964, 1.0) == pytest.approx(0.025, abs=1e-6)
    entry = SpeedrunEntry("t", "c", "a", "d", "new")
    theirs = {"theirs": msgspec.structs.replace(entry, new="old", costs=[5.0, 6.0, 7.0, 8.0, 9.0]), "other": entry}
    assert judgement([1, 2, 3, 4, 4.5], entry, theirs)[:2] == (True, 1 / 252)
    assert judgement([1, 2, 3, 4, 6.5], entry, theirs)[:2] == (False, 4 / 252)
    assert judgement([1, 2, 3, 4, 6.5], entry, {"few": msgspec.structs.replace(theirs["theirs"], costs=[9.0] * 4)})[:2] == (True, None)


class FakeRun:
    """Stands for an `azq.Local` that publishes a version between two looks and ends after the last."""

    def __init__(self, folder: Path, versions: int, end: str = "") -> None:
        self.folder, self._left, self._end = folder, versions, end
        self._weights = folder / "run" / "weights"
        self._weights.mkdir(parents=True)
        self.statuses(0.0)

    @property
    def alive(self) -> bool:
        return self._left > 0

    def statuses(self, within_s: float) -> list[Any]:
        (self._weights / f"{len(list(self._weights.iterdir())) + 1}.safetensors").touch()
        self._left -= 1
        if self._end and not self._left:
            raise EvaluationTimeout(f"azq up ended with exit code 7: {self._end}; see there")
        return []


@pytest.mark.parametrize(
    ("versions", "target", "end", "graded", "ended"),
    [
        (100, 0.25, "", [2, 3, 4], ""),
        (5, 0.01, "", [2, 3, 4, 5], "it was not at 0.01 within 30 minutes"),
        (4, 0.01, "training diverged at step 9", [2, 3], "azq up ended with exit code 7: training diverged at step 9"),
    ],
)
def test_versions_but_the_first_are_examined_up_to_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: int, target: float, end: str, graded: list[int], ended: str
) -> None:
    track = msgspec.structs.replace(rules_of().tracks["connect-four-4"], target=target)
    monkeypatch.setattr(claim, "examine", lambda track, weights, sheet, seed: [1 / int(weights.stem)])
    monkeypatch.setattr(claim, "weight_version", lambda weights: int(weights.stem))
    monkeypatch.setattr(claim, "describe", lambda weights: type("Meta", (), {"step": 1}))
    monkeypatch.setattr(claim, "EXAM_SHARE", 1.0)
    run: Any = FakeRun(tmp_path, versions, end)
    rows, losses, why = claim.followed(run, track, (), [(0.0, 0.0)], 0.0, lambda line: None)
    assert ([row.version for row in rows], losses, why) == (graded, [1 / graded[-1]], ended)


def test_fresh_positions_of_connect_four_are_of_the_make_of_the_shipped_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitbully")
    own = [position for position in positions.load("connect_four") if position.group in ("ME", "MM", "EE")][::20]
    monkeypatch.setattr(positions, "choose", lambda shipped, count, seed: own)
    track = rules_of().tracks["connect-four-4"]
    fresh = exam.sheet_of(track, 1)
    assert sorted(map(exam.kind_of, fresh)) == sorted(map(exam.kind_of, own))
    assert not {position.actions for position in fresh} & {position.actions for position in positions.load("connect_four")}
    with closing(SolverPlayer()) as solver:
        assert [exam.class_of(len(at.actions), max(solver.scores(at.actions).values())) for at in own] == [at.group for at in own]


def test_fresh_turns_of_backgammon_are_graded_in_points() -> None:
    pytest.importorskip("gnubg_nn")
    track = msgspec.structs.replace(rules_of().tracks["backgammon-8"], exam="gnubg:0", count=6)
    fresh = exam.sheet_of(track, 1)
    assert sorted(at.group for at in fresh) == sorted(at.group for at in positions.choose(positions.load("backgammon"), 6, 0))
    assert all(-3.0 <= value <= 3.0 for at in fresh for value in at.moves.values())


def test_the_list_says_what_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exam, "engine", lambda command: None)
    listed = json.loads(azq_here(tmp_path, "speedrun", "list", "--json").stdout)
    assert listed["missing"]["othello-95"] == "its opponent is not here; install gtp-rhino"
    assert listed["entries"]["connect-four-preset"]["class"] == "two-cores"
