"""Games whose answers outgrow a message: asked for in smaller parts, or refused by name."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inference_doubles import CONFIG, RUN, OneRun, Shelf, ask, observations, serving, weights
from memory_broker import MemoryBus
from waiting import PATIENCE_S

from azq.actor import Arenas
from azq.actor.groups import GameGroup
from azq.arena.searcher import Searcher
from azq.bus.base import Entry
from azq.config import NetworkConfig, RunConfig, RunSections, SearchConfig, SelfPlayConfig
from azq.errors import ConfigError, EvaluationRefused, EvaluatorFailure, WireError
from azq.games import Game
from azq.games.adapter import AdaptedGame
from azq.inference.ask.client import StreamEvaluator
from azq.inference.device.engine import Engine
from azq.inference.serve import requests
from azq.inference.serve.requests import BadRequest, read_request
from azq.inference.serve.server import InferenceServer
from azq.nets import NetSpec
from azq.search.evaluator import UniformEvaluator
from azq.wire import keys
from azq.wire.codec import MAX_FRAME_BYTES, answer_bytes, encode, most_leaves
from azq.wire.messages import EvalReply, EvalRequest

WIDE = NetSpec(planes=1, rows=1, cols=8, scalars=0, num_actions=8192, value_size=1)
MOST = most_leaves(WIDE.packed_size, WIDE.num_actions, WIDE.value_size)  # 511: the default of 1,024 games in two groups asks for 512
LARGE = CONFIG.model_copy(update={"max_batch": 1024, "batch": 1})
NARROW = NetworkConfig(kind="mlp", blocks=1, channels=16)


class Wide:
    """Whoever says a number above 100 first wins; there are 8,192 numbers."""

    def __init__(self) -> None:
        self.said: list[int] = []

    def num_players(self) -> int:
        return 2

    def num_distinct_actions(self) -> int:
        return WIDE.num_actions

    def current_player(self) -> int:
        return len(self.said) % 2

    def legal_actions(self) -> list[int]:
        return [0, 1, 2, 3, 8191]

    def apply_action(self, action: int) -> None:
        self.said.append(action)

    def is_terminal(self) -> bool:
        return bool(self.said) and self.said[-1] > 100

    def returns(self) -> list[float]:
        return [1.0, -1.0] if len(self.said) % 2 else [-1.0, 1.0]

    def observation_tensor(self, player: int) -> list[int]:
        return [int(turn < len(self.said)) for turn in range(8)]


GAME = cast(Game, AdaptedGame("wide", {}, Wide, players=2, actions=WIDE.num_actions))


@given(st.integers(1, 5000), st.integers(1, 65_535), st.integers(1, 16), st.text(max_size=200))
def test_the_most_leaves_fit_a_frame_and_one_more_would_not_by_much(packed_size: int, actions: int, values: int, client: str) -> None:
    count = most_leaves(packed_size, actions, values)
    assert count >= 1
    assert answer_bytes(count, actions, values) <= MAX_FRAME_BYTES
    if actions > 30_000:  # few leaves, so that the test stays quick
        encode(EvalRequest(2**63, client, 2**31, count, bytes(count * packed_size), 2**62, 9))
        encode(EvalReply(2**63, 2**31, count, bytes(2 * count * actions), bytes(2 * count * values)))
        with pytest.raises(WireError):
            encode(EvalReply(0, 0, 0, bytes(2 * (count + 1) * actions), bytes(2 * (count + 1) * values + 1024)))


def test_a_request_whose_answer_outgrows_a_message_is_refused_by_name_and_for_good() -> None:
    def read(count: int) -> object:
        frame = encode(EvalRequest(1, "c", 0, count, bytes(count * WIDE.packed_size), 0))
        return read_request("r", Entry("s", "1-0", frame), WIDE, 8192, 0.0)

    read(MOST)
    with pytest.raises(
        BadRequest, match=r"512 leaves of 8192 actions has 8390\d\d\d bytes, .* lower selfplay.games_in_flight: .* 511"
    ) as caught:
        read(MOST + 1)
    assert caught.value.final


class Place:
    """A served run of the wide game."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.bus = MemoryBus()
        shelf, runs = Shelf(self.bus), OneRun(RUN, RunSections(network=NARROW))
        shelf.publish(1, weights(1, spec=WIDE, network=NARROW))
        self.server = InferenceServer(self.bus, self.bus, runs, shelf.fetch, Engine(LARGE), "inference@h:1", lambda _sections: WIDE)
        self.client = StreamEvaluator(self.bus, RUN, "c1", num_actions=WIDE.num_actions)


def test_the_largest_answer_comes_and_a_larger_one_is_refused_while_others_are_answered() -> None:
    place = Place()
    with serving(place.server):
        assert ask(place.client, observations(MOST, spec=WIDE)).logits.shape == (MOST, 8192)
        with pytest.raises(EvaluationRefused, match=r"lower selfplay\.games_in_flight"):
            ask(place.client, observations(MOST + 1, spec=WIDE))
        assert len(ask(place.client, observations(3, spec=WIDE)).logits) == 3
    assert place.bus.length(keys.eval_stream(RUN)) == 0


def test_a_batch_that_raises_what_nobody_foresaw_costs_the_request_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()

    def reply(pending: requests.Pending, *rest: object) -> tuple[str, bytes]:
        if pending.request.count == 7:
            raise LookupError("seven")
        return answer(pending, *rest)  # type: ignore[arg-type]

    answer = requests.reply
    with serving(place.server):
        ask(place.client, observations(1, spec=WIDE))
    monkeypatch.setattr(requests, "reply", reply)
    handles = [place.client.submit(observations(count, spec=WIDE)) for count in (5, 7, 6)]
    with serving(place.server):
        assert len(place.client.result(handles[0], timeout_s=PATIENCE_S).logits) == 5
        assert len(place.client.result(handles[2], timeout_s=PATIENCE_S).logits) == 6
        with pytest.raises(EvaluatorFailure, match="its evaluation failed: LookupError: seven"):
            place.client.result(handles[1], timeout_s=PATIENCE_S)


def sections(games: int, leaves_per_step: int = 1) -> RunSections:
    search = SearchConfig(num_simulations=8, leaves_per_step=leaves_per_step)
    return RunSections(run=RunConfig(game="wide"), search=search, selfplay=SelfPlayConfig(games_in_flight=games, evaluator="uniform"))


def test_self_play_makes_more_groups_rather_than_larger_requests() -> None:
    searches = Arenas().searches(GAME, sections(1024), 1024)
    assert [search.num_slots for search in searches] == [342, 341, 341]
    assert [search.num_slots for search in Arenas().searches(GAME, sections(8), 8)] == [4, 4]
    group = GameGroup(searches[0], GAME, 1)
    assert most_leaves(GAME.packed_size(), WIDE.num_actions, 1) >= group.search.num_slots


def test_leaves_of_one_game_that_outgrow_a_message_are_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"leaves_per_step = 600 .* 511 do; lower search.leaves_per_step"):
        Arenas().searches(GAME, sections(4, leaves_per_step=600), 4)


def test_a_match_asks_for_as_much_as_fits() -> None:
    searcher = Searcher(GAME, UniformEvaluator(8192), SearchConfig(leaves_per_step=4), 4)
    assert searcher._slots == MOST // 4
    assert np.prod(searcher._packed.shape) == (MOST // 4) * 4 * GAME.packed_size()
