"""The verifier's process: answers requests that come through a pipe, and holds torch so that a gateway need not.

`azq.parts.volunteers.judges` starts it; both ends import the messages from here, and torch only what runs in it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from azq._core import Game
from azq.errors import AzqError, ExitCode
from azq.parts.volunteers.backing import MatchOrder, Returned
from azq.parts.volunteers.plausibility import Implausible, Known, Outdated, Replayed, SearchOrder, check
from azq.parts.volunteers.standing import MORE_CHECKS, Judgement, checks_of, disagrees
from azq.search.recomputation import ChosenPly, Difference, Evaluate, Outputs, differs, recompute
from azq.wire.messages import RunRecord

if TYPE_CHECKING:
    import redis

    from azq.config import Config, RunSections
NEWEST_VERSIONS = 50  # of the weights, that games may be played with, besides what serves and what served before it
RESIDENT_VERSIONS = 8
MOST_RUNS = 4  # with their weights, at once


class JudgeRequest(msgspec.Struct, frozen=True, tag=True):
    """Games of one contributor."""

    run: RunRecord
    search: bytes  # settings that the tabs were told, as JSON
    share: float
    games: tuple[Returned, ...]
    match: MatchOrder | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """There is no answer now, and why."""

    reason: str


class JudgedBatch(msgspec.Struct, frozen=True, tag=True):
    """The answer to a `JudgeRequest`."""

    judgement: Judgement


Answer = JudgedBatch | Failed


def main(pipe: int) -> int:
    """Answers until the other end is closed; returns an exit code. Raises what connecting to the control plane raises."""
    from azq.bus.redis import connect_at_start
    from azq.config import forget_environment, load

    config = load()
    with Connection(pipe) as requests, closing(connect_at_start(config.broker)) as client, suppress(EOFError):
        forget_environment()
        runs = RunVerifications(config, client)
        while True:
            requests.send_bytes(msgspec.msgpack.encode(_answer(runs.judge, requests.recv_bytes())))
    return int(ExitCode.OK)


def _answer(judge: Callable[[JudgeRequest], Judgement], body: bytes) -> Answer:
    try:
        return JudgedBatch(judge(msgspec.msgpack.decode(body, type=JudgeRequest)))
    except AzqError as error:
        return Failed(str(error))


class RunVerifications:
    """The verification of each run that games came from, with its weights in float32."""

    def __init__(self, config: Config, client: redis.Redis) -> None:
        self._config, self._client = config, client
        self._runs: dict[tuple[str, int], Opened] = {}

    def judge(self, request: JudgeRequest) -> Judgement:
        """The judgement on a request; raises `WeightsError`, `StoreError`, `ConfigError` or `BrokerError`."""
        from azq import _core
        from azq.config import SearchConfig
        from azq.ledger.records import sections_of
        from azq.parts.volunteers.plausibility import SearchOrder

        sections = sections_of(request.run)
        game = _core.load_game(sections.run.game, sections.run.params)
        key = request.run.run, request.run.created_ms
        if key not in self._runs:
            while len(self._runs) >= MOST_RUNS:
                del self._runs[next(iter(self._runs))]
            self._runs[key] = _uniform(game) if sections.selfplay.evaluator == "uniform" else self._opened(request.run, sections, game)
        verification, versions = self._runs[key]
        search, match = SearchConfig.model_validate_json(request.search), request.match
        order = SearchOrder.of_match(game, search, match) if match else SearchOrder.of(game, sections, search, versions())
        return verification.judge(order, request.share, request.games)

    def _opened(self, run: RunRecord, sections: RunSections, game: Game) -> Opened:
        from azq.bus.promotions import needed
        from azq.bus.redis import RedisBus
        from azq.config import InferenceConfig
        from azq.inference.ask.local import CatalogSource
        from azq.inference.device.engine import Engine
        from azq.inference.device.model import Model
        from azq.inference.weights import WeightCatalog, fetch_from
        from azq.nets import NetSpec
        from azq.nets.device import prepare_process
        from azq.store import open_run_store

        prepare_process(1)
        exact = InferenceConfig(device="cpu", precision="float32", compile=False, threads=1)
        spec, engine = NetSpec.of(game), Engine(exact)
        catalog = WeightCatalog(RedisBus(self._client), run.run, gated=sections.arena.promotes)
        fetch = fetch_from(open_run_store(self._config.store, run, self._config.home, self._client))
        source = CatalogSource(catalog, lambda network: Model(spec, network, engine), fetch, RESIDENT_VERSIONS)

        def versions() -> list[int]:
            catalog.refresh()
            return [event.version for event in catalog.newest_first()[:NEWEST_VERSIONS]] + list(needed(catalog.promotions.events))

        return Verification(lambda version, packed: source(version).evaluate(packed)), versions


def _uniform(game: Game) -> Opened:
    """For runs whose leaves are all evaluated alike."""

    def evaluate(version: int, packed: NDArray[np.uint8]) -> Outputs:
        return np.zeros((len(packed), game.num_distinct_actions()), np.float16), np.zeros((len(packed), game.value_size()), np.float16)

    return Verification(evaluate), lambda: [0]


COPIED = "its moves are those of another game"


@dataclass(eq=False)
class Verification:
    """Judges batches of one run; `choice` decides which plies, and nobody may foresee it."""

    evaluate: Evaluate
    choice: random.Random = field(default_factory=random.SystemRandom)
    known: Known = field(default_factory=Known)

    def judge(self, order: SearchOrder, share: float, games: Sequence[Returned]) -> Judgement:
        """The judgement on games of one contributor, of whose plies this share is searched again; raises what `evaluate` raises."""
        replayed, refused, late = self._checked(order, games)
        plies = [ply for game in replayed for ply in game.own]
        found = self._recomputed(order, share, plies)
        refuses, differed = disagrees(found), sum(map(differs, found))
        if refuses:
            refused |= dict.fromkeys((game.uid for game in replayed), _said(found))
        return Judgement(
            returns={} if refuses else {game.uid: game.returns for game in replayed},
            refused=refused | late,
            plies=len(plies),
            recomputed=len(found),
            differed=differed,
            fault=bool(refused),
        )

    def _checked(self, order: SearchOrder, games: Sequence[Returned]) -> tuple[list[Replayed], dict[int, str], dict[int, str]]:
        """Games that may be a search's; why others are not; why others, of which no more can be said, came too late."""
        replayed: list[Replayed] = []
        refused: dict[int, str] = {}
        late: dict[int, str] = {}
        for each in games:
            try:
                game = check(order, each)
                if not order.players:  # a match's games follow from their openings: equal ones are no copies
                    if self.known.copied(game):
                        raise Implausible(COPIED)
                    self.known.add(game)
                replayed.append(game)
            except Outdated as error:
                late[each.record.uid] = str(error)
            except Implausible as error:
                refused[each.record.uid] = str(error)
        return replayed, refused, late

    def _recomputed(self, order: SearchOrder, share: float, plies: Sequence[ChosenPly]) -> list[Difference]:
        """The first look, and a second one where a ply of the first differs: at its game, and at others."""
        order_of_looks = self.choice.sample(plies, len(plies))
        first, rest = order_of_looks[: (count := checks_of(len(plies), share))], order_of_looks[count:]
        found = recompute(order.game, order.seed, order.config, first, self.evaluate)
        suspects = {each.uid for each in found if differs(each)}
        if suspects and not disagrees(found):
            rest.sort(key=lambda ply: ply.uid not in suspects)
            found += recompute(order.game, order.seed, order.config, rest[:MORE_CHECKS], self.evaluate)
        return found


def _said(found: Sequence[Difference]) -> str:
    worst = max(filter(differs, found), key=lambda each: each.policy)
    return (
        f"{sum(map(differs, found))} of {len(found)} plies are not what their search gives: "
        f"game {worst.uid}, ply {worst.ply}: policy off by {worst.policy:.2g}, value by {worst.value:.2g}"
        + (", another action" if worst.action else "")
    )


Opened = tuple[Verification, Callable[[], list[int]]]  # and the versions that games may be played with


if __name__ == "__main__":
    from azq.process.start import run_main

    sys.exit(run_main("verifier", lambda: main(int(sys.argv[1]))))
