"""What `azq tune` prints and writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from azq.config import load
from azq.errors import EvaluationTimeout, StoreError
from azq.parts.lab.calibrate import tune
from azq.parts.lab.calibrate.course import Arrangement, Performance, TrialJudge, TunedChoice
from azq.parts.lab.calibrate.rates import SampleReuse, Side
from azq.parts.lab.calibrate.tune import TrialSeries, TuneReport, write

START = Arrangement(processes=1, threads=1, games=256, within_ms=25.0, groups=2)
THREE, FOUR = replace(START, groups=3), replace(START, groups=4)
JUDGE = TrialJudge(2, Side(20.0, 0.05), SampleReuse(4.0, 512), simulations=32.0)
FIGURES = Performance(simulations_per_s=32_000.0, cpu_s=1e-5)


def report(choice: TunedChoice | None) -> TuneReport:
    return TuneReport("connect_four", "preset", "stream", JUDGE, [(START, FIGURES), (THREE, FIGURES), (FOUR, None)], START, choice, 0.5)


def choice(chosen: Arrangement, candidate: Arrangement, p: float) -> TunedChoice:
    return TunedChoice(START, chosen, {START: 1.0, THREE: 1.25}, candidate, 1.2, p)


def test_a_choice_is_printed_with_its_table_and_as_values() -> None:
    found = report(choice(THREE, THREE, 0.004))
    text = found.as_text()
    assert found.changes == {"selfplay": {"groups": 3}}
    assert text[1].split() == ["1", "x", "1", "256,", "25", "2", "1,000.0", "3,125.0", "1,000.0", "1", "1.00"]
    assert "too slow to tell" in text[3]
    assert "1 x 1 threads, 256 games within 25 ms, 3 groups: 1.20 times the run's samples (p 0.004)" in text
    values = json.loads(json.dumps(found.values()))
    assert values["changes"] == {"selfplay": {"groups": 3}}
    assert values["trials"][0]["samples_per_s"] == 1000.0
    assert values["arrangements"][1] == {"processes": 1, "threads": 1, "games": 256, "within_ms": 25.0, "groups": 3, "ratio": 1.25}


def test_what_is_not_taken_has_its_reason() -> None:
    assert "not taken: noise may look like this" in report(choice(START, THREE, 0.3)).as_text()[-1]
    assert "nothing was faster than what is set" in report(choice(START, START, 1.0)).as_text()[-1]
    interrupted = report(None)
    assert (interrupted.changes, interrupted.values()["interrupted"]) == ({}, True)
    assert interrupted.as_text()[-1] == "interrupted: nothing is chosen, nothing written"


def test_a_trial_is_a_line_and_two_of_what_is_set_that_fail_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    course = TrialSeries(START, JUDGE, 40, 100.0, lines.append)
    monkeypatch.setattr(tune, "perform", lambda machine, arrangement, seconds: FIGURES if arrangement == THREE else None)
    course.trial(None, THREE)
    assert lines[1:] == ["1 of about 40: 1 x 1 threads, 256 games within 25 ms, 3 groups: 1,000 samples/s, 3,125 a CPU-second"]
    course.trial(None, START)
    assert lines[-1].endswith("too slow to tell")
    with pytest.raises(EvaluationTimeout, match=r"too slow for trials of 2.3 s; give more --seconds"):
        course.trial(None, START)


def test_a_choice_is_written_as_settings(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    write(file, {"selfplay": {"groups": 3, "answer_within_ms": 0.0}, "worker": {"concurrency": 2}}, "connect_four on 2 cores")
    assert file.read_text().startswith("# connect_four on 2 cores\n")
    config = load(file)
    assert (config.selfplay.groups, config.selfplay.answer_within_ms, config.worker.concurrency) == (3, 0.0, 2)


def test_a_file_that_cannot_be_written_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written: Is a directory; name another file"):
        tune.tune("tic_tac_toe", preset="", overrides=(), config_file=None, seconds=600.0, evaluator="", out=tmp_path, progress=print)
