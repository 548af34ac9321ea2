"""Asking, pruning, failing, stopping and going on, with runs that a function plays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from azq.console.report import as_html
from azq.errors import NotFound, StateConflict, StoreError
from azq.sweep.plan import StudyPlan
from azq.sweep.trial import TrialFailed

optuna = pytest.importorskip("optuna")

from azq.sweep import sweep as sweeping  # noqa: E402
from azq.sweep.report import as_sections, as_text, as_values  # noqa: E402

Play = Callable[["Run"], Iterator[tuple[float, float | None]]]  # progress and share of errors


class Run:
    """A run in place of an `azq up`."""

    def __init__(self, play: Play, number: int, chosen: Mapping[str, Any]) -> None:
        self.name, self.number, self.chosen, self.ended = f"t-{number}", number, chosen, threading.Event()
        self._play = play

    def statuses(self) -> Iterator[Any]:
        for progress, errors in self._play(self):
            yield SimpleNamespace(progress=progress, strength=SimpleNamespace(error_share=errors))

    def end(self) -> None:
        self.ended.set()


def silent(line: str) -> None:
    """Whom nobody listens to."""


def plan(**given: Any) -> StudyPlan:
    space = {"learner.learning_rate": {"low": 0.001, "high": 0.1, "log": True}, "network.blocks": {"low": 1, "high": 3}}
    return StudyPlan(**{"name": "s", "game": "connect_four", "trials": 8, "space": space, **given})


def honest(run: Run) -> Iterator[tuple[float, float | None]]:
    yield 0.1, None
    yield 1.0, abs(run.chosen["learner.learning_rate"] - 0.02)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], list[Run]]:
    def use(how: Play) -> list[Run]:
        made: list[Run] = []

        def make(plan: StudyPlan, number: int, chosen: Mapping[str, Any], folder: Path) -> Run:
            made.append(Run(how, number, chosen))
            return made[-1]

        monkeypatch.setattr(sweeping, "TrialRun", make)
        return made

    return use


def test_a_study_ends_with_its_trials_and_tells_the_best(tmp_path: Path, play: Any) -> None:
    said: list[str] = []
    made = play(honest)
    study = sweeping.sweep(plan(trials=12), tmp_path, said.append)
    values = as_values(plan(trials=12), study)
    assert len(made) == len(values["trials"]) == len(said) == 12
    assert values["best"]["value"] == min(row["value"] for row in values["trials"])
    assert values["importances"]["learner.learning_rate"] > values["importances"]["network.blocks"]
    assert "best: trial" in as_text(plan(), study)
    page = as_html("Study s", as_sections(plan(), study))
    assert page.count("<polyline") == 12
    assert "learner.learning_rate" in page


def test_the_same_seed_asks_for_the_same(tmp_path: Path, play: Any) -> None:
    first = [run.chosen for run in (play(honest), sweeping.sweep(plan(), tmp_path / "a", silent))[0]]
    second = [run.chosen for run in (play(honest), sweeping.sweep(plan(), tmp_path / "b", silent))[0]]
    assert first == second


def test_a_bad_trial_is_ended_early_once_others_are_known(tmp_path: Path, play: Any) -> None:
    def worse(run: Run) -> Iterator[tuple[float, float | None]]:
        for step in range(5, 11):
            if run.ended.is_set():
                return
            yield step / 10, 0.1 * (run.number + 1)

    made = play(worse)
    study = sweeping.sweep(plan(), tmp_path, silent)
    states = [trial.state.name for trial in study.trials]
    assert states[:4] == ["COMPLETE"] * 4
    assert "PRUNED" in states[4:]
    assert [run.ended.is_set() for run in made] == [state == "PRUNED" for state in states]
    assert "pruned" in as_text(plan(), study)


def test_nothing_is_pruned_where_that_is_off(tmp_path: Path, play: Any) -> None:
    play(lambda run: iter([(0.5, float(run.number)), (1.0, float(run.number))]))
    study = sweeping.sweep(plan(prune=False), tmp_path, silent)
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}


def test_a_run_that_fails_is_named_and_the_study_goes_on(tmp_path: Path, play: Any) -> None:
    def falling(run: Run) -> Iterator[tuple[float, float | None]]:
        if run.number == 1:
            raise TrialFailed("trial s-0001 ended with 1: no disk; see s-0001.log")
        yield from honest(run)

    play(falling)
    said: list[str] = []
    study = sweeping.sweep(plan(trials=3), tmp_path, said.append)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert any("no disk" in line for line in said)


def test_a_run_too_short_for_its_metric_says_so(tmp_path: Path, play: Any) -> None:
    play(lambda run: iter([(1.0, None)]))
    said: list[str] = []
    sweeping.sweep(plan(trials=1), tmp_path, said.append)
    assert said == ["trial t-0: no errors was measured before minutes=5; give trials longer"]


def test_an_interrupted_study_ends_its_runs_and_goes_on_with_their_settings(tmp_path: Path, play: Any) -> None:
    def interrupted(run: Run) -> Iterator[tuple[float, float | None]]:
        if run.number == 2:
            raise KeyboardInterrupt
        yield from honest(run)

    cut = play(interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(plan(trials=6), tmp_path, silent)
    rest = play(honest)
    study = sweeping.sweep(plan(trials=6), tmp_path, silent)
    assert rest[0].chosen == cut[2].chosen
    assert len({tuple(run.chosen.values()) for run in cut + rest}) == 6  # nothing else is drawn twice
    assert sum(trial.state.name == "COMPLETE" for trial in study.trials) == 6


def test_a_look_leaves_the_trials_that_run_alone(tmp_path: Path, play: Any) -> None:
    seen: list[list[str]] = []

    def watched(run: Run) -> Iterator[tuple[float, float | None]]:
        seen.append([trial.state.name for trial in sweeping.open_study(plan(), tmp_path).trials])
        yield from honest(run)

    play(watched)
    study = sweeping.sweep(plan(trials=2), tmp_path, silent)
    assert seen == [["RUNNING"], ["COMPLETE", "RUNNING"]]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]


def test_several_run_at_once(tmp_path: Path, play: Any) -> None:
    both = threading.Barrier(2, timeout=30)

    def together(run: Run) -> Iterator[tuple[float, float | None]]:
        both.wait()
        yield from honest(run)

    play(together)
    study = sweeping.sweep(plan(trials=4, at_once=2), tmp_path, silent)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4


def test_what_is_wrong_with_a_study_is_one_line(tmp_path: Path, play: Any) -> None:
    with pytest.raises(NotFound, match="has not begun"):
        sweeping.open_study(plan(), tmp_path)
    play(honest)
    sweeping.sweep(plan(trials=1), tmp_path, silent)
    with pytest.raises(StateConflict, match="begun with another space"):
        sweeping.sweep(plan(trials=1, space={"network.blocks": {"low": 1, "high": 2}}), tmp_path, silent)
    (tmp_path / sweeping.DATABASE).write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="cannot be used"):
        sweeping.open_study(plan(), tmp_path)
