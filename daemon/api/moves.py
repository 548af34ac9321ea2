"""Moves: what a run's networks play in positions that somebody asks about, and the levels at which they can."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Request, Response

from azq import games
from azq.arena.analyse import softmax, texts_of
from azq.arena.levels import Level, Playable, best_version, drawn, ladder, nearest, playable
from azq.arena.player import position, requested_history
from azq.arena.searcher import Searcher
from azq.bus.catalog import ModelCatalog
from azq.config import RunSections, SearchConfig
from azq.errors import AzqError, EvaluationTimeout, InvalidRequest, NotFound
from azq.ledger.records import sections_of
from azq.search.evaluator import joined
from azq.search.search import Result
from azq.status.observe import read_standing
from azq.status.schemas import CandidateOut, MoveOut, MovesAsked, MovesOut
from azq.status.strength import Standing
from azq.wire.messages import Heartbeat, RunRecord
from daemon.api.access import READ
from daemon.api.events import QUESTION
from daemon.api.limits import Turns
from daemon.api.recorded import rules_of
from daemon.api.services import Services, Use
from daemon.api.weights import MEDIA_TYPE, find_weights

router = APIRouter(prefix="/v1/runs/{run}", tags=["moves"])

SEARCHES, QUEUE = 2, 16  # requests searched at once, and those that wait; beyond that 429
MOST_SIMULATIONS = 3200  # of a position
SLOTS = 8  # positions searched at once: bounds the memory of a request
STEPS = 32  # round trips of an answer, about, between these numbers of leaves of a tree under way at once
LEAVES_PER_STEP = (8, 32)
DEADLINE_S = 30.0
SILENT_S = 3.0  # until it is looked whether any inference worker can answer, and between looks
SEED_BITS = 63
FILE: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}}


@router.get("/levels", dependencies=[READ])
def run_levels(run: str, use: Use) -> list[Level]:
    """The levels at which the run's networks can play, weakest first, by its ratings; none before the first evaluation."""
    return _levels(use, run, sections_of(use.wanted_record(run)))


@router.get("/networks", dependencies=[READ])
def run_networks(run: str, use: Use) -> Playable:
    """What a page needs to play with the run's networks itself: those that were made for browsers, search settings, levels."""
    record = use.ledger.run(run).record
    return playable(run, sections_of(record), ModelCatalog(use.bus, run).all(), _standing(use, run).ratings)


@router.get("/networks/{sha256}", response_class=Response, responses=FILE, dependencies=[READ])
def read_network(run: str, sha256: Annotated[str, Path(pattern="^[0-9a-f]{64}$")], use: Use) -> Response:
    """One of them, as browsers take it."""
    record = use.ledger.run(run).record
    for model in ModelCatalog(use.bus, run).all():
        if model.sha256 == sha256:
            return Response(use.store_of(record, use.home).get(model.uri, sha256), media_type=MEDIA_TYPE)
    raise NotFound(f"run {run} has no network {sha256} for browsers; `networks` lists them")


@router.post("/moves", dependencies=[READ, QUESTION])
async def find_moves(run: str, body: MovesAsked, request: Request, use: Use) -> MovesOut:
    """The best move in each position, as a search with the run's weights sees it; changes nothing, and read tokens may ask."""
    turns: Turns = request.app.state.turns
    full = f"{QUEUE} searches wait already; ask again later"
    return await turns.take(lambda: _answer(run, body, use, turns), full)


def _answer(run: str, body: MovesAsked, use: Services, turns: Turns) -> MovesOut:
    record = use.wanted_record(run)
    sections = sections_of(record)
    game = rules_of(sections.run)
    strength, versions = _strength(body, use, run, sections)
    histories = [_history(game, number, wanted.actions, wanted.position) for number, wanted in enumerate(body.positions)]
    luck = random.Random(body.seed) if body.seed is not None else random.SystemRandom()
    results = _searched(use, turns, record, sections, game, strength, versions, histories, luck.getrandbits(SEED_BITS))
    moves = [
        _move_out(position(game, history), result, line, strength.temperature, luck)
        for history, (result, line) in zip(histories, results, strict=True)
    ]
    return MovesOut(
        weight_version=strength.weight_version,
        num_simulations=strength.num_simulations,
        temperature=strength.temperature,
        elo=None if body.level is None else strength.elo,
        moves=moves,
    )


def _levels(use: Services, run: str, sections: RunSections) -> list[Level]:
    return ladder(_standing(use, run).ratings, sections.arena.num_simulations, MOST_SIMULATIONS)


def _standing(use: Services, run: str) -> Standing:
    return read_standing(use.bus, run, use.standings)


