"""Search in Python, for games that are not in the core: the same face as `azq._core.Search`, many slots stepped together.

One leaf per slot and step, or those of `batch_root`; no proofs, no kept subtree, no threads. The search of one ply is in `portable_ply.py`.
Letters: A actions, P bytes of a packed observation, L leaves, V values per leaf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq._core import Game, SearchConfig, State
from azq.errors import AzqError, GameContractError, IllegalActionError
from azq.search.algorithms import Choice, Rngs
from azq.search.portable_ply import LIMIT_PLIES, KnownPosition, PortablePly, PortableTree, draw, rng_of
from azq.wire.arrays import KINDS

OPENING_LENGTH, OPENING, CHANCE = 1, 2, 3  # what a game's random numbers are for


#: Where the game of a slot stands, as azq/core/include/azq/search/game_record.hpp says it.
SlotStatus = Enum("SlotStatus", ["EMPTY", "BUSY", "IDLE", "CHANCE", "FINISHED"])


@dataclass(frozen=True, slots=True)
class PortableRecord:
    """As `azq._core.Record`."""

    uid: int
    actions: NDArray[np.uint16]
    policies: NDArray[np.float16]
    root_values: NDArray[np.float32]
    simulations: NDArray[np.uint16]
    weight_versions: NDArray[np.uint32]
    returns: NDArray[np.float32]
    terminal: bool

    def packed(self) -> tuple[bytes, ...]:
        """The arrays by ply, as they travel."""
        return tuple(getattr(self, name).astype(kind).tobytes() for name, kind in KINDS.items())


@dataclass(frozen=True, slots=True)
class PortableResult:
    """As `azq._core.Result`; nothing is proven."""

    action: int
    best_action: int
    policy: NDArray[np.float32]
    visit_counts: NDArray[np.int32]
    q_values: NDArray[np.float32]
    prior_logits: NDArray[np.float32]
    root_value: float
    proven: bool = False


class PortableGame:
    """One slot. `broken`: why the game's own rules ended it."""

    def __init__(self, game: Game, config: SearchConfig, seed: int, autoplay: bool) -> None:
        self._game, self._config, self._seed, self._autoplay = game, config, seed, autoplay
        self._actions, self._seats = game.num_distinct_actions(), game.value_size()
        self.status, self.uid, self.broken, self.changed = SlotStatus.EMPTY, 0, "", False
        self.total_plies = self._past_simulations = self._version = 0
        self._ply: PortablePly | None = None
        self._kept: KnownPosition | None = None  # what the search of the ply before knows of the position at hand

    @property
    def simulations(self) -> int:
        return self._past_simulations + (self._ply.simulations if self._ply else 0)

    @property
    def open(self) -> bool:
        return self.status not in (SlotStatus.EMPTY, SlotStatus.FINISHED) and not self.broken

    @property
    def stoppable(self) -> bool:
        """Whether the search under way has an answer, though its budget is not spent."""
        return self.status is SlotStatus.BUSY and self._config.algorithm == "puct" and bool(self._ply and self._ply.simulations)

    def clear(self) -> None:
        """Forgets the game, and why it broke."""
        self.status, self.broken, self.changed = SlotStatus.EMPTY, "", False

    def start(self, uid: int, actions: NDArray[np.uint16], targets: Mapping[str, NDArray[Any] | None]) -> None:
        state, decisions = self._game.new_initial_state(), 0
        self.clear()
        for ply, action in enumerate(actions.tolist()):
            decisions += not state.is_chance_node()
            try:
                state.apply_action(action)
            except IllegalActionError as error:
                raise IllegalActionError(f"{error}, at ply {ply} of game {uid}") from None
        self._begin(uid, state, [int(action) for action in actions], decisions, targets)

    def start_at(self, uid: int, state: State) -> None:
        self.clear()
        self._begin(uid, state.clone(), [], 0, {})

    def _begin(self, uid: int, state: State, actions: list[int], decisions: int, targets: Mapping[str, NDArray[Any] | None]) -> None:
        self.uid, self.state, self._kept = uid, state, None
        self._played, self._decisions = actions, decisions
        shapes = {"policies": (self._actions,), "root_values": (self._seats,), "simulations": (), "weight_versions": ()}
        self._columns: dict[str, list[Any]] = {}
        for name, shape in shapes.items():
            given = targets.get(name)
            self._columns[name] = list(np.zeros((len(actions), *shape)) if given is None else given)
        try:
            self._begin_ply()
        except AzqError:
            self.clear()
            raise

    def _rngs(self) -> Rngs:
        return partial(rng_of, self._seed, self.uid, len(self._played))

    def _begin_ply(self) -> None:
        self._past_simulations, self._ply = self.simulations, None
        self._returns = [0.0] * self._game.num_players()
        self.status = SlotStatus.BUSY
        if self._autoplay:
            self._settle_chance()
            self._play_opening()
        if self.state.is_terminal():
            self._returns = self.state.returns()  # a result that breaks the contract is found here, where only this game is at stake
            self.status = SlotStatus.FINISHED
        elif self.state.is_chance_node():
            self.status = SlotStatus.CHANCE
        elif self._decisions >= self._game.max_game_length():
            raise GameContractError(
                f"game {self._game.name} has not ended after the {self._decisions} plies that its max_game_length() declares as the most"
            )
        if len(self._played) > LIMIT_PLIES:
            raise GameContractError(f"game {self._game.name} has not ended after {LIMIT_PLIES} plies")
        if self._game.is_hidden() or self._game.is_chance():
            self._ply = PortablePly(self._game, self._config, self.state, self._rngs())
        else:
            self._ply = PortableTree(self._game, self._config, self.state, self._rngs(), self._kept)

    def _settle_chance(self) -> None:
        for _ in range(LIMIT_PLIES):
            if not self.state.is_chance_node():
                return
            self._move(draw(self.state, self._rngs()(CHANCE)))
        raise GameContractError(f"game {self._game.name}: chance acted {LIMIT_PLIES} times in a row")

    def _play_opening(self) -> None:
        """The random plies that self-play begins with, as many for the game on any worker; none in a game that was given plies."""
        most = self._config.random_opening_plies
        if self._decisions or not most:
            return
        length = int(rng_of(self._seed, self.uid, OPENING_LENGTH).integers(most + 1))
        while self._decisions < length and not self.state.is_terminal():
            self._move(int(self._rngs()(OPENING).choice(self.state.legal_actions())))
            self._settle_chance()

    def _move(self, action: int, policy: NDArray[Any] | None = None, values: NDArray[Any] | None = None, spent: int = 0) -> None:
        decided = not self.state.is_chance_node()
        self.state.apply_action(action)
        self._played.append(action)
        self._kept = None
        self._columns["policies"].append(np.zeros(self._actions) if policy is None else policy)
        self._columns["root_values"].append(np.zeros(self._seats) if values is None else values)
        self._columns["simulations"].append(spent)
        self._columns["weight_versions"].append(self._version)
        self._decisions += decided
        self.total_plies += decided
        self.changed = True

    def play(self, action: int) -> None:
        """Plays anyone's action, with the search's targets where its budget is spent."""
        if self.status == SlotStatus.IDLE:
            self._play_with_targets(action)
        else:
            self._move(action)
            self._begin_ply()

    def advance(self) -> list[NDArray[np.uint8]]:
        """The packed observations of the next leaves, mostly one; none where the slot waits or ended."""
        if self.broken:
            return []
        try:
            while self.status is SlotStatus.BUSY:
                search = self._search
                if not search.spent:
                    if leaves := search.leaves():
                        return leaves
                elif self._autoplay:
                    self._play_with_targets(None)
                else:
                    self.status = SlotStatus.IDLE
        except AzqError as error:
            self.broken, self.status = str(error), SlotStatus.BUSY
        return []

    def apply(self, logits: NDArray[np.float16], values: list[float], version: int) -> None:
        self._version = version
        self._search.apply(logits, values)

    def result(self) -> PortableResult:
        root, choice = self._search.root, self._decide()
        visits, q = np.zeros(self._actions, np.int32), np.full(self._actions, np.nan, np.float32)
        logits = np.full(self._actions, -np.inf, np.float32)
        statistics = root.statistics
        visits[root.actions] = statistics.visits
        logits[root.actions] = statistics.logits
        q[root.actions] = np.where(statistics.visits > 0, statistics.q, np.nan)
        action, best = root.actions[choice.edge], root.actions[choice.best_edge]
        return PortableResult(action, best, self._policy(choice), visits, q, logits, float(choice.root_value))

    def record(self) -> PortableRecord:
        plies, columns = len(self._played), self._columns
        return PortableRecord(
            uid=self.uid,
            actions=np.array(self._played, np.uint16),
            policies=np.array(columns["policies"], np.float16).reshape(plies, self._actions),
            root_values=np.array(columns["root_values"], np.float32).reshape(plies, self._seats),
            simulations=np.array(columns["simulations"], np.uint16),
            weight_versions=np.array(columns["weight_versions"], np.uint32),
            returns=np.array(self._returns, np.float32),
            terminal=self.status == SlotStatus.FINISHED,
        )

    @property
    def _search(self) -> PortablePly:
        assert self._ply is not None
        return self._ply

    def _decide(self) -> Choice:
        return self._search.decide(self._decisions < self._config.temperature_plies and self._config.temperature > 0)

    def _policy(self, choice: Choice) -> NDArray[np.float32]:
        policy = np.zeros(self._actions, np.float32)
        policy[self._search.root.actions] = choice.weights
        return policy

    def _play_with_targets(self, action: int | None) -> None:
        """Plays an action, or the search's own, with what the search says."""
        search, choice = self._search, self._decide()
        played = search.root.actions[choice.edge] if action is None else action
        self._move(played, self._policy(choice), search.values(choice), max(1, search.simulations))
        self._kept = search.position_after(played) if isinstance(search, PortableTree) else None
        self._begin_ply()


