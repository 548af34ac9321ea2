"""What `azq tune` prints and writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from azq.config import load
from azq.errors import ConfigError
from azq.parts.lab.calibrate.course import Arrangement, AxisResult, Performance, TrialJudge, TunedChoice
from azq.parts.lab.calibrate.rates import SampleReuse, Side
from azq.parts.lab.calibrate.tune import TuneReport, check_writable, trial_line, write

START = Arrangement(processes=1, threads=1, games=256, within_ms=25.0, groups=2, leaves=1)
THREE, FOUR = replace(START, groups=3), replace(START, leaves=4)
JUDGE = TrialJudge(2, Side(20.0, 0.05), SampleReuse(4.0, 512), simulations=32.0, game_simulations=640.0, longer=2.0)
FIGURES = Performance(simulations_per_s=32_000.0, cpu_s=1e-5, evaluations_per_s=20_000.0, mean_batch=64.0, open_games=100.0)


def report(tuned: TunedChoice | None) -> TuneReport:
    return TuneReport("connect_four", "preset", "stream", JUDGE, [(START, FIGURES), (THREE, FIGURES), (FOUR, None)], START, tuned, 0.5)


def tuned(chosen: Arrangement, candidate: Arrangement, p: float, too_long: bool = False) -> TunedChoice:
    axis = AxisResult("groups", START, {START: 1.0, THREE: 1.25})
    return TunedChoice(START, chosen, [axis], candidate, 1.2, p, too_long)


def test_a_choice_is_told_with_its_table() -> None:
    found = report(tuned(THREE, THREE, 0.004))
    text = found.as_text()
    assert found.changes == {"selfplay": {"groups": 3}}
    assert text[1].split() == ["1", "x", "1", "256,", "25", "2", "1", "1,000.0", "3,125.0", "1,000.0", "2.0", "1", "1.00"]
    assert "too slow to tell" in text[3]
    assert "1 x 1 threads, 256 games within 25 ms, 3 groups, 1 leaves: 1.20 times the run's samples (p 0.004)" in text


def test_what_is_not_taken_is_told_with_its_reason() -> None:
    assert "not taken: noise may look like this" in report(tuned(START, THREE, 0.3)).as_text()[-1]
    assert "more than 2 times as long (--longer)" in report(tuned(START, THREE, 0.004, too_long=True)).as_text()[-1]
    assert "nothing was faster than what is set" in report(tuned(START, START, 1.0)).as_text()[-1]


def test_an_interrupted_one_chooses_nothing() -> None:
    found = report(None)
    assert found.changes == {}
    assert found.as_text()[-1] == "interrupted: nothing is chosen, nothing written"
    assert found.values()["interrupted"]


def test_values_are_json() -> None:
    values = json.loads(json.dumps(report(tuned(THREE, THREE, 0.004)).values()))
    assert values["changes"] == {"selfplay": {"groups": 3}}
    assert values["trials"][0]["samples_per_s"] == 1000.0
    assert values["axes"][0]["arrangements"][1]["ratio"] == 1.25
    assert values["axes"][0]["may_be_taken"]


def test_a_trial_is_a_line() -> None:
    line = "3 of about 40: 1 x 1 threads, 256 games within 25 ms, 2 groups, 1 leaves: 1,000 samples/s, 3,125 a CPU-second"
    assert trial_line(3, 40, START, FIGURES, JUDGE) == line
    assert trial_line(3, 40, START, None, JUDGE).endswith("too slow to tell")


def test_a_choice_is_written_as_settings(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    write(file, {"selfplay": {"groups": 3, "answer_within_ms": 0.0}, "worker": {"concurrency": 2}}, "connect_four on 2 cores")
    assert file.read_text().startswith("# connect_four on 2 cores\n")
    config = load(file)
    assert (config.selfplay.groups, config.selfplay.answer_within_ms, config.worker.concurrency) == (3, 0.0, 2)


def test_a_folder_that_is_missing_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        check_writable(tmp_path / "nowhere" / "new.toml")
    check_writable(tmp_path / "new.toml")
