"""Which runs an inference worker serves: those there are, and of one name the one there is now."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from inference_doubles import CONFIG, RUN, SPEC, OneRun, Shelf, ask, observations, same_bits, serving, weights
from memory_broker import MemoryBus
from waiting import PATIENCE_S, until

from azq.errors import EvaluationTimeout
from azq.inference.ask.client import StreamEvaluator
from azq.inference.ask.local import LocalEvaluator
from azq.inference.device.engine import Engine
from azq.inference.serve import loading
from azq.inference.serve.roster import POLL_S
from azq.inference.serve.server import InferenceServer
from azq.ledger.types import RunState, RunView
from azq.nets import NetSpec
from azq.waiting import Backoff
from azq.wire import keys

EXACT = CONFIG.model_copy(update={"precision": "float32"})
OTHER_GAME = NetSpec(3, 4, 5, 2, 9, 2)


class Place:
    """A control plane with one run, whose record and weights can be wiped and made again."""

    def __init__(self, spec: NetSpec = SPEC) -> None:
        self.bus = MemoryBus()
        self.runs, self.shelf = OneRun(), Shelf(self.bus)
        self.spec = spec
        self.server = InferenceServer(
            self.bus, self.bus, self.runs, self.shelf.fetch, Engine(EXACT), "inference@test:1", lambda _sections: self.spec
        )

    def client(self, name: str) -> StreamEvaluator:
        return StreamEvaluator(self.bus, RUN, name, num_actions=self.spec.num_actions, value_size=self.spec.value_size)

    def make_again(self, **changes: Any) -> None:
        """Wipes the run's weights and creates a run of the same name a moment later."""
        (view,) = self.runs.views.values()
        record = msgspec.structs.replace(view.record, created_ms=view.record.created_ms + 1, **changes)
        self.bus.delete(keys.weights(RUN))
        self.runs.views = {RUN: RunView(record, RunState.RUNNING, "", 0, 0)}


def test_a_run_made_again_under_its_name_is_evaluated_by_its_own_weights() -> None:
    place, packed = Place(), observations(40)
    for version in (1, 2, 3):
        place.shelf.publish(version, weights(version, version=version))
    fresh = weights(9, version=1)
    local = LocalEvaluator.from_bytes(SPEC, fresh, EXACT)
    with serving(place.server):
        client = place.client("c1")
        assert ask(client, packed).weight_version == 3
        place.make_again()
        place.shelf.publish(1, fresh)
        until(lambda: place.server.versions == {RUN: 1}, "the first weights of the run that was made again")
        again = ask(client, packed)
        pinned = ask(client, packed, weight_version=1)
    expected = local.result(local.submit(packed), timeout_s=PATIENCE_S)
    local.close()
    assert expected is not None
    assert again.weight_version == 1
    assert same_bits(again, expected)
    assert same_bits(pinned, expected)


def test_a_run_made_again_with_another_game_is_served_as_that() -> None:
    place = Place()
    place.shelf.publish(1, weights(1))
    with serving(place.server):
        ask(place.client("c1"), observations(8))
        place.spec = OTHER_GAME
        place.make_again()
        place.shelf.publish(1, weights(2, spec=OTHER_GAME))
        until(lambda: place.server.served[RUN].spec == OTHER_GAME, "the other game")
        answer = ask(place.client("c2"), observations(8, spec=OTHER_GAME))
    assert answer.logits.shape == (8, OTHER_GAME.num_actions)


def test_a_run_that_is_the_same_keeps_its_weights_through_every_look() -> None:
    place = Place()
    place.shelf.publish(1, weights(1))
    with serving(place.server):
        until(lambda: place.server.versions == {RUN: 1}, "the weights")
        before = place.server.served[RUN]
        looks = place.runs.looks
        until(lambda: place.runs.looks > looks + 2, "further looks at the runs", 20 * POLL_S)
        assert place.server.served[RUN] is before


def test_a_run_that_never_ends_loading_ends_the_worker_so_that_its_note_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    place, begun, let_go = Place(), threading.Event(), threading.Event()

    def hangs(_sections: object) -> NetSpec:
        begun.set()
        let_go.wait(PATIENCE_S)
        return SPEC

    server = InferenceServer(place.bus, place.bus, place.runs, place.shelf.fetch, Engine(CONFIG), "inference@h:1", hangs)
    server.step(1)
    assert begun.wait(PATIENCE_S)
    monkeypatch.setattr(loading, "HANGS_S", 0.0)
    with pytest.raises(EvaluationTimeout, match="loading run r1 has not ended"):
        until(lambda: server.step(1) < 0, "the worker ends")
    assert place.bus.get(keys.trial(RUN, "load@h:cpu")) == b"1 inference@h:1"
    let_go.set()
    server.close()


def test_a_load_that_makes_progress_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    awake_s, progress = [0.0], iter(range(100))
    monkeypatch.setattr(loading, "AwakeClock", lambda: lambda: awake_s[0])
    place = Place()
    waiting = place.server._loading
    monkeypatch.setattr(waiting, "progress", lambda: f"recording graphs: {next(progress)} of 100")
    waiting._loading, waiting._thread = (RUN, 0.0), threading.current_thread()
    for _ in range(5):
        awake_s[0] += loading.HANGS_S
        waiting.start()
    monkeypatch.setattr(waiting, "progress", lambda: "recording graphs: 5 of 100")
    waiting.start()
    awake_s[0] += loading.HANGS_S + 1.0
    with pytest.raises(EvaluationTimeout, match="loading run r1 has not ended"):
        waiting.start()


def test_an_error_of_the_look_itself_stops_nothing_that_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "AGAIN", Backoff(0.05, 300.0))
    place = Place()
    place.shelf.publish(1, weights(1))
    with serving(place.server):
        client = place.client("c1")
        ask(client, observations(4))
        stumbles: list[int] = []
        monkeypatch.setattr(place.runs, "names", lambda: stumbles.append(1) or 1 / 0)
        until(lambda: len(stumbles) > 1, "it stumbles and goes on")
        assert len(ask(client, observations(4)).logits) == 4
        monkeypatch.undo()
        place.shelf.publish(2, weights(2, version=2))
        until(lambda: place.server.versions == {RUN: 2}, "it follows again")
