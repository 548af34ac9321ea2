"""Self-play and matches through the evaluation stream: worker, inference worker and broker are all real processes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until
from worker_doubles import NETWORK, RUN, Fleet

from azq import games
from azq.ledger.types import JobState
from azq.nets import NetSpec, WeightsMeta, build, to_bytes
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchResult, MatchSpec, SampleEvent, WeightEvent


def publish_weights(fleet: Fleet, directory: Path, version: int) -> None:
    """What a learner does: stores weights and announces them."""
    module = build(NETWORK, NetSpec.of(games.load("tic_tac_toe")), seed=version)
    data = to_bytes(module, WeightsMeta("tic_tac_toe", version, 0, network=NETWORK.model_dump(mode="json")))
    sha256, uri = open_store("file", directory=directory / "weights").put(data)
    fleet.bus.publish(keys.weights(RUN), encode(WeightEvent(RUN, version, sha256, uri, 0, 0)))


def versions_played(fleet: Fleet) -> set[int]:
    """Weight versions in the samples so far."""
    found: set[int] = set()
    for entry in fleet.bus.after(keys.samples(RUN), "0", count=1_000_000):
        body = decode(entry.frame, SampleEvent).record.weight_versions
        found |= {int.from_bytes(body[i : i + 4], "little") for i in range(0, len(body), 4)}
    return found


def test_games_go_on_with_new_weights_and_across_the_death_of_the_inference_worker(fleet: Fleet, tmp_path: Path) -> None:
    fleet.create_run(evaluator="stream")
    publish_weights(fleet, tmp_path, 1)
    inference = fleet.start_inference()
    worker = fleet.start()
    view = fleet.send(slice_s=300.0)
    until(lambda: fleet.finished() > 20, "game evaluated by the stream")
    publish_weights(fleet, tmp_path, 2)
    until(lambda: 2 in versions_played(fleet), "game with the new weights")

    inference.kill()
    inference.wait()
    threading.Event().wait(2.0)  # longer than a lease: it must be renewed while nothing is evaluated
    assert fleet.ledger.expire(RUN, 4) == []
    before = fleet.finished()
    fleet.start_inference()
    until(lambda: fleet.finished() > before + 20, "game after the inference worker came back")
    (beat,) = [beat for beat in fleet.beats() if beat.role == "selfplay"]
    assert beat.weight_versions == {RUN: 2}

    worker.terminate()
    assert worker.wait(PATIENCE_S) == 0
    assert fleet.ledger.job(view.job.job_id).state is JobState.DONE
    assert versions_played(fleet) == {1, 2}
    assert fleet.balanced()


def test_a_worker_without_any_inference_worker_still_stops_at_once(fleet: Fleet) -> None:
    fleet.create_run(evaluator="stream")
    worker = fleet.start()
    view = fleet.send(slice_s=300.0)
    until(lambda: fleet.ledger.counts(RUN).open == 16, "adopted game")
    worker.terminate()
    until(lambda: fleet.ledger.job(view.job.job_id).state is JobState.DONE, "release of the games")
    assert worker.wait(PATIENCE_S) == 0
    assert fleet.balanced()


@pytest.mark.parametrize("evaluator", ["stream", "local"])
def test_a_match_pins_its_versions(fleet: Fleet, tmp_path: Path, evaluator: str) -> None:
    fleet.create_run(evaluator=evaluator)
    for version in (1, 2, 3):
        publish_weights(fleet, tmp_path, version)
    if evaluator == "stream":
        fleet.start_inference()
    fleet.start("eval.cpu")
    view = fleet.ledger.enqueue(Job("", RUN, Kind.EVAL, "cpu", payload=encode(MatchSpec("weights:1", "latest", 8, 16, 1, 5))))
    fleet.publish(view)
    until(lambda: fleet.ledger.job(view.job.job_id).state is JobState.DONE, "result")
    (entry,) = fleet.bus.after(keys.results(RUN), "0")
    result = decode(entry.frame, MatchResult)
    assert (result.first, result.second) == ("weights:1", "weights:3")
    assert result.wins + result.draws + result.losses == 8
