"""The judge of a gateway, and its process: that searches plies again, and holds torch so that the gateway need not."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from azq import logs
from azq._core import Game
from azq.errors import AzqError, EvaluationTimeout, EvaluatorFailure, ExitCode, NotFound
from azq.parts.volunteers.contributor_store import ContributorStore
from azq.parts.volunteers.handouts import GamesBatch, GamesVerdict, MatchOrder, Returned
from azq.parts.volunteers.plausibility import Implausible, Outdated, Replayed, SearchOrder, check
from azq.parts.volunteers.reputation import MORE_CHECKS, ContributorStanding, Judgement, after_batch, checks_of, most_wrong, standing_of
from azq.process.start import PYTHON, bound_to_this
from azq.search.recomputation import ChosenPly, Difference, Evaluate, Outputs, differs, distance, recompute
from azq.waiting import AwakeClock
from azq.wire.messages import RunRecord

if TYPE_CHECKING:
    import redis

    from azq.config import Config, RunSections

COMMAND = (*PYTHON, "-m", "azq.parts.volunteers.verifier")
ANSWER_AFTER_S = 300.0
POLL_S = 1.0
TRIES = 3  # of a batch, each by another process where one died over it
NEWEST_VERSIONS = 50  # of the weights, that games may be played with, besides what serves and what served before it
MOST_RUNS = 4  # with their weights, at once

log = logs.get(__name__)


class JudgeRequest(msgspec.Struct, frozen=True, tag=True):
    """Games of one contributor."""

    run: RunRecord
    search: bytes  # settings as the tabs had them, as JSON
    share: float
    games: tuple[Returned, ...]
    match: MatchOrder | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """There is no answer now, and why."""

    reason: str


Answer = Judgement | Failed


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
        return judge(msgspec.msgpack.decode(body, type=JudgeRequest))
    except AzqError as error:
        return Failed(str(error))


class RunVerifications:
    """The verification of each run that games came from, as tabs evaluate: in whole numbers, or float32 where a network lacks that form."""

    def __init__(self, config: Config, client: redis.Redis) -> None:
        self._config, self._client = config, client
        self._runs: dict[tuple[str, int], Opened] = {}

    def judge(self, request: JudgeRequest) -> Judgement:
        """The judgement on a request; raises `WeightsError`, `StoreError`, `ConfigError` or `BrokerError`."""
        from azq import _core
        from azq.config import SearchConfig
        from azq.ledger.records import sections_of

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
        from azq.inference.device.native import NativeForward, fastest_kernel
        from azq.inference.weights import RESIDENT_VERSIONS, WeightCatalog, fetch_from
        from azq.nets import NetSpec
        from azq.nets.device import prepare_process
        from azq.nets.whole import has_whole_form
        from azq.store import open_run_store

        prepare_process(1)
        exact = InferenceConfig(device="cpu", precision="float32", compile=False, threads=1)
        spec, engine = NetSpec.of(game), Engine(exact)
        catalog = WeightCatalog(RedisBus(self._client), run.run, gated=sections.arena.promotes)
        fetch = fetch_from(open_run_store(self._config.store, run, self._config.home, self._client))
        source = CatalogSource(catalog, lambda network: Model(spec, network, engine), fetch)

        def versions() -> list[int]:
            catalog.refresh()
            return [event.version for event in catalog.newest_first()[:NEWEST_VERSIONS]] + list(needed(catalog.promotions.events))

        @lru_cache(RESIDENT_VERSIONS)
        def in_whole_numbers(version: int) -> NativeForward | None:
            network = source(version).reference
            return NativeForward(fastest_kernel(), network, lambda: 1) if has_whole_form(network) else None

        def evaluate(version: int, packed: NDArray[np.uint8]) -> Outputs:
            forward = in_whole_numbers(version)
            return source(version).evaluate(packed) if forward is None else forward.launch(packed).wait()

        return Verification(evaluate, exact=lambda version: in_whole_numbers(version) is not None), versions


def _uniform(game: Game) -> Opened:
    """For runs whose leaves are all evaluated alike."""

    def evaluate(version: int, packed: NDArray[np.uint8]) -> Outputs:
        return np.zeros((len(packed), game.num_distinct_actions()), np.float16), np.zeros((len(packed), game.value_size()), np.float16)

    return Verification(evaluate), lambda: [0]


@dataclass(eq=False)
class Verification:
    """Judges batches of one run; `choice`, which tabs must not foresee, decides which plies are searched again."""

    evaluate: Evaluate
    choice: random.Random = field(default_factory=random.SystemRandom)
    exact: Callable[[int], bool] = lambda version: True  # whether a version is evaluated to the same bits everywhere

    def judge(self, order: SearchOrder, share: float, games: Sequence[Returned]) -> Judgement:
        """The judgement on games of one contributor, of whose plies this share is searched again; raises what `evaluate` raises."""
        replayed, refused, late = self._checked(order, games)
        plies = [ply for game in replayed for ply in game.own]
        exact = all(map(self.exact, {ply.version for ply in plies}))
        recomputed, wrong = self._recomputed(order, share, plies, exact)
        if refuses := len(wrong) > most_wrong(recomputed, exact):
            refused |= dict.fromkeys((game.uid for game in replayed), _deviation(wrong, recomputed))
        return Judgement(
            returns={} if refuses else {game.uid: game.returns for game in replayed},
            refused=refused | late,
            plies=len(plies),
            recomputed=recomputed,
            differed=len(wrong),
            fault=bool(refused),
            rounded=not exact,
        )

    def _checked(self, order: SearchOrder, games: Sequence[Returned]) -> tuple[list[Replayed], dict[int, str], dict[int, str]]:
        """Games that a search may have made; why others cannot be; why others, which cannot be checked any more, came too late."""
        replayed: list[Replayed] = []
        refused: dict[int, str] = {}
        late: dict[int, str] = {}
        for returned in games:
            try:
                replayed.append(check(order, returned))
            except Outdated as error:
                late[returned.record.uid] = str(error)
            except Implausible as error:
                refused[returned.record.uid] = str(error)
        return replayed, refused, late

    def _recomputed(self, order: SearchOrder, share: float, plies: Sequence[ChosenPly], exact: bool) -> tuple[int, list[Difference]]:
        """How many plies, chosen by chance, and which differ; in floats, where a few do, also of others, those of their games first."""
        shuffled, count = self.choice.sample(plies, len(plies)), checks_of(len(plies), share, exact)
        first, rest = shuffled[:count], shuffled[count:]
        differences = recompute(order.game, order.seed, order.config, first, self.evaluate)
        wrong = [difference for difference in differences if differs(difference, exact=exact)]
        if 0 < len(wrong) <= most_wrong(count, exact):
            rest.sort(key=lambda ply: ply.uid not in {difference.uid for difference in wrong})
            more = recompute(order.game, order.seed, order.config, rest[:MORE_CHECKS], self.evaluate)
            return count + len(more), wrong + list(filter(differs, more))
        return count, wrong


def _deviation(wrong: Sequence[Difference], recomputed: int) -> str:
    worst = max(wrong, key=distance)
    return (
        f"{len(wrong)} of {recomputed} plies are not what their search gives: "
        f"game {worst.uid}, ply {worst.ply}: policy off by {worst.policy:.2g}, value by {worst.value:.2g}"
        + (", another action" if worst.action else "")
    )


class Judge(Protocol):
    """Decides about batches, one at a time; may take seconds, in a thread that has nothing else to do."""

    def batch_games(self, contributor: str) -> int:
        """How many of a contributor's finished games are judged together, at least one; answers at once."""
        ...

    def judge(self, batch: GamesBatch) -> GamesVerdict:
        """The verdict. Raises `AzqError` where there can be none now; the batch is judged again later."""
        ...


