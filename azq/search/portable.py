"""Search in Python, for games that are not in the core: the same face as `azq._core.Search`, many slots stepped together.

Gumbel AlphaZero (Danihelka et al., ICLR 2022) or PUCT (Silver et al., Science 2018) over information sets: simulations redraw what
the player to move cannot know, sample chance, and keep a value per seat. One leaf per slot and step; no proofs, no kept subtree.
Letters: A actions, P bytes of a packed observation, L leaves, V values per leaf, T plies.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq._core import Game, SearchConfig, State
from azq.errors import GameContractError, IllegalActionError
from azq.search.node import Node, Plan, decide_gumbel, decide_puct, prepare, select_gumbel, select_puct, select_root

EMPTY, BUSY, IDLE, CHANCE, FINISHED = range(5)
LIMIT_PLIES = 100_000


class PortableSearch:
    """See `azq._core.Search`. A game that raises ends in `broken_slots`, with the reason, and harms no other."""

    def __init__(
        self,
        game: Game,
        config: SearchConfig,
        *,
        num_slots: int,
        seed: int,
        num_threads: int = 1,
        autoplay: bool = True,
        cache_entries: int = 0,
    ) -> None:
        self._game, self._config, self._seed, self._autoplay = game, config, seed, autoplay
        self._slots = [_Slot(game, config, seed, autoplay) for _ in range(num_slots)]
        self._waiting: list[tuple[_Slot, NDArray[np.uint8]]] = []
        self.num_slots = num_slots
        self.evaluations = self.cache_hits = self.memory_bytes = 0

    def start(
        self,
        slot: int,
        uid: int,
        actions: NDArray[np.uint16],
        policies: NDArray[np.float16] | None = None,
        root_values: NDArray[np.float32] | None = None,
        simulations: NDArray[np.uint16] | None = None,
        weight_versions: NDArray[np.uint32] | None = None,
    ) -> None:
        """Puts a game into a slot after replaying its actions; raises `IllegalActionError`, which leaves the slot empty."""
        self._slots[slot].start(
            uid, actions, {"policies": policies, "root_values": root_values, "simulations": simulations, "weight_versions": weight_versions}
        )

    def start_at(self, slot: int, uid: int, state: State) -> None:
        """Puts a position into a slot; its record begins there."""
        self._slots[slot].start_at(uid, state)

    def clear(self, slot: int) -> None:
        """Empties a slot."""
        self._slots[slot].status = EMPTY

    def collect(self, packed: NDArray[np.uint8], slots: NDArray[np.int32]) -> int:
        """Advances every busy slot to its next leaf; returns L and writes packed[:L] and slots[:L]."""
        self._waiting = []
        for number, slot in enumerate(self._slots):
            row = slot.advance() if slot.status == BUSY else None
            if row is not None:
                packed[len(self._waiting)] = row
                slots[len(self._waiting)] = number
                self._waiting.append((slot, row))
        self.evaluations += len(self._waiting)
        return len(self._waiting)

    def apply(self, logits: NDArray[np.float16], values: NDArray[np.float16], weight_version: int = 0) -> None:
        """Gives the evaluations of the last collect: logits (L, A), values (L, V)."""
        if len(logits) != len(self._waiting) or len(values) != len(self._waiting):
            raise ValueError(f"apply needs evaluations of {len(self._waiting)} leaves, not {len(logits)}")
        if np.isnan(logits).any() or np.isnan(values).any():
            raise ValueError("evaluations hold NaN: the evaluator is broken; nothing was applied")
        waiting, self._waiting = self._waiting, []
        for (slot, _), row, value in zip(waiting, logits, values, strict=True):
            slot.apply(row.astype(np.float32), value.astype(np.float32), weight_version)

    def _with(self, status: int) -> list[int]:
        return [number for number, slot in enumerate(self._slots) if slot.status == status and not slot.broken]

    def finished_slots(self) -> list[int]:
        """Slots whose game ended."""
        return self._with(FINISHED)

    def idle_slots(self) -> list[int]:
        """Without autoplay: slots whose budget is spent."""
        return self._with(IDLE)

    def empty_slots(self) -> list[int]:
        """Slots without a game."""
        return self._with(EMPTY)

    def broken_slots(self) -> dict[int, tuple[int, str]]:
        """Slots whose game raised: uid and reason; `clear` frees them."""
        return {n: (slot.uid, slot.broken) for n, slot in enumerate(self._slots) if slot.broken and slot.status != EMPTY}

    def changed_slots(self) -> list[int]:
        """Open games that grew since this was last asked."""
        changed = [n for n, slot in enumerate(self._slots) if slot.changed and slot.status in (BUSY, IDLE, CHANCE) and not slot.broken]
        for number in changed:
            self._slots[number].changed = False
        return changed

    def record(self, slot: int) -> Any:
        """The game so far, as `azq._core.Record`."""
        return self._slots[slot].record()

    def result(self, slot: int) -> Any:
        """The spent search's answer, as `azq._core.Result`."""
        if self._slots[slot].status != IDLE:
            raise RuntimeError(f"slot {slot} has no spent search; see idle_slots()")
        return self._slots[slot].result()

    def play(self, slot: int, action: int) -> None:
        """Without autoplay: plays anyone's action and searches on."""
        self._slots[slot].play(action)

    def state(self, slot: int) -> State:
        """The position of a slot."""
        return self._slots[slot].state.clone()

    @property
    def simulations(self) -> int:
        """Done since creation."""
        return sum(slot.total_simulations for slot in self._slots)

    @property
    def plies(self) -> int:
        """Played since creation."""
        return sum(slot.total_plies for slot in self._slots)


