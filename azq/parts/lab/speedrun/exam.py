"""Exams of weights: each position's or game's loss, on the track's own sheet or on one made from a fresh seed."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from azq import games
from azq.arena.engines import gnubg
from azq.arena.engines.solver import SolverPlayer
from azq.arena.match import draw_outcome, play_match
from azq.arena.player import MAX_SLOTS
from azq.arena.regret import judged
from azq.arena.solve import Drawn, Table, by_notation
from azq.config import load
from azq.console.play import Seating, seated
from azq.games import Game
from azq.notation.units import unit
from azq.parts.lab.speedrun.rules import RUN, Track
from azq.ratings import positions
from azq.ratings.positions import Position, sign
from azq.wire.messages import MatchSpec

PACKAGES = {"solver": ("bitbully", "eval"), "gnubg": ("gnubg_nn", "gnubg")}  # that grade fresh positions, and the extras with them
OWN = 0  # the seed of a track's own sheet
MOST_STATES = 1_000_000  # of a game that is solved whole
STONES, CELLS = range(5, 39), 42  # on connect four's boards
EASY, MEDIUM = 14, 28  # plies to the end: fewer than the one, at most the other
ONE_IN, MOST_ENDS = 7, 80  # of backgammon's decisions, which resemble each other in a game; a turn with more ends costs more than it tells

Kind = tuple[str, bool]  # a position's class, and where that is certain whether the choice matters
Wanted = Counter[Kind]


def missing(track: Track) -> str:
    """What of a track cannot be done here, and the remedy; empty where all can."""
    kind, _, command = track.exam.partition(":")
    if kind == "gtp":
        return "" if engine(command) else f"its opponent is not here; install {command}"
    package, extra = PACKAGES.get(kind, ("", ""))
    return f"fresh positions need {package}; pip install 'azq[{extra}]'" if package and not importlib.util.find_spec(package) else ""


def engine(command: str) -> str | None:
    """Where a program lies, games of Debian among them."""
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/games")


def examine(track: Track, weights: Path, sheet: Sequence[Position], seed: int) -> list[float]:
    """Each position's or game's loss by weights in their run's folder. Raises what `seated` and players raise."""
    config = load(overrides=[f'home="{weights.absolute().parents[2]}"', "inference.threads=1"])
    seating = Seating(track.game, RUN, str(weights), track.num_simulations, seed=seed, slots=MAX_SLOTS)
    opponents = [] if sheet else [f"gtp:{engine(track.exam.partition(':')[2])}"]
    with seated(config, seating, ["latest", *opponents]) as (game, players):
        if opponents:
            spec = MatchSpec("latest", opponents[0], track.count, track.num_simulations, track.opening_plies, seed)
            result = play_match(spec, game, *players)
            return [0.0] * result.wins + [0.5] * result.draws + [1.0] * result.losses
        marks, _ = judged(game, players[0], sheet)
        return [round(unit(game).loss_scale * mark.loss, 4) if "gnubg" in track.exam else float(mark.loses_class) for mark in marks]


def sheet_of(track: Track, seed: int = OWN) -> list[Position]:
    """The track's own positions, or fresh ones of the same make; none where weights play an opponent.

    Raises `MissingExtra` and `EngineError` of what grades fresh ones.
    """
    game, (kind, _, _) = games.load(track.game, **track.params), track.exam.partition(":")
    if kind == "gtp":
        return []
    if kind == "solve":
        drawn = Drawn(track.count, seed)
        Table(by_notation, MOST_STATES, on_solved=drawn).solve(game.new_initial_state())
        return [Position(at.actions, {(action,): value for action, value in at.moves.items()}, "") for at in drawn.kept]
    own = positions.choose(positions.load(track.game), track.count, OWN)
    if seed == OWN:
        return own
    wanted, rng = Counter(map(kind_of, own)), random.Random(seed)
    return list(_solved(game, rng, wanted) if kind == "solver" else _rolled(game, track.exam, rng, wanted))


def kind_of(position: Position) -> Kind:
    """What fresh positions have as many of as the own ones."""
    return position.group, not position.notation and len({sign(value) for value in position.moves.values()}) > 1


def _solved(game: Game, rng: random.Random, wanted: Wanted) -> Iterator[Position]:
    """Connect four after lines of random moves that win nothing."""
    with closing(SolverPlayer()) as solver:
        while +wanted:
            state, stones = game.new_initial_state(), rng.choice(STONES)
            while not state.is_terminal() and len(state.history()) < stones:
                state.apply_action(rng.choice(state.legal_actions()))
            if state.is_terminal():
                continue
            scores = solver.scores(state.history())
            moves: dict[tuple[int, ...], float] = {(action,): float(sign(score)) for action, score in scores.items()}
            position = Position(tuple(state.history()), moves, class_of(stones, max(scores.values())))
            if _lacks(wanted, kind_of(position)):
                yield position


def class_of(stones: int, score: int) -> str:
    """Beginning, middle, end; easy, medium, hard by the plies to the end: who wins with n stones of his own has scored 22 - n."""
    mover, other = stones // 2, (stones + 1) // 2
    left = 2 * (22 - score - mover) - 1 if score > 0 else 2 * (22 + score - other) if score < 0 else CELLS - stones
    return ("B" if stones <= 14 else "M" if stones <= 28 else "E") + ("E" if left < EASY else "M" if left <= MEDIUM else "H")


def _rolled(game: Game, exam: str, rng: random.Random, wanted: Wanted) -> Iterator[Position]:
    """Turns out of games of gnubg 0-ply with itself, their ends graded by the exam's engine."""
    with closing(gnubg.GnubgPlayer("gnubg:0", game)) as player, closing(gnubg.Gnubg(exam, deadline_s=600.0)) as grader:
        while +wanted:
            state = game.new_initial_state()
            while not state.is_terminal():
                if gnubg.is_fresh(state) and not rng.randrange(ONE_IN) and 2 <= len(gnubg.lines(state)) <= MOST_ENDS:
                    name, dice, *_ = state.notation().split(":")
                    group = gnubg.phase(gnubg.read_position_id(name))
                    if _lacks(wanted, (group, False)):
                        yield _graded(game, f"{name}:{dice}", group, grader)
                state.apply_action(draw_outcome(state, rng) if state.is_chance_node() else player.choose([state.history()])[0])


def _lacks(wanted: Wanted, kind: Kind) -> bool:
    """Whether this one of a kind is wanted; counts it."""
    wanted[kind] -= 1
    return wanted[kind] >= 0


def _graded(game: Game, notation: str, group: str, grader: gnubg.Gnubg) -> Position:
    start = game.state_from_notation(notation)
    ends, moves = gnubg.lines(start), {}
    for board, line in ends.items():
        after = start.clone()
        for action in line:
            after.apply_action(action)
        over = after.is_terminal()
        worth = unit(game).convert(after.returns()[0]) if over else -grader.values([gnubg.write_position_id(board, on_roll=False)])[0]
        moves[tuple(line)] = worth
    return Position((), moves, group, notation)
