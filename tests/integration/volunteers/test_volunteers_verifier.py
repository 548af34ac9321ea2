"""A verifier's process with a run's published weights: honest batches pass, adversaries' do not, and its death costs time alone."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from honest_tabs import games_of, with_arrays
from inference_doubles import weights
from waiting import PATIENCE_S
from whole_networks import tab_forward

from azq import games
from azq.bus.redis import RedisBus
from azq.config import GatewayConfig, InferenceConfig, NetworkConfig, RunSections
from azq.errors import EvaluationTimeout, EvaluatorFailure
from azq.inference.ask.local import LocalEvaluator
from azq.learner.publish import Publisher
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.parts.volunteers.contributor_store import ContributorStore, Volunteer
from azq.parts.volunteers.handouts import GamesBatch, GamesVerdict, Returned, Terms
from azq.parts.volunteers.plausibility import SearchOrder
from azq.parts.volunteers.reputation import Trusted
from azq.parts.volunteers.verifier import VerifierProcess, VerifyingJudge
from azq.store import open_run_store
from azq.wire.arrays import arrays_of
from azq.wire.connect import connect

GAME = games.load("connect_four")
SECTIONS = RunSections.model_validate({"run": {"game": "connect_four", "seed": 5}, "search": {"num_simulations": 16}})
SEARCH = SECTIONS.search.model_copy(update={"reuse_subtree": False})
EXACT = InferenceConfig(device="cpu", precision="float32", compile=False, threads=1)
VERSIONS = 3
ATTENTION = NetworkConfig(kind="transformer", blocks=1, channels=16, heads=4)  # of version 2, which has no form in whole numbers


class Court:
    """A run with weights, a judge with a verifier of its own, and what tabs evaluate."""

    def __init__(self, broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZQ_BROKER__CONTROL_URL", broker.control_url)
        monkeypatch.setenv("AZQ_HOME", str(tmp_path))
        self.client = connect(broker.control_url)
        self.record = record_of("r", SECTIONS, tmp_path / "r", created_ms=1)
        Ledger(self.client).create_run(self.record)
        self.weights = {version: weights(seed=version, version=version) for version in range(1, VERSIONS + 1)}
        self.weights[2] = weights(seed=2, version=2, network=ATTENTION)
        publisher = Publisher(RedisBus(self.client), open_run_store("file", self.record, tmp_path, self.client), "r")
        for version, data in self.weights.items():
            publisher.publish(data, version, 0)
        self.contributors = ContributorStore(self.client, GatewayConfig())
        self.verifier = VerifierProcess()
        self.judge = VerifyingJudge(self.contributors, self.verifier)
        self.order = SearchOrder.of(GAME, SECTIONS, SEARCH, self.weights)
        self._next = 1

    def contributor(self) -> str:
        guest = self.contributors.welcome("", "", "10.0.0.1", "")
        assert isinstance(guest, Volunteer)
        return guest.contributor

    def uids(self, count: int) -> range:
        self._next += count
        return range(self._next - count, self._next)

    def play(self, count: int = 6, *, weights_of: int = VERSIONS, says: int = VERSIONS, **search: Any) -> list[Returned]:
        """Games made with the weights of a version that are said to be of another."""

        forward = tab_forward(self.weights[weights_of], GAME)
        changed = SearchOrder.of(GAME, SECTIONS, SEARCH.model_copy(update=search), self.weights)
        config = changed.config(changed.search.num_simulations)
        return games_of(self.order, lambda _, packed: forward(packed), self.uids(count), version=says, config=config)

    def judged(self, contributor: str, batch: Sequence[Returned]) -> GamesVerdict:
        return self.judge.judge(GamesBatch(self.record, SEARCH, contributor, tuple(batch)))

    def close(self) -> None:
        self.verifier.close()
        self.client.close()


@pytest.fixture
def court(broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Court]:
    court = Court(broker, tmp_path, monkeypatch)
    yield court
    court.close()


def wrong_result(court: Court) -> list[Returned]:
    """Games that end a move too soon."""
    return [with_arrays(game, **{name: array[:-1] for name, array in arrays_of(game.record, 7, 1, "it").items()}) for game in court.play()]


ADVERSARIES: dict[str, Callable[[Court], list[Returned]]] = {
    "wrong rules": wrong_result,
    "an old network": lambda court: court.play(weights_of=1),
    "other weights than it was handed out for": lambda court: [replace(game, terms=Terms(2, 16)) for game in court.play()],
}


@pytest.mark.slow
def test_honest_batches_pass_until_the_contributor_is_trusted(court: Court) -> None:
    ann = court.contributor()
    assert court.judge.standing(ann).trust is Trusted.PROBATION
    batches = 0
    while court.judge.standing(ann).trust is Trusted.PROBATION:
        batch = court.play(court.judge.batch_games(ann))
        verdict = court.judged(ann, batch)
        assert not verdict.refused
        assert {uid: tuple(returns) for uid, returns in verdict.returns.items()}.keys() == {game.record.uid for game in batch}
        assert all(sum(returns) == 0.0 for returns in verdict.returns.values())
        batches += 1
    assert batches >= 3
    assert court.contributors.history(ann).differed == 0
    assert court.judge.batch_games(ann) > 10


def test_adversaries_have_no_game_in_the_window_and_are_blocked(court: Court) -> None:
    for kind, made in ADVERSARIES.items():
        eve = court.contributor()
        for _ in range(3):
            verdict = court.judged(eve, made(court))
            assert not verdict.returns, kind
            assert verdict.refused, kind
        assert court.judge.standing(eve).trust is Trusted.BLOCKED, kind


def test_an_older_network_is_no_crime_where_the_game_was_handed_out_for_it(court: Court) -> None:
    ann = court.contributor()
    assert not court.judged(ann, court.play(weights_of=2, says=2)).refused
    late = court.judged(ann, court.play(says=99))
    assert "too old by now" in late.refused[min(late.refused)]
    assert court.contributors.history(ann).faults == 0


@pytest.mark.slow
def test_a_verifier_that_is_killed_is_started_again_and_judges_the_batch(court: Court) -> None:
    ann = court.contributor()
    assert not court.judged(ann, court.play()).refused
    first = court.verifier.pid
    os.kill(first, signal.SIGKILL)
    assert not court.judged(ann, court.play()).refused
    batch, killed = court.play(24), threading.Event()

    def kill() -> None:
        os.kill(court.verifier.pid, signal.SIGKILL)
        killed.set()

    timer = threading.Timer(0.01, kill)
    timer.start()
    assert not court.judged(ann, batch).refused
    assert killed.wait(PATIENCE_S)
    assert court.verifier.pid != first


def test_a_flood_is_refused_before_anything_is_computed(court: Court) -> None:
    eve = court.contributor()
    court.judge = VerifyingJudge(ContributorStore(court.client, GatewayConfig(games_per_hour=5)), VerifierProcess(("false",)))
    verdict = court.judged(eve, court.play(6))
    assert "more than 5 games an hour" in verdict.refused[min(verdict.refused)]


def test_weights_that_cannot_be_had_are_nobodys_fault(court: Court, tmp_path: Path) -> None:
    ann = court.contributor()
    batch = court.play()
    for file in (tmp_path / "r" / "weights").iterdir():
        file.unlink()
    with pytest.raises(EvaluatorFailure):
        court.judged(ann, batch)
    assert court.contributors.history(ann).refused == 0


@pytest.mark.parametrize(
    ("command", "error", "said"),
    [
        ((sys.executable, "-c", "pass"), EvaluatorFailure, "died 3 times over"),
        ((sys.executable, "-c", "import time; time.sleep(60)"), EvaluationTimeout, "gave no answer within 0.3 s"),
    ],
)
def test_a_verifier_that_cannot_work_lets_nothing_in(court: Court, command: tuple[str, ...], error: type[Exception], said: str) -> None:
    verifier = VerifierProcess(command, answer_after_s=0.3 if error is EvaluationTimeout else 30.0)
    court.judge = VerifyingJudge(court.contributors, verifier)
    with pytest.raises(error, match=said):
        court.judged(court.contributor(), court.play(1))
    verifier.close()


def test_a_local_evaluator_in_float32_rounds_as_torch_does(court: Court) -> None:
    """To the nearest float16, ties to even, whatever else is in the batch; in whole numbers to the bits that tabs have."""

    packed = np.stack([GAME.new_initial_state().packed_observation()] * 40)

    def logits(rows: Any, whole: bool = False) -> Any:
        with closing(LocalEvaluator.from_bytes(GAME, court.weights[1], EXACT, whole=whole)) as evaluator:
            answer = evaluator.result(evaluator.submit(rows), timeout_s=PATIENCE_S)
        assert answer is not None
        return answer.logits.view(np.uint16)

    assert np.array_equal(logits(packed)[0], logits(packed[:1])[0])
    assert logits(packed, whole=True).tobytes() == tab_forward(court.weights[1], GAME)(packed)[0].tobytes()
