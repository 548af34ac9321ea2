"""What benchmarks share: turns, settings that are changed, and children that answer."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from factories import heartbeat

from azq.config import NetworkConfig, RunSections
from azq.errors import DeviceError, EvaluationTimeout
from azq.parts.lab.bench.rig import PartProcess, changed, in_turns, percentile, ready_s, refuse_fallbacks, unready


def test_what_takes_turns_is_warmed_up_and_then_measured_alike() -> None:
    taken: list[tuple[str, float]] = []

    def turn(name: str, done: int, seconds: float) -> int:
        taken.append((name, seconds))
        return done

    spent = in_turns({"a": (lambda seconds: turn("a", 3, seconds), ()), "b": (lambda seconds: turn("b", 5, seconds), ())}, 8.0, 2)
    assert taken == [("a", 1.0), ("b", 1.0), ("a", 2.0), ("b", 2.0), ("a", 2.0), ("b", 2.0)]
    assert (spent["a"].done, spent["b"].done) == (6, 10)
    assert all(one.wall_s > 0 and one.cpu_s == 0 for one in spent.values())


def test_settings_are_changed_value_by_value_or_section_by_section() -> None:
    before = RunSections()
    network = NetworkConfig(blocks=1, channels=8)
    after = changed(before, run={"game": "othello"}, search={}, network=network)
    assert (after.run.game, after.run.seed, after.search, after.network) == ("othello", before.run.seed, before.search, network)
    assert before == RunSections()


def test_a_first_start_on_a_gpu_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (False, True):
        monkeypatch.setattr("torch.cuda.is_available", lambda there=there: there)
        assert [ready_s(device) for device in ("cpu", "auto", "cuda:1")] == [60.0, 180.0 if there else 60.0, 180.0]


def test_workers_that_do_not_serve_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "inference-0.log").write_text("starting\nno kernel image is available\n")
    beat = heartbeat("inference", "i")
    assert unready([beat], tmp_path) == "inference workers do not serve: no kernel image is available"
    said = [msgspec.structs.replace(beat, note="recording graphs: 3 of 20")]
    assert unready(said, tmp_path) == "inference workers do not serve: recording graphs: 3 of 20"


def test_figures_of_a_slower_way_are_refused() -> None:
    refuse_fallbacks(0, "")
    with pytest.raises(DeviceError, match=r"fell back 2 times while they were measured \(served by: eager, at most 64 leaves\)"):
        refuse_fallbacks(2, "served by: eager, at most 64 leaves")


def test_a_child_calls_what_it_was_started_for_and_its_failure_is_told() -> None:
    assert PartProcess(percentile, values=[3, 1, 2], share=0.5).answer(60.0) == 2
    with PartProcess(percentile, values=[3, 1, 2], share=0.5) as process:
        assert process.read(60.0) == 2
    with pytest.raises(EvaluationTimeout, match="IndexError"):
        PartProcess(percentile, values=[], share=0.5).read(60.0)
