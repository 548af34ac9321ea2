"""Properties that every game must have, checked on random games. Findings name the rule that is broken and where."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from azq import _core
from azq.errors import AzqError
from azq.games import Game, State

MAX_PLIES = 100_000
NO_START = -1


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    detail: str
    history: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    game: str
    games: int
    plies: int
    findings: tuple[Finding, ...]
    playouts_per_s: float
    planes: tuple[int, int, int]  # of an observation, with its rows and columns

    @property
    def sound(self) -> bool:
        return not self.findings


def check(game: Game, games: int = 100, seed: int = 0, progress: Callable[[int], None] = lambda done: None) -> Report:
    """Plays random games and checks every position; each rule is reported once. `progress` hears how many games are done."""
    rng = random.Random(seed)
    found: dict[str, Finding] = {}
    plies = 0
    for number in range(games):
        state = game.new_initial_state()
        try:
            for finding in _walk(game, state, rng):
                found.setdefault(finding.rule, finding)
        except AzqError as error:
            found.setdefault("contract", _finding("contract", str(error), state))
        except Exception as error:  # whatever a game of somebody else's raises is a finding about it
            found.setdefault("raises", _finding("raises", f"{type(error).__name__}: {error}", state))
        plies += len(state.history())
        progress(number + 1)
    return Report(game.name, games, plies, tuple(found.values()), playouts_per_s(game), game.observation_planes())


def _walk(game: Game, state: State, rng: random.Random) -> Iterator[Finding]:
    """Plays a game to its end and looks at each position on the way."""
    decisions, longest = 0, game.max_game_length()
    for _ in range(MAX_PLIES):
        if state.is_terminal():
            yield from _at_any(game, state)
            yield from _at_end(game, state)
            return
        decisions += not state.is_chance_node()
        if decisions > longest:
            yield _finding("max_game_length", f"no end after the {longest} plies declared", state)
            return
        yield from _at_any(game, state)
        yield from _at_chance(state) if state.is_chance_node() else _at_player(game, state, rng)
        state.apply_action(rng.choice(state.legal_actions()))
    yield Finding("end", f"no end after {MAX_PLIES} plies")


def _finding(rule: str, detail: str, state: State) -> Finding:
    return Finding(rule, detail, tuple(state.history()))


def _at_any(game: Game, state: State) -> Iterator[Finding]:
    line = state.notation()
    again = game.state_from_notation(line)
    if again.notation() != line or again.legal_actions() != state.legal_actions() or again.current_player() != state.current_player():
        yield _finding("notation", f"{line!r} reads as another position", state)


def _at_chance(state: State) -> Iterator[Finding]:
    outcomes = state.chance_outcomes()
    total = sum(probability for _, probability in outcomes)
    if abs(total - 1.0) > 1e-4:
        yield _finding("probabilities", f"they sum to {total}", state)
    if any(probability <= 0 for _, probability in outcomes):
        yield _finding("probabilities", "an outcome has none", state)


def _at_player(game: Game, state: State, rng: random.Random) -> Iterator[Finding]:
    legal, player = state.legal_actions(), state.current_player()
    if not legal or legal != sorted(set(legal)) or not 0 <= legal[0] <= legal[-1] < game.num_distinct_actions():
        yield _finding("legal actions", f"{legal[:8]} are not distinct, ascending and below {game.num_distinct_actions()}", state)
    yield from _clone_is_independent(state, rng.choice(legal))
    if state.packed_observation().shape != (game.packed_size(),):
        yield _finding("observation size", f"{state.packed_observation().shape} instead of {game.packed_size()} bytes", state)
    if game.is_hidden():
        yield from _nobody_peeks(game, state, player, rng.randrange(2**31))


def _clone_is_independent(state: State, action: int) -> Iterator[Finding]:
    before = state.notation(), state.packed_observation().tobytes()
    clone = state.clone()
    clone.apply_action(action)
    if (state.notation(), state.packed_observation().tobytes()) != before:
        yield _finding("clone", "playing on a clone changed the original", state)


def _nobody_peeks(game: Game, state: State, mover: int, seed: int) -> Iterator[Finding]:
    for player in range(game.num_players()):
        twin = state.resample_from_infostate(player, seed)
        if not np.array_equal(twin.packed_observation(player), state.packed_observation(player)):
            yield _finding("observation", f"what player {player} observes changes with what is hidden from him", state)
        if twin.information_state_string(player) != state.information_state_string(player):
            yield _finding("information state", f"resampling changes what player {player} knows", state)
        if player == mover and twin.legal_actions() != state.legal_actions():
            yield _finding("legal actions", f"those of player {player} change with what is hidden from him", state)


def _at_end(game: Game, state: State) -> Iterator[Finding]:
    returns = state.returns()
    if len(returns) != game.num_players():
        yield _finding("returns", f"{len(returns)} numbers for {game.num_players()} players", state)
    if any(not -1.0 <= value <= 1.0 for value in returns):
        yield _finding("returns", f"{returns} leave [-1, 1]", state)
    if len(returns) == 2 and abs(sum(returns)) > 1e-6:
        yield _finding("returns", f"{returns} of two players do not sum to 0", state)
    replayed = game.replay(np.array(state.history(), np.uint16))[3]
    if replayed.tolist() != np.asarray(returns, np.float32).tolist():
        yield _finding("replay", f"the recorded actions give {replayed.tolist()}, not {returns}", state)
    yield from _symmetries(game, state)


def _symmetries(game: Game, state: State) -> Iterator[Finding]:
    """An image of the game, move by move, stays an image; where chance acts or the start has no such symmetry, nothing is said."""
    history = state.history()
    for symmetry in range(1, 1 if game.is_chance() else game.num_symmetries()):
        actions, cells = game.action_permutation(symmetry), game.plane_permutation(symmetry)
        plies = _image_until(game, history, actions, cells)
        if plies in (None, NO_START):
            continue
        meant = _image_until(game, history, actions, np.argsort(cells)) is None
        hint = "; the inverse of its cells would make it one: action a becomes actions[a], cell c shows what cells[c] did" if meant else ""
        yield _finding("symmetry", f"symmetry {symmetry} is none after {plies} plies{hint}", state)
        return


def _image_until(game: Game, history: Sequence[int], actions: np.ndarray, cells: np.ndarray) -> int | None:
    """Plies after which a game and its image by actions (A,) and cells (C,) part: None for never, `NO_START` where none begins."""
    here, image = game.new_initial_state(), game.new_initial_state()

    def alike() -> bool:
        planes = here.observation_tensor().reshape(game.observation_planes()[0], -1)
        return np.array_equal(planes[:, cells].ravel(), image.observation_tensor().ravel())

    if not alike():
        return NO_START
    for plies, action in enumerate(history):
        if not alike() or sorted(actions[here.legal_actions()]) != image.legal_actions():
            return plies
        here.apply_action(action)
        image.apply_action(int(actions[action]))
    return None


def playouts_per_s(game: Game, seconds: float = 0.5) -> float:
    """Random games a CPU-second: in the core for games of the core, in Python for others."""
    began, done, batch = time.process_time(), 0, 1
    rng = random.Random(1)
    while (spent := time.process_time() - began) < seconds:
        if isinstance(game, _core.Game):
            _core.random_playouts(game, batch, done)
        else:
            state = game.new_initial_state()
            while not state.is_terminal():
                state.apply_action(rng.choice(state.legal_actions()))
        done += batch
        batch = min(2 * batch, 4096) if isinstance(game, _core.Game) else 1
    return done / max(spent, 1e-9)
