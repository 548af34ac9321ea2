"""`azq bench all`: how the time is split, what the ratios are, what becomes of a part that fails, tables and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.config import NetworkConfig
from azq.errors import ConfigError, EvaluationTimeout
from azq.parts.lab.bench.plan import BEGIN, CASES, END, Case, Part, cases, markdown, number, parts, replace_section, split, summary
from azq.parts.lab.bench.selfplay import together
from azq.parts.lab.bench.suite import config_of, measured, run_all, write

CASE = Case("c", "connect_four", NetworkConfig(blocks=1, channels=8), 100, 64)
PARTS = st.builds(
    Part,
    kind=st.uuids().map(str),
    case=st.just("c"),
    weight=st.floats(0.1, 5),
    min_s=st.floats(0.5, 5),
    max_s=st.floats(5, 30),
    overhead_s=st.floats(0, 20),
)


@given(st.lists(PARTS, max_size=12), st.floats(0, 600))
def test_the_parts_that_stay_fit_into_the_time(todo: list[Part], budget_s: float) -> None:
    found = split(todo, budget_s)
    by_name = {part.name: part for part in todo}
    assert set(found) <= set(by_name)
    assert sum(seconds + by_name[name].overhead_s for name, seconds in found.items()) <= budget_s + 1e-4
    assert all(by_name[name].min_s - 1e-9 <= seconds <= by_name[name].max_s + 1e-6 for name, seconds in found.items())


def test_the_first_parts_stay_and_a_small_one_slips_in_behind_a_large_one() -> None:
    first, large, small = Part("a", "c", overhead_s=8), Part("b", "c", overhead_s=80), Part("d", "c", overhead_s=1)
    found = split([first, large, small], 20.0)
    assert set(found) == {"a/c", "d/c"}
    assert found["a/c"] == found["d/c"] == pytest.approx(5.5)


def test_time_that_is_left_over_goes_by_weight_up_to_each_parts_most() -> None:
    light, heavy, short = Part("a", "c", overhead_s=0), Part("b", "c", overhead_s=0, weight=2.0), Part("d", "c", overhead_s=0, max_s=3.0)
    found = split([light, heavy, short], 18.0)
    assert found["d/c"] == 3.0
    assert found["b/c"] - 2.0 == pytest.approx(2 * (found["a/c"] - 2.0), rel=1e-3)
    assert sum(found.values()) == pytest.approx(18.0)


@pytest.mark.parametrize("size", CASES)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_every_case_of_a_size_has_its_parts_and_a_run_that_fits_it(size: str, on_gpu: bool) -> None:
    which = cases(size)
    todo = parts(size, which, on_gpu=on_gpu, peers=("pgx", "openspiel"))
    assert len({part.name for part in todo}) == len(todo)
    assert {part.case for part in todo} == {case.name for case in which}
    assert [part.case for part in todo if part.kind in ("pgx", "openspiel")] == [which[0].name] * 3
    for case in which:
        alone = config_of(case, 32, "cpu", case.batch)
        assert (alone.selfplay.games_in_flight, alone.selfplay.groups) == (case.groups * case.batch, case.groups)
        assert (alone.search.num_simulations, alone.worker.concurrency, alone.inference.threads) == (32, 1, 1)
        several = config_of(case, 32, "cpu", case.batch, ["worker.concurrency=4", "inference.compile=true", "selfplay.journal_s=20"])
        assert (several.selfplay.games_in_flight, several.selfplay.groups) == (case.batch, 2)
        assert (several.worker.concurrency, several.inference.compile, several.selfplay.journal_s) == (4, True, 20.0)


def test_nine_minutes_hold_all_of_a_small_machines_parts_and_the_most_telling_of_a_large_ones() -> None:
    small = parts("small", cases("small"), on_gpu=False, peers=("openspiel",))
    assert set(split(small, 540.0)) == {part.name for part in small}
    full = split(parts("full", cases("full"), on_gpu=True, peers=("pgx", "openspiel")), 540.0)
    assert {"selfplay/connect four 5x128/200", "pgx/connect four 5x128/200", "pgx/connect four 5x128/32"} <= set(full)
    assert all(kind in {name.partition("/")[0] for name in full} for kind in ("network", "selfplay", "learner", "latency"))


def test_settings_of_the_command_line_reach_each_part_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def part(device: str, overrides: list[str], *_: object) -> None:
        seen.append((device, overrides))
        raise EvaluationTimeout("not today")

    monkeypatch.setattr("azq.parts.lab.bench.suite._in_a_process", part)
    monkeypatch.setattr("azq.parts.lab.bench.suite.why_no_peer", lambda _peer: "not here")
    told = run_all("tiny", 1.0, "cpu", ["selfplay.journal_s=20"])
    assert seen[0] == ("cpu", ["worker.concurrency=1", "selfplay.journal_s=20"])
    assert told["settings"] == ["worker.concurrency=1", "selfplay.journal_s=20"]
    assert "--size tiny --set worker.concurrency=1 --set selfplay.journal_s=20`" in markdown(told)
    with pytest.raises(ConfigError, match="selfplay"):
        run_all("tiny", 1.0, "cpu", ["selfplay.journal=20"])


def test_processes_side_by_side_count_together_in_the_time_of_the_first() -> None:
    first, second = {"wall_s": 2.0, "evaluations": 10.0}, {"wall_s": 4.0, "evaluations": 40.0, "cache_hits": 4.0}
    assert together([first]) == first
    assert together([first])["cache_hits"] == 0.0
    assert together([first, second]) == {"wall_s": 2.0, "evaluations": 30.0, "cache_hits": 2.0}


FIGURES: dict[str, dict[str, Any]] = {
    "network/c": {
        "bare_evaluations_per_s": 1000, "stream_evaluations_per_s": 900,
        "bare_evaluations_per_cpu_s": 500, "stream_evaluations_per_cpu_s": 400,
    },
    "selfplay/c/200": {
        "evaluations_per_s": 850.0, "evaluations_per_cpu_s": 300.0, "simulations_per_s": 3000.0, "simulations_per_cpu_s": 1500.0,
        "games_per_s": 2.0, "inference_mean_batch": 95.0, "network_busy": 0.8, "cpu_cores": 1.9,
        "selfplay_phases": {"phase_wall_search": 0.7, "phase_wall_wait": 0.3, "phase_cpu_search": 0.7},
        "inference_phases": {"phase_wall_forward": 0.9, "phase_cpu_forward": 1.0},
    },
    "pgx/c/200": {"simulations_per_s": 1000.0, "simulations_per_cpu_s": 1000.0},
    "latency/c": {
        "batch": 256, "bare_p50_ms": 1.0, "round_trip_p50_ms": 2.5, "round_trip_p99_ms": 4.0, "added_p50_ms": 1.5, "added_p99_ms": 3.0,
    },
}  # fmt: skip


def result() -> dict[str, Any]:
    machine = {
        "device": "cpu",
        "device_name": "A CPU",
        "cores": 2,
        "precision": "bfloat16",
        "torch": "2",
        "commit": "abc",
        "load_before": 0.1,
    }
    return {
        "machine": machine, "size": "tiny", "minutes": 1.0, "parts": FIGURES, "left_out": {"openspiel": "not installed"},
        "summary": summary([CASE], FIGURES),
    }  # fmt: skip


def test_a_row_compares_within_the_run() -> None:
    (row,) = summary([CASE], FIGURES)
    assert (row["stream_over_bare"], row["stream_over_bare_cpu"]) == (0.9, 0.8)
    assert (row["selfplay_over_bare"], row["selfplay_over_bare_cpu"]) == (0.85, 0.6)
    assert (row["azq_over_pgx_200"], row["azq_over_pgx_200_cpu"], row["azq_over_pgx_32"]) == (3.0, 1.5, None)
    assert row["batch_filled"] == 0.95
    assert row["learner_over_bare"] is None


def test_the_tables_say_machine_commit_ratios_what_is_open_and_what_was_left_out() -> None:
    text = markdown(result())
    assert "A CPU, 2 cores, bfloat16, torch 2, commit `abc`" in text
    assert "| c, 100 | 1,000 | 900 | 0.9 | 0.8 | open | open |" in text
    assert "| pgx | 200 | 3 | 1.5 |" in text
    assert "| c | 256 | 1 | 2.5 | 4 | 1.5 | 3 |" in text
    assert "Not measured: openspiel (not installed)." in text
    assert number(1234.5) == "1,234"


def test_a_section_of_a_document_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    replace_section(page, "new\n")
    replace_section(page, "newer\n")
    assert page.read_text() == f"before\n{BEGIN}\nnewer\n{END}\nafter\n"
    page.write_text("no marks\n")
    with pytest.raises(ConfigError, match="no section"):
        replace_section(page, "new\n")


def test_time_that_a_slow_part_took_is_missing_for_the_later_ones_and_a_failure_is_named() -> None:
    now_s = [0.0]
    asked: dict[str, tuple[float, float]] = {}

    def measure(part: Part, case: Case, seconds: float, limit_s: float) -> dict[str, Any]:
        asked[part.kind] = (seconds, limit_s)
        now_s[0] += 60.0 if part.kind == "slow" else part.overhead_s + seconds
        if part.kind == "broken":
            raise EvaluationTimeout("ended with exit code 3: no such thing")
        return {"figure": 1.0}

    todo = [Part(kind, "c") for kind in ("quick", "slow", "broken", "last")]
    figures, reasons = measured(todo, [CASE], 96.0, measure, lambda: now_s[0])
    assert set(figures) == {"quick/c", "slow/c"}
    assert "exit code 3" in reasons["broken/c"]
    assert "does not fit" in reasons["last/c"]
    assert asked["quick"][0] > asked["broken"][0] >= 2.0
    assert all(limit_s >= 2.0 for _, limit_s in asked.values())


def test_what_was_measured_is_kept_after_each_part_whatever_becomes_of_the_others(tmp_path: Path) -> None:
    def measure(part: Part, _case: Case, _seconds: float, _limit_s: float) -> dict[str, float]:
        if part.kind == "learner":
            raise OSError("no such process")
        if part.kind == "latency":
            raise EvaluationTimeout("ended after 60 s without an answer")
        return {"bare_evaluations_per_s": 5.0}

    seen: list[tuple[int, int]] = []

    def keep(so_far: dict[str, Any]) -> None:
        write(so_far, tmp_path)
        again = json.loads((tmp_path / "bench.json").read_text())
        seen.append((len(again["parts"]), len(again["left_out"])))

    found = run_all("tiny", 5.0, "cpu", keep=keep, measure=measure)
    assert seen[0] == (1, 0)
    assert [sum(counts) for counts in seen] == list(range(1, len(seen) + 1))
    assert (tmp_path / "bench.md").read_text() == markdown(found)
    assert "no such process" in markdown(found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.json", "bench.md"]
