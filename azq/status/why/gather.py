"""The one reader: what is recorded of a run, and what its rules say by themselves, becomes facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import RunSections
from azq.errors import IllegalActionError, NotFound, WireError
from azq.games import Game, State
from azq.replay.readers import SegmentReader
from azq.samples.played import read_games
from azq.status.conditions import crash_loops, mendings, read_deaths
from azq.status.history import read
from azq.status.observe import Standings, read_standing
from azq.status.strength import WITHOUT_ERRORS, not_learning
from azq.status.why.facts import Counted, Facts, ProbeFacts, curve_facts, error_share, played_facts
from azq.status.why.rules import LearningFault, blind, findings
from azq.wire.messages import GradeResult, HistoryPoint, SampleEvent

GAMES = 2_000  # the newest
OPENING_PLIES = 4


def facts_of(
    game: Game | None,
    settings: RunSections,
    events: Sequence[SampleEvent],
    points: Sequence[HistoryPoint] = (),
    grades: Sequence[GradeResult] = (),
) -> Facts:
    """The facts of a run; without rules, games or a history those that are left. Raises `IllegalActionError` for games of other rules."""
    curves, errors = curve_facts(settings, points), error_share(grades) if settings.run.game not in WITHOUT_ERRORS else None
    if game is None or not events:
        return Facts(settings, None, curves, None, errors)
    played = played_facts(game, read_games(game, events, OPENING_PLIES), events, OPENING_PLIES)
    return Facts(settings, played, curves, probe(game, OPENING_PLIES), errors)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What keeps a run from learning, causes first; empty where nothing was found."""

    findings: list[LearningFault]
    games: int  # that were looked at; 0: none, or not on this host
    steps: int | None  # of the history that was looked at; None: none is known
    note: str = ""  # what could not be looked at, and why
    blind: dict[str, tuple[str, ...]] = field(default_factory=dict)  # what is missing -> the rules that could not look
    no_games: str = ""  # why a run has none
    headline: str = ""  # the first finding in one sentence
    dying: tuple[str, ...] = ()  # processes that die again and again, and what was wrong with the ledger's keys


def diagnose(
    bus: Bus | None, run: str, settings: RunSections, game: Game | None, reader: SegmentReader, *, games: int = GAMES, note: str = ""
) -> Diagnosis:
    """Reads a run's log and, where there is a control plane, its history. Raises `BrokerError`, `StoreError`."""
    try:
        events = list(reader.last(games)) if game is not None else []
    except NotFound:  # no game yet, or none on this host: the curves tell something, too
        events = []
    dying = (*map(str, crash_loops(read_deaths(bus), now_ms(), run)), *mendings(bus, run, now_ms())) if bus is not None else ()
    recorded = (read(bus, run, 0), read_standing(bus, run, Standings()).grades) if bus is not None else ()
    try:
        facts = facts_of(game, settings, events, *recorded)
    except (IllegalActionError, WireError) as error:  # recorded under other rules than the run has now
        events, note = [], f"games are not looked at: {error}"
        facts = facts_of(None, settings, events, *recorded)
    faults, step = findings(facts), facts.curves.step if facts.curves else None
    worst = not_learning(faults[0].evidence, sure=faults[0].confidence == "high") if faults else ""
    return Diagnosis(faults, len(events), step, note, blind(facts), headline=worst, dying=dying)


RANDOM_GAMES = 200
RANDOM_PLIES = 20_000  # in all: a game in Python takes 20 us for one
NODES = 20_000  # positions in which perfect play is looked for
MOST_OPENINGS = 64  # that are distinguished


def probe(game: Game, opening_plies: int) -> ProbeFacts:
    """Plays at random with a fixed seed, and searches small games to their ends."""
    rng, plies = np.random.default_rng(0), 0
    results: list[list[float]] = []
    while len(results) < RANDOM_GAMES and plies < RANDOM_PLIES:
        state = game.new_initial_state()
        while not state.is_terminal():
            state.apply_action(_random(state, rng))
            plies += 1
        results.append(state.returns())
    best = [[seat for seat, value in enumerate(result) if value == max(result)] for result in results]
    return ProbeFacts(
        random_shared=Counted(sum(len(seats) > 1 for seats in best), len(best)),
        random_rewarded=Counted(sum(any(result) for result in results), len(results)),
        random_wins=tuple(sum(seats == [seat] for seats in best) for seat in range(game.num_players())),
        openings=_openings(game.new_initial_state(), opening_plies),
        perfect=_perfect(game),
    )


def _random(state: State, rng: np.random.Generator) -> int:
    if state.is_chance_node():
        actions, chances = zip(*state.chance_outcomes(), strict=True)
        return int(rng.choice(actions, p=np.array(chances) / sum(chances)))
    return int(rng.choice(state.legal_actions()))


def _openings(state: State, plies: int) -> int:
    if not plies or state.is_terminal():
        return 1
    count = 0
    for action in state.legal_actions():
        after = state.clone()
        after.apply_action(action)
        count += _openings(after, plies - 1)
        if count >= MOST_OPENINGS:
            break
    return min(count, MOST_OPENINGS)


@dataclass(slots=True)
class _Spent:
    nodes: int = 0


def _perfect(game: Game) -> float | None:
    """The first player's result of perfect play, of two who know everything; None where it takes too long to find."""
    if game.num_players() != 2 or game.is_chance() or game.is_hidden():
        return None
    state = game.new_initial_state()
    try:
        value = _best(state, -1.0, 1.0, _Spent())
    except _TooLarge:
        return None
    return value if state.current_player() == 0 else -value


class _TooLarge(Exception):  # ends a search, and never leaves this file
    pass


def _best(state: State, low: float, high: float, spent: _Spent) -> float:
    """The value for the player to move (alpha-beta)."""
    spent.nodes += 1
    if spent.nodes > NODES:
        raise _TooLarge
    player, best = state.current_player(), -1.0
    for action in state.legal_actions():
        after = state.clone()
        after.apply_action(action)
        if after.is_terminal():
            value = after.returns()[player]
        elif after.current_player() == player:
            value = _best(after, low, high, spent)
        else:
            value = -_best(after, -high, -low, spent)
        best = max(best, value)
        low = max(low, best)
        if low >= high:
            break
    return best