class _Slot:
    """One game with the search of its present ply."""

    def __init__(self, game: Game, config: SearchConfig, seed: int, autoplay: bool) -> None:
        self._game, self._config, self._seed, self._autoplay = game, config, seed, autoplay
        self._actions, self._seats = game.num_distinct_actions(), game.value_size()
        self.status, self.uid, self.broken, self.changed = EMPTY, 0, "", False
        self.total_simulations = self.total_plies = 0
        self._version = 0

    def start(self, uid: int, actions: NDArray[np.uint16], targets: Mapping[str, NDArray[Any] | None]) -> None:
        state, decisions = self._game.new_initial_state(), 0
        self.status = EMPTY
        for ply, action in enumerate(actions.tolist()):
            decisions += not state.is_chance_node()
            try:
                state.apply_action(action)
            except IllegalActionError as error:
                raise IllegalActionError(f"{error}, at ply {ply} of game {uid}") from None
        plies = len(actions)
        shapes = {
            "policies": (plies, self._actions),
            "root_values": (plies, self._seats),
            "simulations": (plies,),
            "weight_versions": (plies,),
        }
        self._columns: dict[str, list[Any]] = {}
        for key, shape in shapes.items():
            given = targets[key]
            self._columns[key] = list(np.zeros(shape) if given is None else given)
        self._begin(uid, state, [int(action) for action in actions], decisions)

    def start_at(self, uid: int, state: State) -> None:
        self._columns = {key: [] for key in ("policies", "root_values", "simulations", "weight_versions")}
        self._begin(uid, state.clone(), [], 0)

    def _begin(self, uid: int, state: State, actions: list[int], decisions: int) -> None:
        self.uid, self.state, self.broken, self.changed = uid, state, "", False
        self._played, self._decisions = actions, decisions
        self._begin_ply()

    def _rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._seed & (2**63 - 1), self.uid, len(self._played), purpose])

    def _begin_ply(self) -> None:
        self._root: Node | None = None
        self._path: list[tuple[Node, int]] = []
        self._leaf: Node | None = None
        self._plan: Plan | None = None
        self._simulations = 0
        self.status = BUSY
        if self._autoplay:
            self._settle_game()
            opening = int(np.random.default_rng([self._seed & (2**63 - 1), self.uid, 1]).integers(self._config.random_opening_plies + 1))
            while self._decisions < opening and not self.state.is_terminal():
                self._move(int(self._rng(2).choice(self.state.legal_actions())))
                self._settle_game()
        if self.state.is_terminal():
            self.state.returns()  # a result that breaks the contract is found here, where only this game is at stake
            self.status = FINISHED
        elif self.state.is_chance_node():
            self.status = CHANCE
        if len(self._played) > LIMIT_PLIES:
            raise GameContractError(f"game {self._game.name} has not ended after {LIMIT_PLIES} plies")

    def _settle_game(self) -> None:
        while self.state.is_chance_node():
            self._move(_draw(self.state, self._rng(3)))

    def _move(self, action: int, policy: NDArray[Any] | None = None, values: NDArray[Any] | None = None, spent: int = 0) -> None:
        decided = not self.state.is_chance_node()
        self.state.apply_action(action)
        self._played.append(action)
        self._columns["policies"].append(np.zeros(self._actions) if policy is None else policy)
        self._columns["root_values"].append(np.zeros(self._seats) if values is None else values)
        self._columns["simulations"].append(spent)
        self._columns["weight_versions"].append(self._version)
        self._decisions += decided
        self.total_plies += decided
        self.changed = True

    def play(self, action: int) -> None:
        if self.status == IDLE:
            decision = self._decide()
            self._move(action, decision.policy, decision.values, max(1, self._simulations))
        else:
            self._move(action)
        self._begin_ply()

    def advance(self) -> NDArray[np.uint8] | None:
        """The packed observation of the next leaf, or None where the slot waits or ended."""
        if self.broken:
            return None
        try:
            while self.status == BUSY:
                if self._root is not None and self._spent():
                    self._end_search()
                    continue
                row = self._simulate()
                if row is not None:
                    return row
        except (GameContractError, IllegalActionError) as error:
            self.broken, self.status = str(error), BUSY
        return None

    def _spent(self) -> bool:
        assert self._root is not None
        return len(self._root.actions) == 1 or self._simulations >= self._config.num_simulations

    def _end_search(self) -> None:
        if not self._autoplay:
            self.status = IDLE
            return
        decision = self._decide()
        self._move(decision.action, decision.policy, decision.values, max(1, self._simulations))
        self._begin_ply()

    def _simulate(self) -> NDArray[np.uint8] | None:
        """Walks to a new leaf; None where the simulation ended with the game."""
        if self._root is None:
            self._root = self._leaf = Node(self.state)
            return self.state.packed_observation(self.state.current_player())
        node, self._path = self._root, []
        edge = self._select(node)
        world = int(node.visits[edge])  # the k-th visit of every root action meets the same hidden hands and chance
        rng = np.random.default_rng([self._seed & (2**63 - 1), self.uid, len(self._played), 4, world])
        state = self.state.resample_from_infostate(node.actor, rng.random) if self._game.is_hidden() else self.state.clone()
        while True:
            self._path.append((node, edge))
            state.apply_action(node.actions[edge])
            while state.is_chance_node():
                state.apply_action(_draw(state, rng))
            if state.is_terminal():
                self._back_up(np.asarray(state.returns()))
                return None
            row = state.packed_observation(state.current_player())
            key = (edge, row.tobytes())
            if key not in node.children:
                self._leaf = node.children[key] = Node(state)
                return row
            node = node.children[key]
            edge = self._select(node)

    def _select(self, node: Node) -> int:
        if self._config.algorithm == "puct":
            return select_puct(node, self._config)
        if node is not self._root:
            return select_gumbel(node, self._config)
        assert self._plan is not None
        return select_root(node, self._config, self._plan, self._simulations)

    def apply(self, logits: NDArray[np.float32], values: NDArray[np.float32], version: int) -> None:
        """The evaluation of the leaf at hand: values for its player to move, or one a seat from him on."""
        leaf, players = self._leaf, self._game.num_players()
        assert leaf is not None
        self._version = version
        seats = (np.arange(players) - leaf.actor) % players
        of_player = np.where(seats == 0, values[0], -values[0]) if len(values) == 1 else values[seats]
        of_player = np.clip(of_player, -1.0, 1.0)
        leaf.expand(logits, float(of_player[leaf.actor]))
        if leaf is self._root:
            self._means = of_player.astype(np.float64)
            self._prepare(leaf)
        else:
            self._back_up(of_player)
        self._leaf = None

    def _prepare(self, root: Node) -> None:
        if self._config.algorithm == "gumbel":
            self._plan = prepare(root, self._config, self._rng(5))
        elif self._config.dirichlet_fraction > 0:
            noise = self._rng(6).dirichlet([self._config.dirichlet_alpha] * len(root.actions))
            root.prior = (1 - self._config.dirichlet_fraction) * root.prior + self._config.dirichlet_fraction * noise

    def _back_up(self, of_player: NDArray[Any]) -> None:
        for node, edge in self._path:
            node.update(edge, float(of_player[node.actor]))
        self._simulations += 1
        self.total_simulations += 1
        self._means += (of_player - self._means) / (self._simulations + 1)

    def _decide(self) -> Any:
        root = self._root
        assert root is not None
        explores = self._decisions < self._config.temperature_plies and self._config.temperature > 0
        if self._plan is not None:
            decision = decide_gumbel(root, self._config, self._plan)
        else:
            decision = decide_puct(root, self._config, self._rng(7) if explores else None)
        policy = np.zeros(self._actions, np.float32)
        policy[root.actions] = decision.weights
        players = self._game.num_players()
        values = np.array([self._means[(root.actor + seat) % players] for seat in range(self._seats)])
        values[0] = decision.root_value
        return SimpleNamespace(
            action=root.actions[decision.edge], best_action=root.actions[decision.best_edge], policy=policy, values=values
        )

    def result(self) -> Any:
        root, decision = self._root, self._decide()
        assert root is not None
        visits, q = np.zeros(self._actions, np.int32), np.full(self._actions, np.nan, np.float32)
        logits = np.full(self._actions, -np.inf, np.float32)
        visits[root.actions] = root.visits
        logits[root.actions] = root.logits
        q[root.actions] = np.where(root.visits > 0, root.q, np.nan)
        return SimpleNamespace(
            action=decision.action,
            best_action=decision.best_action,
            policy=decision.policy,
            visit_counts=visits,
            q_values=q,
            prior_logits=logits,
            root_value=float(decision.values[0]),
            proven=False,
        )

    def record(self) -> Any:
        plies, columns = len(self._played), self._columns
        return SimpleNamespace(
            uid=self.uid,
            actions=np.array(self._played, np.uint16),
            policies=np.array(columns["policies"], np.float16).reshape(plies, self._actions),
            root_values=np.array(columns["root_values"], np.float32).reshape(plies, self._seats),
            simulations=np.array(columns["simulations"], np.uint16),
            weight_versions=np.array(columns["weight_versions"], np.uint32),
            returns=np.array(self.state.returns(), np.float32),
            terminal=self.status == FINISHED,
        )


def _draw(state: State, rng: np.random.Generator) -> int:
    outcomes = state.chance_outcomes()
    weights = np.array([p for _, p in outcomes])
    return outcomes[int(rng.choice(len(outcomes), p=weights / weights.sum()))][0]