class PortableSearch:
    """See `azq._core.Search`. A game that raises ends in `broken_slots`, with the reason, and harms no other."""

    def __init__(self, game: Game, config: SearchConfig, *, num_slots: int, seed: int, autoplay: bool = True) -> None:
        self._game = game
        self._slots = [PortableGame(game, config, seed, autoplay) for _ in range(num_slots)]
        self._waiting: list[PortableGame] = []
        self.num_slots = num_slots
        self.evaluations = self.memory_bytes = 0
        self.exact_simulations = self.cache_lookups = self.cache_hits = self.merged_leaves = 0  # it proves and remembers nothing

    def start(self, slot: int, uid: int, actions: NDArray[np.uint16], **targets: NDArray[Any] | None) -> None:
        """Puts a game into a slot after replaying its actions, with the targets recorded so far, by their names in `PortableRecord`.

        Raises `IllegalActionError`, or `GameContractError` where the game's own rules fail; both leave the slot empty.
        """
        self._at_rest(slot).start(uid, actions, targets)

    def start_at(self, slot: int, uid: int, state: State) -> None:
        """Puts a position into a slot; its record begins there. Raises as `start`."""
        self._at_rest(slot).start_at(uid, state)

    def clear(self, slot: int) -> None:
        self._at_rest(slot).clear()

    def _at_rest(self, number: int) -> PortableGame:
        slot = self._slots[number]
        if any(waiting is slot for waiting in self._waiting):
            raise RuntimeError(f"slot {number} has a leaf out for evaluation; call apply first")
        return slot

    def collect(self, packed: NDArray[np.uint8], slots: NDArray[np.int32]) -> int:
        """Advances every busy slot to its next leaf; returns L and writes packed[:L] and slots[:L]."""
        if self._waiting:
            raise RuntimeError(f"{len(self._waiting)} leaves wait for their evaluations; call apply first")
        for number, slot in enumerate(self._slots):
            for row in slot.advance():
                packed[len(self._waiting)] = row
                slots[len(self._waiting)] = number
                self._waiting.append(slot)
        self.evaluations += len(self._waiting)
        return len(self._waiting)

    def apply(self, logits: NDArray[np.float16], values: NDArray[np.float16], weight_version: int = 0) -> None:
        """Gives the evaluations of the last collect: logits (L, A), values (L, V)."""
        count, actions, seats = len(self._waiting), self._game.num_distinct_actions(), self._game.value_size()
        if np.shape(logits) != (count, actions) or np.shape(values) != (count, seats):
            raise ValueError(
                f"apply needs logits {(count, actions)} and values {(count, seats)}, not {np.shape(logits)} and {np.shape(values)}"
            )
        rows = np.ascontiguousarray(logits, np.float16)
        if ((rows.view(np.uint16) & 0x7FFF) > 0x7C00).any() or np.isnan(values).any():  # numpy's isnan of float16 takes six times as long
            raise ValueError("evaluations hold NaN: the evaluator is broken; nothing was applied")
        waiting, self._waiting = self._waiting, []
        for slot, row, value in zip(waiting, rows, np.asarray(values, np.float32).tolist(), strict=True):
            slot.apply(row, value, weight_version)

    def _with(self, status: SlotStatus) -> list[int]:
        return [number for number, slot in enumerate(self._slots) if slot.status == status and not slot.broken]

    def finished_slots(self) -> list[int]:
        return self._with(SlotStatus.FINISHED)

    def idle_slots(self) -> list[int]:
        return self._with(SlotStatus.IDLE)

    def empty_slots(self) -> list[int]:
        return self._with(SlotStatus.EMPTY)

    def broken_slots(self) -> dict[int, tuple[int, str]]:
        """Slots whose game raised: uid and reason; `clear` frees them."""
        return {n: (slot.uid, slot.broken) for n, slot in enumerate(self._slots) if slot.broken}

    def changed_slots(self) -> list[int]:
        changed = [number for number, slot in enumerate(self._slots) if slot.changed and slot.open]
        for number in changed:
            self._slots[number].changed = False
        return changed

    def record(self, slot: int) -> PortableRecord:
        return self._slots[slot].record()

    def result(self, slot: int) -> PortableResult:
        if self._slots[slot].broken:
            raise GameContractError(self._slots[slot].broken)
        if self._slots[slot].status != SlotStatus.IDLE and not self._slots[slot].stoppable:
            raise RuntimeError(f"slot {slot} has no spent search; see idle_slots()")
        return self._slots[slot].result()

    def play(self, slot: int, action: int) -> None:
        self._at_rest(slot).play(action)

    def state(self, slot: int) -> State:
        return self._slots[slot].state.clone()

    @property
    def simulations(self) -> int:
        return sum(slot.simulations for slot in self._slots)

    @property
    def plies(self) -> int:
        return sum(slot.total_plies for slot in self._slots)
