"""One game of the search in Python: its position, its record, and the tree of its present ply.

Gumbel AlphaZero (Danihelka et al., ICLR 2022) or PUCT (Silver et al., Science 2018). Simulations redraw what the player to move cannot
know and sample chance. With secrets a node is what its player knows (information-set search: Cowling, Powley and Whitehouse, IEEE TCIAIG
4(2), 2012; one table for all of a player's information sets, whatever the others hold), else it is the way that led there.
Letters: A actions, V values per leaf, T plies.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq._core import Game, SearchConfig, State
from azq.errors import AzqError, GameContractError, IllegalActionError
from azq.search.node import Node, Plan, decide_gumbel, decide_puct, prepare, select_gumbel, select_puct, select_root

EMPTY, BUSY, IDLE, CHANCE, FINISHED = range(5)
LIMIT_PLIES = 100_000


class Way:
    """Actions and outcomes from the root on."""

    def __init__(self) -> None:
        self._steps: list[int] = []

    def went(self, action: int, outcomes: list[int]) -> None:
        """One action and what chance did after it; a mark keeps outcomes and actions apart."""
        self._steps += (action, *outcomes, -1)

    def key(self) -> tuple[int, ...]:
        """All of it."""
        return tuple(self._steps)


class Simulation:
    """The simulation under way: its world, where it stands, and what each player thought of his own node."""

    def __init__(self, root: Node) -> None:
        self.node, self.visit, self.new_nodes = root, 0, 0
        self.way, self.path = Way(), list[tuple[Node, int]]()
        self.own_views: dict[int, float] = {}
        self.state: Any = None
        self.chance: Any = None


class Slot:
    """One game with the search of its present ply. `broken`: why the game's own rules ended it."""

    def __init__(self, game: Game, config: SearchConfig, seed: int, autoplay: bool) -> None:
        self._game, self._config, self._seed, self._autoplay = game, config, seed, autoplay
        self._actions, self._seats = game.num_distinct_actions(), game.value_size()
        self.status, self.uid, self.broken, self.changed = EMPTY, 0, "", False
        self.total_simulations = self.total_plies = 0
        self._version = 0

    def clear(self) -> None:
        """Forgets the game, and why it broke."""
        self.status, self.broken, self.changed = EMPTY, "", False

    def start(self, uid: int, actions: NDArray[np.uint16], targets: Mapping[str, NDArray[Any] | None]) -> None:
        """As `PortableSearch.start`."""
        self.clear()
        state, decisions = self._game.new_initial_state(), 0
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
        self.clear()
        self._columns = {key: [] for key in ("policies", "root_values", "simulations", "weight_versions")}
        self._begin(uid, state.clone(), [], 0)

    def _begin(self, uid: int, state: State, actions: list[int], decisions: int) -> None:
        self.uid, self.state = uid, state
        self._played, self._decisions = actions, decisions
        try:
            self._begin_ply()
        except AzqError:
            self.clear()
            raise

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng([self._seed & (2**63 - 1), self.uid, len(self._played), *purpose])

    def _begin_ply(self) -> None:
        self._root: Node | None = None
        self._simulation: Simulation | None = None
        self._leaf: Node | None = None
        self._plan: Plan | None = None
        self._simulations = 0
        self._nodes: dict[Hashable, Node] = {}
        self._returns = [0.0] * self._game.num_players()
        self.status = BUSY
        if self._autoplay:
            self._settle_game()
            opening = int(np.random.default_rng([self._seed & (2**63 - 1), self.uid, 1]).integers(self._config.random_opening_plies + 1))
            while self._decisions < opening and not self.state.is_terminal():
                self._move(int(self._rng(2).choice(self.state.legal_actions())))
                self._settle_game()
        if self.state.is_terminal():
            self._returns = self.state.returns()  # a result that breaks the contract is found here, where only this game is at stake
            self.status = FINISHED
        elif self.state.is_chance_node():
            self.status = CHANCE
        elif self._decisions >= self._game.max_game_length():
            raise GameContractError(
                f"game {self._game.name} has not ended after the {self._decisions} plies that its max_game_length() declares as the most"
            )
        if len(self._played) > LIMIT_PLIES:
            raise GameContractError(f"game {self._game.name} has not ended after {LIMIT_PLIES} plies")

    def _settle_game(self) -> None:
        for _ in range(LIMIT_PLIES):
            if not self.state.is_chance_node():
                return
            self._move(_draw(self.state, self._rng(3)))
        raise GameContractError(f"game {self._game.name}: chance acted {LIMIT_PLIES} times in a row")

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
        if self.status != BUSY or self.broken:
            return None
        try:
            while self.status == BUSY:
                if self._root is not None and self._spent():
                    self._end_search()
                    continue
                row = self._simulate()
                if row is not None:
                    return row
        except AzqError as error:
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
        """Walks to a leaf; None where the simulation ended with the game."""
        if self._root is None:
            self._root = self._leaf = Node(self.state)
            return self.state.packed_observation(self.state.current_player())
        if self._simulation is None:
            self._simulation = Simulation(self._root)
        simulation = self._simulation
        for _ in range(LIMIT_PLIES):
            node, edge = simulation.node, self._choose(simulation)
            if node is self._root:
                self._draw_world(simulation, int(node.visits[edge]))
            simulation.path.append((node, edge))
            if not self._follow(simulation, node.actions[edge]):
                self._back_up(simulation.path, np.asarray(simulation.state.returns()))
                return None
            found = self._arrive(simulation)
            if found is not None:
                self._leaf = found
                row: NDArray[np.uint8] = simulation.state.packed_observation(found.actor)
                return row
        raise GameContractError(f"game {self._game.name} has not ended after {LIMIT_PLIES} plies of a simulation")

    def _draw_world(self, simulation: Simulation, visit: int) -> None:
        """The k-th visit of every root action meets the same hidden hands and chance."""
        simulation.visit = visit
        simulation.state = self._world(visit, simulation.node.actor)
        draws = self._game.is_chance() or self._game.is_hidden()
        simulation.chance = self._rng(8, visit) if draws else None

    def _follow(self, simulation: Simulation, action: int) -> bool:
        """Through chance and whatever leaves no choice to the next decision; False where the game ended."""
        state, legal = simulation.state, [action]
        for _ in range(LIMIT_PLIES):
            state.apply_action(legal[0])
            simulation.way.went(legal[0], _settle(state, simulation.chance))
            if state.is_terminal():
                return False
            legal = state.legal_actions()
            if len(legal) != 1:
                return True
        raise GameContractError(f"game {self._game.name}: {LIMIT_PLIES} plies in a row left no choice")

    def _arrive(self, simulation: Simulation) -> Node | None:
        """The node at hand where it is to be evaluated: a new one, or the root player's after a round of new ones."""
        assert self._root is not None
        key = self._told_apart_by(simulation)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(simulation.state)
            simulation.new_nodes += 1
            return found
        long_enough = simulation.new_nodes >= self._game.num_players()
        if self._game.is_hidden() and long_enough and found.actor == self._root.actor:
            return found
        simulation.node = found
        return None

    def _choose(self, simulation: Simulation) -> int:
        """Another player's node evaluated in this very simulation is left by its priors."""
        node = simulation.node
        if self._root is not None and self._game.is_hidden() and node.actor != self._root.actor:
            target = simulation.chance.random()
            if node.total == 1:
                return int(min(np.searchsorted(np.cumsum(node.prior), target, side="right"), len(node.prior) - 1))
        return self._select(node)

    def _world(self, visit: int, player: int) -> State:
        if not self._game.is_hidden():
            return self.state.clone()
        worlds = self._config.determinizations
        return self.state.resample_from_infostate(player, self._rng(4, visit % worlds if worlds else visit).random)

    def _told_apart_by(self, simulation: Simulation) -> Hashable:
        """What makes a node. With secrets: all that its player knows, and nothing of what the others hold."""
        state, worlds = simulation.state, self._config.determinizations
        if not self._game.is_hidden():
            return simulation.way.key()
        if worlds:
            return simulation.visit % worlds, simulation.way.key()
        player = state.current_player()
        return player, state.information_state_string(player), state.packed_observation(player).tobytes()

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
        if leaf.total == 0:
            leaf.expand(logits, float(of_player[leaf.actor]))
        self._leaf = None
        if leaf is self._root:
            self._means = of_player.astype(np.float64)
            self._prepare(leaf)
        else:
            self._end_or_go_on(leaf, of_player)

    def _end_or_go_on(self, leaf: Node, of_player: NDArray[Any]) -> None:
        """With hidden hands the simulation goes on from another player's leaf, who does not know the root player's hand."""
        simulation, root = self._simulation, self._root
        assert simulation is not None
        assert root is not None
        if self._game.is_hidden():
            if leaf.actor != root.actor and simulation.new_nodes < 3 * self._game.num_players():
                simulation.own_views[leaf.actor] = float(of_player[leaf.actor])
                simulation.node = leaf
                return
            for player, view in simulation.own_views.items():
                of_player[player] = of_player[player] if player == leaf.actor else view
        self._back_up(simulation.path, of_player)

    def _prepare(self, root: Node) -> None:
        if self._config.algorithm == "gumbel":
            self._plan = prepare(root, self._config, self._rng(5))
        elif self._config.dirichlet_fraction > 0:
            noise = self._rng(6).dirichlet([self._config.dirichlet_alpha] * len(root.actions))
            root.prior = (1 - self._config.dirichlet_fraction) * root.prior + self._config.dirichlet_fraction * noise

    def _back_up(self, path: list[tuple[Node, int]], of_player: NDArray[Any]) -> None:
        self._simulation = None
        for node, edge in path:
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
            returns=np.array(self._returns, np.float32),
            terminal=self.status == FINISHED,
        )


def _settle(state: State, rng: np.random.Generator | None) -> list[int]:
    """Lets chance act; returns what it did. No numbers are needed where the game has no chance."""
    happened: list[int] = []
    while rng is not None and state.is_chance_node():
        happened.append(_draw(state, rng))
        state.apply_action(happened[-1])
        if len(happened) > LIMIT_PLIES:
            raise GameContractError(f"chance acted {LIMIT_PLIES} times in a row")
    return happened


def _draw(state: State, rng: np.random.Generator) -> int:
    outcomes = state.chance_outcomes()
    target = rng.random() * sum(probability for _, probability in outcomes)
    for outcome, probability in outcomes:
        target -= probability
        if target < 0:
            return outcome
    return next(outcome for outcome, probability in reversed(outcomes) if probability > 0)
