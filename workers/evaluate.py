"""The Celery task `azq.eval`: a match between two players, or a player's moves graded on solved positions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import msgspec
from celery.exceptions import Ignore

from azq import logs, pretrained
from azq.arena import grade as grading
from azq.arena import match as matches
from azq.arena.player import Ground
from azq.arena.players import make_player
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import InferenceConfig, RunSections, SearchConfig
from azq.errors import AzqError, EngineError, JobFailed, MissingExtra, reason_of
from azq.games import Game, GameFiles
from azq.ledger import Ledger
from azq.ledger.records import sections_of
from azq.ledger.types import Directive, Lease
from azq.ratings import positions
from azq.search.evaluator import Evaluator
from azq.status.observe import serving_version
from azq.wire.codec import decode_either, encode
from azq.wire.messages import LATEST, GradeResult, GradeSpec, MatchResult, MatchSpec
from workers.context import Context, Interrupted

log = logs.get(__name__)


class Revoked(AzqError):
    """The run or the job was stopped, so this result is of no use."""


class Renewal:
    """The tick of a long evaluation: renews the lease when due and ends the work when it should end."""

    def __init__(self, ledger: Ledger, lease: Lease, stopping: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._lease = lease
        self._stopping = stopping
        self._clock = clock
        self._renewed_s = clock()

    def __call__(self) -> None:
        """Raises `Interrupted`, `Revoked` or `LeaseLost`."""
        if self._stopping():
            raise Interrupted("the worker was stopped")
        if self._clock() - self._renewed_s >= self._lease.lease_s / 4:
            self._renewed_s = self._clock()
            if self._ledger.renew(self._lease) is Directive.RELEASE:
                raise Revoked("the run or the job was stopped")


def run(context: Context, job_id: str, attempt: int) -> MatchResult | GradeResult:
    """Evaluates and commits the result. Raises what `Context.work` does, `Ignore` also where the work was given up."""
    return context.work(job_id, attempt, lambda lease: _commit(context, lease))


def _commit(context: Context, lease: Lease) -> MatchResult | GradeResult:
    ledger = context.ledger
    record = ledger.run(lease.job.run).record
    sections = sections_of(record)
    game, tick = context.game(sections), Renewal(ledger, lease, context.stopping)
    with closing(context.evaluator(record, sections, game)) as evaluator:
        try:
            latest = serving_version(RedisBus(context.control), record.run, gated=sections.arena.promotes)
            result = evaluate(
                lease,
                sections,
                game,
                evaluator,
                latest,
                tick,
                engines=context.config.worker.engines,
                home=context.config.home,
                inference=context.config.inference,
            )
        except Revoked as error:
            log.info("evaluation_revoked", job=lease.job.job_id, reason=str(error))
            ledger.release(lease, [])
            raise Ignore(str(error)) from None
    problem = ""
    if isinstance(result, MatchResult):
        result, problem = msgspec.structs.replace(result, worker=lease.owner), result.error
    ledger.complete(lease, encode(result), problem)
    log.info("evaluated", job=lease.job.job_id, result=summary(result))
    if problem:
        raise JobFailed(problem)
    return result


def evaluate(
    lease: Lease,
    sections: RunSections,
    game: Game,
    evaluator: Evaluator,
    latest: int,
    tick: Callable[[], None],
    engines: Sequence[str] = (),
    home: Path | None = None,
    inference: InferenceConfig | None = None,
) -> MatchResult | GradeResult:
    """The result of the job's spec; `engines` are the commands that this host's operator lets jobs start.

    An engine that fails ends its match with a result that says so, and its job for good: the next attempt would meet the same engine.
    Raises `WireError` for a payload of neither kind.
    """
    spec = decode_either(lease.job.payload, MatchSpec, GradeSpec)
    ground = Ground(game, evaluator, sections.search, spec.num_simulations, seed=spec.seed, latest=latest, tick=tick, engines=engines)
    if isinstance(spec, GradeSpec):
        return _grade(spec, ground, positions.load(sections.run.game, sections.run.params, home))
    try:
        return _match(spec, ground, inference or InferenceConfig())
    except (EngineError, MissingExtra) as error:
        log.error("match_failed", job=lease.job.job_id, first=spec.first, second=spec.second, reason=str(error))
        return matches.failed(spec, reason_of(error))


def _match(spec: MatchSpec, ground: Ground, inference: InferenceConfig) -> MatchResult:
    slots = matches.whole_groups(spec.games, ground.game.num_players())
    with ExitStack() as stack:
        players = []
        for place, name in enumerate((spec.first, spec.second)):
            own = _own_ground(name, replace(ground, slots=slots, seed=spec.seed + place), inference, stack)
            players.append(stack.enter_context(closing(make_player(name, own))))
        return matches.play_match(spec, ground.game, *players)


def _own_ground(name: str, ground: Ground, inference: InferenceConfig, stack: ExitStack) -> Ground:
    """The same, but for a player whose weights come with azq: these are evaluated in this process. Raises `EngineError`."""
    if (shipped := pretrained.named(name)) is None:
        return ground
    from azq.inference.ask.local import LocalEvaluator  # torch, which no other player asks of this process

    try:
        card, path = pretrained.card(shipped), pretrained.verified(shipped)
    except AzqError as error:
        raise EngineError(reason_of(error)) from None
    rules = GameFiles().load(card.game, card.params)  # a game of the core
    if (rules.name, rules.params) != (ground.game.name, ground.game.params):
        raise EngineError(
            f"player {name} plays {rules.name} with {rules.params}; the run plays {ground.game.name} with {ground.game.params}"
        )
    evaluator = LocalEvaluator.from_file(rules, path, inference)
    stack.callback(evaluator.close)
    search = SearchConfig.model_validate(card.search)
    return replace(ground, evaluator=evaluator, search=search, latest=evaluator.weight_version, owner=name)


def _grade(spec: GradeSpec, ground: Ground, every: Sequence[positions.Position]) -> GradeResult:
    chosen = positions.choose(every, spec.positions, spec.seed)
    player = make_player("latest" if spec.weight_version == LATEST else f"weights:{spec.weight_version}", ground)
    marks = grading.marks(ground.game, player, chosen)
    grade = grading.summarise(marks)
    became = {
        position.source: positions.PositionMark.LOST if mark.loses_class else positions.PositionMark.KEPT
        for position, mark in zip(chosen, marks, strict=True)
    }
    version = spec.weight_version or ground.latest
    return GradeResult(
        version,
        spec.num_simulations,
        grade.positions,
        grade.errors,
        now_ms(),
        dict(grade.by_class),
        grade.mean_loss,
        dict(grade.loss_by_class),
        bytes(became.get(position.source, positions.PositionMark.NOT_GRADED) for position in every),
    )


def summary(result: MatchResult | GradeResult) -> str:
    """A result in a few words."""
    if isinstance(result, MatchResult) and result.error:
        return f"{result.first} - {result.second} failed: {result.error}"
    if isinstance(result, MatchResult):
        return f"{result.first} - {result.second}: {result.wins} won, {result.draws} drawn, {result.losses} lost"
    return f"weights:{result.weight_version} lost a result class in {result.errors} of {result.positions} positions"
