"""Properties that every game must have, checked on random games. Findings name the rule that is broken and where."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.errors import AzqError
from azq.findings import Finding
from azq.games import Game, State
from azq.games.adapted_state import MAX_PLIES

BUDGET_S = 60.0  # no game begins later
EACH = 100  # first plies whose notations are read again, later ones at powers of two: so long games take linear time
NO_START = -1
ENDLESS = {"end", "max_game_length"}  # after one such game the next ones would take as long

Recorded = tuple[list[int], str]  # a game's actions and a digest of all that a replay of them gives
Seen = tuple[int, bytes, bytes]  # by whom, what and which legal actions


@dataclass(frozen=True, slots=True)
class Report:
    game: str
    games: int
    plies: int
    findings: tuple[Finding, ...]
    playouts_per_s: float  # 0: not measured
    planes: tuple[int, int, int]  # of an observation, with its rows and columns
    notes: tuple[str, ...] = ()  # what breaks no rule and deserves a look

    @property
    def sound(self) -> bool:
        return not self.findings


def check(
    game: Game,
    games: int = 100,
    seed: int = 0,
    progress: Callable[[int], None] = lambda done: None,
    *,
    keep: Callable[[Recorded], None] = lambda recorded: None,
    on_finding: Callable[[Finding], None] = lambda finding: None,
    clock: Callable[[], float] = time.monotonic,
) -> Report:
    """Plays random games and checks every position; each rule is reported once. The speed of what is broken is not measured.

    `progress` hears at every position how many games are done, `keep` of each game, `on_finding` of each finding at once; after `BUDGET_S`
    by `clock` no game begins.
    """
    rng, began_s = random.Random(seed), clock()
    findings: dict[str, Finding] = {}

    def add(finding: Finding | None) -> None:
        if finding is not None and finding.rule not in findings:
            findings[finding.rule] = finding
            on_finding(finding)

    plies, done, speed = 0, 0, 0.0
    while done < games and not ENDLESS & findings.keys() and (not done or clock() - began_s < BUDGET_S):
        state = game.new_initial_state()
        try:
            for finding in _walk(game, state, rng, keep):
                progress(done)
                add(finding)
        except AzqError as error:
            add(_finding("contract", str(error), state))
        except Exception as error:  # whatever a game of somebody else's raises is a finding about it
            add(_finding("raises", f"{type(error).__name__}: {error}", state))
        plies, done = plies + len(state.history()), done + 1
    if not plies and not findings:
        add(Finding("start", "fail", "every game is over before any player moves; is_terminal() of a new position must be false"))
    try:
        speed = 0.0 if findings else playouts_per_s(game)
    except AzqError as error:
        add(Finding("contract", "fail", str(error)))
    return Report(game.name, done, plies, tuple(findings.values()), speed, game.observation_planes())


def replayed(game: Game, history: Sequence[int]) -> tuple[list[Seen], list[float], str]:
    """What a learner makes of recorded actions: what is seen at each ply, returns, and a digest of both. Raises `IllegalActionError`."""
    packed, masks, players, returns = game.replay(np.array(history, np.uint16))
    rows = [
        (int(player), row.tobytes(), np.flatnonzero(mask).astype(np.uint16).tobytes()) if player >= 0 else (int(player), b"", b"")
        for player, row, mask in zip(players, packed, masks, strict=True)
    ]
    return rows, returns.tolist(), blake2s(repr((rows, returns.tolist())).encode()).hexdigest()


def _walk(game: Game, state: State, rng: random.Random, keep: Callable[[Recorded], None]) -> Iterator[Finding | None]:
    """Plays a game to its end and looks at each position on the way, whatever is found; a line of clones goes beside it."""
    decisions, longest, seen, twin = 0, game.max_game_length(), list[Seen](), state.clone()
    for ply in range(MAX_PLIES):
        yield None
        if ply < EACH or ply & (ply - 1) == 0 or state.is_terminal():
            yield from _at_any(game, state)
        yield from _alike(state, twin)
        if state.is_terminal():
            yield from _at_end(game, state, twin, seen, keep)
            return
        decisions += not state.is_chance_node()
        if decisions > longest:
            yield _finding("max_game_length", f"no end after the {longest} plies declared", state)
            return
        yield from _at_chance(state) if state.is_chance_node() else _at_player(game, state, rng)
        seen.append(_seen(state))
        action, twin = rng.choice(state.legal_actions()), twin.clone()
        twin.apply_action(action)
        state.apply_action(action)
    yield Finding("end", "fail", f"no end after {MAX_PLIES} plies")


def _finding(rule: str, detail: str, state: State) -> Finding:
    return Finding(rule, "fail", detail, history=tuple(state.history()))


def _seen(state: State) -> Seen:
    player = state.current_player()
    return (
        (player, state.packed_observation().tobytes(), np.array(state.legal_actions(), np.uint16).tobytes())
        if player >= 0
        else (player, b"", b"")
    )


def _at_any(game: Game, state: State) -> Iterator[Finding]:
    line = state.notation()
    again = game.state_from_notation(line)
    if again.notation() != line or again.legal_actions() != state.legal_actions() or again.current_player() != state.current_player():
        yield _finding("notation", f"{line!r} reads as another position", state)


def _alike(state: State, twin: State) -> Iterator[Finding]:
    if _seen(twin) != _seen(state):
        yield _finding("clone", "a clone of a clone, played on by the same actions, is another position", state)


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
    before, history = _seen(state), len(state.history())
    clone = state.clone()
    clone.apply_action(action)
    if (_seen(state), len(state.history())) != (before, history):
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


def _at_end(game: Game, state: State, twin: State, seen: Sequence[Seen], keep: Callable[[Recorded], None]) -> Iterator[Finding]:
    returns = state.returns()
    if len(returns) != game.num_players():
        yield _finding("returns", f"{len(returns)} numbers for {game.num_players()} players", state)
    if any(not -1.0 <= value <= 1.0 for value in returns):
        yield _finding("returns", f"{returns} leave [-1, 1]", state)
    if len(returns) == 2 and abs(sum(returns)) > 1e-6:
        yield _finding("returns", f"{returns} of two players do not sum to 0", state)
    if twin.returns() != returns:
        yield _finding("clone", f"a line of clones ends with {twin.returns()}, the game itself with {returns}", state)
    yield from _replays(game, state, seen, keep)
    yield from _symmetries(game, state)


def _replays(game: Game, state: State, seen: Sequence[Seen], keep: Callable[[Recorded], None]) -> Iterator[Finding]:
    """The recorded actions give what was searched, which is what a learner is shown."""
    history, returns = state.history(), np.asarray(state.returns(), np.float32).tolist()
    try:
        rows, results, digest = replayed(game, history)
    except AzqError as error:
        yield _finding("replay", f"the recorded actions do not replay: {error}", state)
        return
    if results != returns:
        yield _finding("replay", f"the recorded actions give {results}, not {returns}", state)
    for ply, (before, again) in enumerate(zip(seen, rows, strict=True)):
        if before != again:
            pairs = zip(("player", "observation", "legal actions"), before, again, strict=True)
            what = next(name for name, old, new in pairs if old != new)
            yield _finding(
                "replay", f"the recorded actions lead to another {what} after {ply} plies; dice and deals are chance nodes", state
            )
            return
    keep((history, digest))


def _symmetries(game: Game, state: State) -> Iterator[Finding]:
    """An image of the game, move by move, stays an image; where chance acts or the start has no such symmetry, nothing is said."""
    history = state.history()
    for symmetry in range(1, 1 if game.is_chance() else game.num_symmetries()):
        actions, cells = game.action_permutation(symmetry), game.plane_permutation(symmetry)
        plies = _image_until(game, history, actions, cells)
        if plies in (None, NO_START):
            continue
        meant = _image_until(game, history, actions, np.argsort(cells)) is None
        if plies == len(history):
            yield _finding("symmetry", f"symmetry {symmetry} keeps what is seen and what is legal, and not the result", state)
            return
        hint = "; the inverse of its cells would make it one: action a becomes actions[a], cell c shows what cells[c] did" if meant else ""
        yield _finding("symmetry", f"symmetry {symmetry} is none after {plies} plies{hint}", state)
        return


def _image_until(game: Game, history: Sequence[int], actions: NDArray[np.int32], cells: NDArray[Any]) -> int | None:
    """Plies after which a game and its image by actions (A,) and cells (C,) part: None for never, `NO_START` where none begins."""
    here, image = game.new_initial_state(), game.new_initial_state()

    def alike() -> bool:
        planes = here.observation_tensor().reshape(game.observation_planes()[0], -1)
        looks = np.array_equal(planes[:, cells].ravel(), image.observation_tensor().ravel())
        return looks and here.current_player() == image.current_player()

    if not alike():
        return NO_START
    for plies, action in enumerate(history):
        if not alike() or sorted(actions[here.legal_actions()]) != image.legal_actions():
            return plies
        here.apply_action(action)
        image.apply_action(int(actions[action]))
    return None if here.returns() == image.returns() else len(history)


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
