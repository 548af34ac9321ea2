"""Whether curves lie within a band: what is called slower or faster, and how seldom that is chance."""

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.errors import AzqError, ConfigError, UnknownGameError
from azq.parts.lab.validate import banded, curve
from azq.parts.lab.validate.banded import BandRequest, check_bands
from azq.parts.lab.validate.bands import Band, BandPoint, SeedCurve, chances_of, cpu_ratio, judge, spread
from azq.parts.lab.validate.curve import PLANS, band_sections, curves_of, plan_of

STEPS = (100, 200, 400)
EMPTY = Band("tic_tac_toe", "m", "s", "here", "c", "p", [])


def a_run(draws, slower_by=0.0):
    """Losses (P,) of a sound run: skewed, each point like the one before, with a seed now and then that learns late."""
    level = draws.gamma(2.0, 0.04) + (0.15 if draws.random() < 0.1 else 0.0)
    return np.clip(np.array([0.8, 0.6, 0.45]) + level + draws.normal(0, 0.03, 3) + slower_by, 0.0, 1.0)


def group(draws, count, slower_by=0.0):
    return np.array([a_run(draws, slower_by) for _ in range(count)])


def curves(losses, first=1, cpu_s=2.0):
    return [
        SeedCurve(first + seed, [BandPoint(step, step, loss, None, cpu_s, "") for step, loss in zip(STEPS, row, strict=True)])
        for seed, row in enumerate(losses.tolist())
    ]


def verdicts(slower_by):
    draws = np.random.default_rng(1)
    band, found = EMPTY.having(curves(group(draws, 12))), EMPTY.having(curves(group(draws, 5, slower_by), 13))
    return [each.verdict for each in judge(band, found)]


@pytest.mark.parametrize(("slower_by", "verdict"), [(0.3, "slower"), (-0.3, "faster"), (0.0, "within")])
def test_a_change_either_way_is_named(slower_by, verdict):
    assert verdicts(slower_by) == [verdict] * 3


def test_false_alarms_are_as_rare_as_said_over_all_points_together():
    draws = np.random.default_rng(2)
    least = [min(chances_of(group(draws, 10), group(draws, 4))) for _ in range(400)]
    assert np.mean(np.array(least) <= 0.05) <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5
    assert np.mean(np.array(least) <= 0.01) <= 0.01 + 3 * (0.01 * 0.99 / 400) ** 0.5


@given(st.integers(0, 99), st.permutations(range(6)), st.floats(0.1, 10.0), st.floats(-1.0, 1.0))
def test_chances_ask_neither_for_the_order_of_seeds_nor_for_units(seed, order, scale, shift):
    draws = np.random.default_rng(seed)
    band, found = group(draws, 6), group(draws, 3)
    expected = chances_of(band, found)
    assert chances_of(scale * band[order] + shift, scale * found + shift) == pytest.approx(expected)
    assert all(0.0 < p <= 1.0 for p in expected)


def test_runs_that_are_all_alike_are_within():
    same = np.full((3, 2), 0.25)
    assert chances_of(same, same) == [1.0, 1.0]


def test_many_seeds_are_dealt_at_random_and_alike_each_time():
    draws = np.random.default_rng(3)
    band, found = group(draws, 20), group(draws, 10, 0.15)
    assert chances_of(band, found) == chances_of(band, found)
    assert max(chances_of(band, found)) < 0.001


def test_the_fastest_and_the_slowest_run_are_dropped():
    losses = np.array([[0.9, 0.9, 0.9], [0.5, 0.4, 0.3], [0.6, 0.5, 0.4], [0.1, 0.1, 0.1]])
    first = spread(curves(losses))[0]
    assert (first.step, round(first.mean, 3), first.low, first.high) == (100, 0.55, 0.5, 0.6)
    slow = EMPTY.having(curves(losses, cpu_s=5.0))
    assert cpu_ratio(EMPTY.having(curves(losses)), slow) == 2.5


class Runs:
    """Stands for the processes: seeds whose curves are made up."""

    def __init__(self, slower_by=0.0):
        self.slower_by, self.ran = slower_by, []

    def __call__(self, game, numbers, processes, tell):
        for seed in numbers:
            self.ran.append(seed)
            yield from curves(group(np.random.default_rng(seed), 1, self.slower_by), seed, 2.0 + 10 * self.slower_by)


@pytest.fixture
def runs(monkeypatch):
    made = Runs()
    monkeypatch.setattr(banded, "curves_of", lambda *arguments: made(*arguments))
    return made


@pytest.fixture
def kept(tmp_path):
    """A band of the first twelve seeds."""
    file = tmp_path / "band.json"
    band = banded._without_curves("tic_tac_toe").having([next(Runs()("tic_tac_toe", [seed], 1, print)) for seed in range(1, 13)])
    file.write_bytes(msgspec.json.encode(band))
    return file