class VerifyingJudge(Judge):
    """Judges by recomputation: a batch of which a ply differs, or in floats three, is refused as a whole."""

    def __init__(self, contributors: ContributorStore, verifier: VerifierProcess) -> None:
        self._contributors = contributors
        self._verifier = verifier

    def standing(self, contributor: str) -> ContributorStanding:
        """What a contributor's games must pass now."""
        return standing_of(self._contributors.history(contributor))

    def batch_games(self, contributor: str) -> int:
        """As many games as hold the plies of a full batch, by the length of the contributor's games so far."""
        history = self._contributors.history(contributor)
        return max(1, round(standing_of(history).batch_plies / history.mean_plies))

    def judge(self, batch: GamesBatch) -> GamesVerdict:
        """The verdict; the contributor's history has it. Raises `EvaluatorFailure` or `EvaluationTimeout` where there can be none now."""
        standing = self.standing(batch.contributor)
        if reason := standing.reason or self._contributors.refusal(batch.contributor, len(batch.games)):
            return GamesVerdict({}, {game.record.uid: reason for game in batch.games})
        search = batch.search.model_dump_json().encode()
        judgement = self._verifier.judge(JudgeRequest(batch.run, search, standing.share, batch.games, batch.match))
        try:
            self._contributors.change(batch.contributor, lambda history: after_batch(history, judgement))
        except NotFound:
            return GamesVerdict({}, {game.record.uid: "this device was forgotten; load the page again" for game in batch.games})
        if judgement.fault:
            reason = next(iter(judgement.refused.values()))
            log.warning("contributor_refused", contributor=batch.contributor, games=len(judgement.refused), reason=reason)
        return GamesVerdict(judgement.returns, judgement.refused)


