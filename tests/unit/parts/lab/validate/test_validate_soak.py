"""What a soak concludes from what it saw, and how it tells."""

import itertools
import math

import numpy as np
import pytest

from azq import games
from azq.parts.lab.validate.soak import Soak, SoakLine, SoakReport, as_markdown, game_figures, slope_per_100, write_report
from azq.parts.lab.validate.validate import play_alone
from azq.parts.lab.validate.versions import lockstep_sections
from azq.replay.readers import SegmentReader
from azq.search.evaluator import Evaluation

LINES = [SoakLine("games lost", 0, most=0), SoakLine("checkpoints <read>", 0, least=1)]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("played")
    sections = lockstep_sections("tic_tac_toe", 0, "local")
    list(itertools.islice(play_alone(sections, folder), 3))
    events = [event for _, event in SegmentReader(folder / "segments").newest(64)]
    return sections.learner, sorted(events, key=lambda event: event.record.uid)


def test_sound_games_keep_all_bounds(played):
    learner, events = played
    figures = game_figures(games.load("tic_tac_toe"), events, learner, 2)
    assert all(line.passed for line in figures.lines)
    assert all(len(curve) == 2 for curve in figures.curves.values())
    assert 5 <= figures.curves["plies of a game"][0] <= 9


def test_games_that_are_missing_or_of_other_weights_are_seen(played):
    learner, events = played
    failed = [line.what for line in game_figures(games.load("tic_tac_toe"), events[1:], learner, 2).lines if not line.passed]
    assert failed == ["versions whose games are not all in the log"]
    fewer = learner.model_copy(update={"lockstep_games": 16})
    failed = [line.what for line in game_figures(games.load("tic_tac_toe"), events, fewer, 4).lines if not line.passed]
    assert failed == ["plies searched with other weights than their version's"]


@pytest.mark.parametrize(("found", "passed"), [(0.5, True), (1.0, True), (1.01, False), (math.nan, False), (-1.0, False)])
def test_a_line_passes_within_its_bounds(found, passed):
    assert SoakLine("x", found, least=0, most=1).passed is passed
    assert SoakLine("x", found, least=0, most=1).bounds == "at least 0 and at most 1"


def test_a_slope_is_told_for_100_versions():
    assert slope_per_100([1.0, 1.5, 2.0, 2.5]) == pytest.approx(50.0)
    assert slope_per_100([3.0]) == 0.0


def test_drift_is_a_bit_that_differs_and_nan_is_seen():
    seen, zeros = Soak(), np.zeros((2, 3), np.float16)
    sound = Evaluation(zeros, zeros[:, :1], 1)
    seen.compare(1, sound, Evaluation(zeros.copy(), zeros[:, :1], 1))
    seen.compare(2, sound, Evaluation(zeros + np.float16(1e-7), zeros[:, :1], 2))
    seen.compare(3, sound, Evaluation(zeros * np.float16(np.nan), zeros[:, :1], 3))
    assert (seen.drifted, seen.finite) == ([2, 3], [True, True, False])


def test_the_report_has_a_line_a_figure_and_a_chart_a_curve(tmp_path):
    report = SoakReport("g", 9, LINES, {"memory of a & b": [1.0, 3.0, 2.0]})
    assert not report.passed
    told = as_markdown(report)
    assert told.splitlines()[-2:] == ["| games lost | 0 | at most 0 | passed |", "| checkpoints <read> | 0 | at least 1 | failed |"]
    write_report(report, tmp_path / "out")
    page = (tmp_path / "out" / "soak.html").read_text()
    assert "checkpoints &lt;read&gt;" in page
    assert page.count("<svg") == page.count("memory of a &amp; b</text>") == 1
    assert (tmp_path / "out" / "soak.md").read_text().startswith("# Soak of g: 9 versions, failed\n")