def test_other_seeds_are_judged_and_kept(kept, runs, tmp_path):
    report = check_bands(BandRequest("tic_tac_toe", out=tmp_path / "out", band=kept), print)
    assert runs.ran == [13, 14, 15, 16, 17]
    assert report.passed
    assert "CPU-seconds 1.00 times the band's; passed" in report.as_text()
    check_bands(BandRequest("tic_tac_toe", 6, out=tmp_path / "out", band=kept), print)
    assert runs.ran == [13, 14, 15, 16, 17, 18]
    msgspec.json.encode(report.values())


def test_a_slower_program_fails(kept, runs):
    runs.slower_by = 0.3
    report = check_bands(BandRequest("tic_tac_toe", band=kept), print)
    assert not report.passed
    assert "| slower |" in report.as_text()
    assert report.as_text().count("; failed") == 1


def test_what_does_not_fit_is_one_line_with_the_remedy(kept, runs, tmp_path):
    band = msgspec.json.decode(kept.read_bytes(), type=Band)

    def refused(match, asked=None, **changes):
        kept.write_bytes(msgspec.json.encode(msgspec.structs.replace(band, **changes)))
        with pytest.raises(ConfigError, match=match) as error:
            check_bands(asked or BandRequest("tic_tac_toe", band=kept), print)
        assert "\n" not in str(error.value)

    refused("another settings .*make it again: azq validate --bands tic_tac_toe", settings="old")
    refused("another game", game="hex")
    kept.write_bytes(msgspec.json.encode(msgspec.structs.replace(band, machine="an abacus")))
    assert check_bands(BandRequest("tic_tac_toe", band=kept), print).cpu_ratio is None  # where losses are compared none the less
    refused("4 or more", BandRequest("tic_tac_toe", 3, band=kept))
    refused("blob has no curve to compare: .*azq compare", BandRequest("blob", out=tmp_path))
    refused("no band of tic_tac_toe is at", BandRequest("tic_tac_toe", band=tmp_path / "none"))
    kept.write_text("nonsense")
    with pytest.raises(ConfigError, match="cannot be read"):
        check_bands(BandRequest("tic_tac_toe", band=kept), print)
    with pytest.raises(UnknownGameError):
        check_bands(BandRequest("poker", band=kept), print)


def test_curves_of_another_program_are_not_gone_on_with(kept, runs, tmp_path, monkeypatch):
    check_bands(BandRequest("tic_tac_toe", out=tmp_path / "out", band=kept), print)
    monkeypatch.setattr(banded, "files_sha256", lambda: "changed")
    with pytest.raises(ConfigError, match="another program"):
        check_bands(BandRequest("tic_tac_toe", out=tmp_path / "out", band=kept), print)


def test_processes_bring_curves_as_they_finish_and_one_that_fails_is_told(monkeypatch):
    line = '{"seed": %s, "point": {"step": 1, "games": 1, "loss": 0.5, "errors": null, "cpu_s": 1.0, "hash": ""}}'
    program = (
        "import os, sys\nfor seed in sys.argv[2:]:\n"  # one write a line, as the real one: `print` makes two where output is unbuffered
        f"    for _ in range(4): os.write(1, {line!r}.encode() % seed.encode() + b'\\n')\n    if seed == '9': sys.exit(3)"
    )
    monkeypatch.setattr(curve, "COMMAND", (sys.executable, "-c", program))
    told: list[str] = []
    assert sorted(each.seed for each in curves_of("tic_tac_toe", [1, 2, 3], 2, told.append)) == [1, 2, 3]
    assert len(told) == 12
    with pytest.raises(AzqError, match="failed, as it says above"):
        list(curves_of("tic_tac_toe", [8, 9, 10], 1, told.append))


@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "backgammon", "blob", "beasty_bar", "gomoku", "hex", "othello"])
def test_every_preset_can_be_measured(game):
    sections = band_sections(game, 1)
    assert sections.learner.lockstep_games
    assert sections.arena.opponents == (() if game in ("connect_four", "backgammon") else (plan_of(game).opponent,))
    assert PLANS.keys() <= {"tic_tac_toe", "connect_four", "backgammon", "blob", "beasty_bar", "gomoku", "hex", "othello"}


def test_kept_bands_fit_the_presets():
    kept = [file.stem for file in Path(banded.__file__).with_name("bands").iterdir()]
    assert {"tic_tac_toe", "connect_four"} <= set(kept)
    for game in kept:
        band = banded._band_for(banded._without_curves(game), BandRequest(game))
        assert len(band.curves) >= 6


def test_a_game_of_ones_own_has_a_file_of_its_own():
    assert msgspec.structs.replace(EMPTY, game="games/my_game.py:MyGame").file_name == "games-my_game.py-MyGame.json"