def _strength(body: MovesAsked, use: Services, run: str, sections: RunSections) -> tuple[Level, Sequence[int]]:
    """What the request asks for, settled, and the versions of the weights that play together.

    Raises `NotFound` for weights that are not, `InvalidRequest` for too large a budget.
    """
    if body.num_simulations > MOST_SIMULATIONS:
        raise InvalidRequest(f"num_simulations {body.num_simulations} is above {MOST_SIMULATIONS}, the most a position gets")
    if body.level is not None:
        level = nearest(_levels(use, run, sections), body.level)
        return level, (level.weight_version,)
    named = body.weights
    if named == "best":
        named = best_version(_standing(use, run).ratings) or "latest"
    versions = [find_weights(use, run, name).version for name in str(named).split(",")]
    return Level(math.nan, max(versions), body.num_simulations, body.temperature, measured=False), versions


def _history(game: games.Game, number: int, actions: Sequence[int], notation: str | None) -> Sequence[int]:
    try:
        return requested_history(game, actions, notation)
    except AzqError as error:
        raise InvalidRequest(f"positions.{number}: {error}") from None


def _searched(
    use: Services,
    turns: Turns,
    record: RunRecord,
    sections: RunSections,
    game: games.Game,
    strength: Level,
    versions: Sequence[int],
    histories: Sequence[Sequence[int]],
    seed: int,
) -> list[tuple[Result, list[int]]]:
    """Raises `EvaluationTimeout` where answers take too long, or none can come: the daemon stops, or no inference worker is there."""
    began_s = time.monotonic()
    look_at_s = began_s + (SILENT_S if sections.selfplay.evaluator == "stream" else DEADLINE_S)

    def tick() -> None:
        nonlocal look_at_s
        if turns.closing:
            raise EvaluationTimeout("the daemon is stopping; ask its successor")
        now_s = time.monotonic()
        if now_s > look_at_s:
            look_at_s = now_s + SILENT_S
            if reason := unanswerable(use.workers(), record.run):
                raise EvaluationTimeout(reason)
        if now_s > began_s + DEADLINE_S:
            raise EvaluationTimeout(f"no moves within {DEADLINE_S:.0f} s: the inference workers are busy; ask for fewer simulations")

    with closing(use.evaluator_of(record, sections, game)) as evaluator:
        searcher = Searcher(
            game,
            joined(evaluator, versions),
            for_latency(sections.search, game, strength.num_simulations),
            strength.num_simulations,
            slots=min(SLOTS, len(histories)),
            weight_version=strength.weight_version,
            seed=seed,
            tick=tick,
        )
        return searcher.results_and_lines(histories)


def unanswerable(beats: Sequence[Heartbeat], run: str) -> str:
    """Why no live process evaluates for a run, and what to do; empty: one does, or may soon. Pure."""
    servers = [beat for beat in beats if beat.role == "inference"]
    if not servers:
        return f"no inference worker is alive to search for run {run}; start one: `azq inference`"
    refused = [f"{beat.host}: {beat.unserved[run]}" for beat in servers if run in beat.unserved]
    return f"no inference worker serves run {run}; {refused[0]}" if len(refused) == len(servers) else ""


def for_latency(search: SearchConfig, game: games.Game, num_simulations: int) -> SearchConfig:
    """The run's search with several leaves of a tree under way at once, where its game allows that. Pure."""
    least, most = LEAVES_PER_STEP
    leaves = 1 if game.is_hidden() else min(most, max(least, num_simulations // STEPS))
    return search.model_copy(update={"leaves_per_step": leaves})


def _move_out(state: games.State, result: Result, line: list[int], temperature: float, luck: random.Random) -> MoveOut:
    """A result in texts; with a temperature the move is drawn, and the line is that of the best one all the same."""
    best = int(result.best_action)
    action = best if not temperature else drawn([float(share) for share in result.policy], temperature, luck)
    player, text = state.current_player(), state.action_to_string(action)
    priors = softmax(result.prior_logits)
    candidates = [
        CandidateOut(
            action=legal,
            text=state.action_to_string(legal),
            visits=int(result.visit_counts[legal]),
            share=round(float(result.policy[legal]), 6),
            prior=round(float(priors[legal]), 6),
            value=None if np.isnan(result.q_values[legal]) else round(float(result.q_values[legal]), 6),
        )
        for legal in sorted(
            state.legal_actions(), key=lambda action: (action != best, -result.policy[action], -result.visit_counts[action])
        )
    ]
    return MoveOut(
        player=player,
        action=action,
        text=text,
        value=float(result.root_value),
        proven=bool(result.proven),
        candidates=candidates,
        principal_variation=line,
        principal_variation_texts=texts_of(state, line),
    )