class VerifierProcess:
    """The process that searches plies again, started at the first request and after each death, with the request repeated."""

    def __init__(self, command: Sequence[str] = COMMAND, *, answer_after_s: float = ANSWER_AFTER_S) -> None:
        self._command = tuple(command)  # the number of its end of the pipe follows
        self._answer_after_s = answer_after_s
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def pid(self) -> int:
        """Of the process; 0 where there is none."""
        return self._running[0].pid if self._running else 0

    def judge(self, request: JudgeRequest) -> Judgement:
        """The judgement. Raises `EvaluatorFailure` where the process has none or died `TRIES` times over it, `EvaluationTimeout`."""
        question = msgspec.msgpack.encode(request)
        with self._one_at_a_time:
            for _ in range(TRIES):
                try:
                    answer = self._ask(question)
                    break
                except (EOFError, OSError):
                    log.warning("verifier_died", games=len(request.games))
                    self._end()
            else:
                raise EvaluatorFailure(f"the verifier died {TRIES} times over {len(request.games)} games; its log says why")
        if isinstance(answer, Failed):
            raise EvaluatorFailure(answer.reason)
        return answer

    def close(self) -> None:
        """Ends the process."""
        with self._one_at_a_time:
            self._end()

    def _ask(self, question: bytes) -> Answer:
        pipe = (self._running or self._start())[1]
        pipe.send_bytes(question)
        awake_s = AwakeClock()
        while not pipe.poll(min(POLL_S, self._answer_after_s)):
            if awake_s() >= self._answer_after_s:
                self._end()
                raise EvaluationTimeout(f"the verifier gave no answer within {self._answer_after_s:g} s; it is started again")
        answer: Answer = msgspec.msgpack.decode(pipe.recv_bytes(), type=Answer)
        return answer

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = socket.socketpair()
        with theirs:
            command, fds = [*self._command, str(theirs.fileno())], (theirs.fileno(),)
            process = subprocess.Popen(command, pass_fds=fds, start_new_session=True, **bound_to_this(os.environ))
        self._running = process, Connection(ours.detach())
        return self._running

    def _end(self) -> None:
        if self._running is not None:
            process, pipe = self._running
            self._running = None
            pipe.close()
            process.kill()
            process.wait()


Opened = tuple[Verification, Callable[[], list[int]]]  # and the versions that games may be played with


if __name__ == "__main__":
    from azq.process.start import run_main

    sys.exit(run_main("verifier", lambda: main(int(sys.argv[1]))))
