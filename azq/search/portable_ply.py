"""The search of one ply in Python: simulations, each select, expand, back up.

Simulations redraw what the player to move cannot know and sample chance. With secrets a node is what its player knows (information-set
search: Cowling, Powley and Whitehouse, IEEE TCIAIG 4(2), 2012; one table for all of a player's information sets, whatever the others
hold), else it is the way that led there. Letters: A actions, V values per leaf.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq._core import Game, SearchConfig, State
from azq.errors import GameContractError
from azq.search.algorithms import ALGORITHMS, Algorithm, Choice, Node, Rngs

LIMIT_PLIES = 100_000
WORLD, SAMPLE = 4, 8  # what a ply's random numbers are for


def rng_of(*key: int) -> np.random.Generator:
    """Random numbers by seed, game, ply and what they are for."""
    return np.random.default_rng([key[0] & (2**63 - 1), *key[1:]])


class Simulation:
    """The simulation under way: its world, where it stands, and what each player thought of his own node."""

    def __init__(self, root: Node) -> None:
        self.node, self.visit, self.new_nodes = root, 0, 0
        self.way: tuple[int, ...] = ()  # actions and outcomes from the root on, a mark after each action's outcomes
        self.path: list[tuple[Node, int]] = []
        self.own_views: dict[int, float] = {}
        self.state: Any = None
        self.chance: Any = None


class PortablePly:
    """The search of one position, over what its players know; raises `GameContractError` where the game's rules fail."""

    def __init__(self, game: Game, config: SearchConfig, state: State, rngs: Rngs) -> None:
        self._game, self._config, self._state, self._rngs = game, config, state, rngs
        self._root: Node | None = None
        self._algorithm: Algorithm | None = None  # once the root is evaluated
        self._simulation: Simulation | None = None
        self._leaf: Node | None = None
        self._nodes: dict[Hashable, Node] = {}
        self._players, self._budget = game.num_players(), config.num_simulations
        self._means: list[float] = []  # of each player's value
        self.simulations = 0

    @property
    def root(self) -> Node:
        assert self._root is not None
        return self._root

    @property
    def spent(self) -> bool:
        """Whether the budget is spent, or there is nothing to search for."""
        return self._algorithm is not None and (self.simulations >= self._budget or len(self.root.actions) == 1)

    def leaves(self) -> list[NDArray[np.uint8]]:
        """Walks to the next leaf and gives its packed observation, or those of several; none where the simulation ended with the game."""
        if self._root is None:
            self._root = self._leaf = _node_of(self._state)
            return [self._state.packed_observation(self._root.actor)]
        if self._simulation is None:
            self._simulation = Simulation(self._root)
        simulation = self._simulation
        for _ in range(LIMIT_PLIES):
            node, edge = simulation.node, self._choose(simulation)
            if node is self._root:
                self._draw_world(simulation, node.statistics.visits_of(edge))
            simulation.path.append((node, edge))
            if not self._follow(simulation, node.actions[edge]):
                self._back_up(simulation.path, simulation.state.returns())
                return []
            leaf = self._arrive(simulation)
            if leaf is not None:
                self._leaf = leaf
                return [simulation.state.packed_observation(leaf.actor)]
        raise GameContractError(f"game {self._game.name} has not ended after {LIMIT_PLIES} plies of a simulation")

    def apply(self, logits: NDArray[np.float16], values: list[float]) -> None:
        """The evaluation of the leaf at hand: values for its player to move, or one a seat from him on."""
        leaf = self._leaf
        assert leaf is not None
        of_player = self._by_player(values, leaf.actor)
        if leaf.statistics.total == 0:
            leaf.statistics.expand(logits, of_player[leaf.actor])
        self._leaf = None
        if leaf is self._root:
            self._means = of_player
            self._algorithm = ALGORITHMS[self._config.algorithm](leaf, self._config, self._rngs)
        else:
            self._end_or_go_on(leaf, of_player)

    def _by_player(self, values: list[float], actor: int) -> list[float]:
        if len(values) > 1:
            values = [max(-1.0, min(value, 1.0)) for value in values]
            return [values[(player - actor) % self._players] for player in range(self._players)]
        own = max(-1.0, min(values[0], 1.0))
        of_player = [-own] * self._players
        of_player[actor] = own
        return of_player

    def decide(self, explores: bool) -> Choice:
        """The spent search's answer; `explores`: in the temperature plies."""
        assert self._algorithm is not None
        return self._algorithm.decide(explores)

    def values(self, choice: Choice) -> NDArray[Any]:
        """The root's values (V,), the mover's first."""
        mover, seats = self.root.actor, range(1, self._game.value_size())
        return np.array([choice.root_value, *(self._means[(mover + seat) % self._players] for seat in seats)])

    def _draw_world(self, simulation: Simulation, visit: int) -> None:
        """The k-th visit of every root action meets the same hidden hands and chance."""
        simulation.visit = visit
        hidden, worlds = self._game.is_hidden(), self._config.determinizations
        if hidden:
            rng = self._rngs(WORLD, visit % worlds if worlds else visit)
            simulation.state = self._state.resample_from_infostate(simulation.node.actor, rng.random)
        else:
            simulation.state = self._state.clone()
        simulation.chance = self._rngs(SAMPLE, visit) if hidden or self._game.is_chance() else None

    def _choose(self, simulation: Simulation) -> int:
        """Another player's node evaluated in this very simulation is left by its priors."""
        assert self._algorithm is not None
        node = simulation.node
        if self._game.is_hidden() and node.actor != self.root.actor:
            target = simulation.chance.random()
            if node.statistics.total == 1:
                return int(min(np.searchsorted(np.cumsum(node.statistics.prior), target, side="right"), len(node.actions) - 1))
        return self._algorithm.select(node, self.simulations)

    def _follow(self, simulation: Simulation, action: int) -> bool:
        """Through chance and whatever leaves no choice to the next decision; False where the game ended."""
        state, legal = simulation.state, [action]
        for _ in range(LIMIT_PLIES):
            state.apply_action(legal[0])
            simulation.way += (legal[0], *_play_chance(state, simulation.chance), -1)
            if state.is_terminal():
                return False
            legal = state.legal_actions()
            if len(legal) != 1:
                return True
        raise GameContractError(f"game {self._game.name}: {LIMIT_PLIES} plies in a row left no choice")

    def _arrive(self, simulation: Simulation) -> Node | None:
        """The node at hand where it is to be evaluated: a new one, or the root player's after a round of new ones."""
        key = self._node_key(simulation)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = _node_of(simulation.state)
            simulation.new_nodes += 1
            return node
        long_enough = simulation.new_nodes >= self._game.num_players()
        if self._game.is_hidden() and long_enough and node.actor == self.root.actor:
            return node
        simulation.node = node
        return None

    def _node_key(self, simulation: Simulation) -> Hashable:
        """What makes a node. With secrets: all that its player knows, and nothing of what the others hold."""
        state, worlds = simulation.state, self._config.determinizations
        if not self._game.is_hidden():
            return simulation.way
        if worlds:
            return simulation.visit % worlds, simulation.way
        player = state.current_player()
        return player, state.information_state_string(player), state.packed_observation(player).tobytes()

    def _end_or_go_on(self, leaf: Node, of_player: list[float]) -> None:
        """With hidden hands the simulation goes on from another player's leaf, who does not know the root player's hand."""
        simulation = self._simulation
        assert simulation is not None
        if self._game.is_hidden():
            if leaf.actor != self.root.actor and simulation.new_nodes < 3 * self._game.num_players():
                simulation.own_views[leaf.actor] = of_player[leaf.actor]
                simulation.node = leaf
                return
            for player, view in simulation.own_views.items():
                of_player[player] = of_player[player] if player == leaf.actor else view
        self._back_up(simulation.path, of_player)

    def _back_up(self, path: list[tuple[Node, int]], of_player: list[float]) -> None:
        self._simulation = None
        for node, edge in path:
            node.statistics.update(edge, of_player[node.actor])
        self.simulations += 1
        means, count = self._means, self.simulations + 1
        for player, value in enumerate(of_player):
            means[player] += (value - means[player]) / count


def _node_of(state: State) -> Node:
    return Node(state.current_player(), state.legal_actions())


def _play_chance(state: State, rng: np.random.Generator | None) -> list[int]:
    """Lets chance act; returns what it did. No numbers are needed where the game has no chance."""
    happened: list[int] = []
    while rng is not None and state.is_chance_node():
        happened.append(draw(state, rng))
        state.apply_action(happened[-1])
        if len(happened) > LIMIT_PLIES:
            raise GameContractError(f"chance acted {LIMIT_PLIES} times in a row")
    return happened


def draw(state: State, rng: np.random.Generator) -> int:
    outcomes = state.chance_outcomes()
    target = rng.random() * sum(probability for _, probability in outcomes)
    for outcome, probability in outcomes:
        target -= probability
        if target < 0:
            return outcome
    return next(outcome for outcome, probability in reversed(outcomes) if probability > 0)


class KnownPosition:
    """A state with a choice to make among `actions`, and what it said; `forced`: plies that left no choice led here."""

    __slots__ = ("_after", "_observation", "actions", "actor", "forced", "state")

    def __init__(self, state: State, actions: list[int], forced: bool = False) -> None:
        self.state, self.actions, self.forced = state, actions, forced
        self.actor = state.current_player()
        self._observation: NDArray[np.uint8] | None = None
        self._after: dict[int, KnownPosition | list[float]] = {}

    def observation(self) -> NDArray[np.uint8]:
        """Packed, for the player to move."""
        if self._observation is None:
            self._observation = self.state.packed_observation(self.actor)
        return self._observation

    def after(self, action: int) -> KnownPosition | list[float]:
        """The next position with a choice, or the returns where the game ends before."""
        if action not in self._after:
            self._after[action] = self._play(action)
        return self._after[action]

    def decided(self) -> list[float] | None:
        """The returns where an action of the player to move wins at once."""
        for action in self.actions:
            child = self.after(action)
            if isinstance(child, list) and child[self.actor] >= 1.0:
                return child
        return None

    def _play(self, action: int) -> KnownPosition | list[float]:
        state, legal = self.state.clone(), [action]
        for ply in range(LIMIT_PLIES):
            state.apply_action(legal[0])
            if state.is_terminal():
                return state.returns()
            legal = state.legal_actions()
            if len(legal) != 1:
                return KnownPosition(state, legal, forced=ply > 0)
        raise GameContractError(f"{LIMIT_PLIES} plies in a row left no choice")


class TreeNode(Node):
    """A node that is one position; `children`: what its edges led to, returns where the game ended."""

    __slots__ = ("children", "position")

    def __init__(self, position: KnownPosition) -> None:
        super().__init__(position.actor, position.actions)
        self.position = position
        self.children: list[TreeNode | list[float] | None] = [None] * len(position.actions)

    def grow(self, edge: int, decisive: bool) -> TreeNode | list[float]:
        """What an edge leads to; `decisive`: as good as ended where the next action wins."""
        position = self.position.after(self.actions[edge])
        if decisive and isinstance(position, KnownPosition):
            position = position.decided() or position
        child = self.children[edge] = TreeNode(position) if isinstance(position, KnownPosition) else position
        return child


class PortableTree(PortablePly):
    """As `PortablePly`, and the same numbers; `before`: the position to search, where the search of the ply before knew it."""

    def __init__(self, game: Game, config: SearchConfig, state: State, rngs: Rngs, before: KnownPosition | None = None) -> None:
        super().__init__(game, config, state, rngs)
        self._before = before
        self._path: list[tuple[Node, int]] = []
        self._fetched_early = not config.batch_root
        self._early: list[TreeNode] = []  # children of the root whose evaluations are out
        self._known: dict[TreeNode, list[float]] = {}  # the values of those that no simulation came to yet

    def _fetch_early(self, root: TreeNode) -> list[NDArray[np.uint8]]:
        """Children of the root that the ply will visit, together and once, as the core does (tree_search.hpp)."""
        self._fetched_early = True
        assert self._algorithm is not None
        wanted = [edge for edge in range(len(root.actions)) if self._algorithm.will_visit(edge)]
        if len(wanted) <= self._budget:
            self._early = [child for edge in wanted if isinstance(child := root.grow(edge, self._config.decisive_moves), TreeNode)]
        return [child.position.observation() for child in self._early]

    def apply(self, logits: NDArray[np.float16], values: list[float]) -> None:
        if not self._early:
            super().apply(logits, values)
            return
        child = self._early.pop(0)
        of_player = self._known[child] = self._by_player(values, child.actor)
        child.statistics.expand(logits, of_player[child.actor])

    def leaves(self) -> list[NDArray[np.uint8]]:
        child: Node | list[float] | None = self._root
        if child is None:
            position = self._before or KnownPosition(self._state, self._state.legal_actions())
            self._root = self._leaf = TreeNode(position)
            return [position.observation()]
        assert self._algorithm is not None
        assert isinstance(child, TreeNode)
        if not self._fetched_early and (early := self._fetch_early(child)):
            return early
        select = self._algorithm.select
        path: list[tuple[Node, int]] = []
        while isinstance(child, TreeNode):
            node, edge = child, select(child, self.simulations)
            path.append((node, edge))
            child = node.children[edge]
            if child is None:
                child = node.grow(edge, self._config.decisive_moves)
                if isinstance(child, TreeNode):
                    self._leaf, self._path = child, path
                    return [child.position.observation()]
            elif self._known and isinstance(child, TreeNode) and child in self._known:
                child = self._known.pop(child)
        assert isinstance(child, list)
        self._back_up(path, child)
        return []

    def position_after(self, action: int) -> KnownPosition | None:
        """The position that an action leads to, where the search has been there."""
        assert isinstance(self._root, TreeNode)
        child = self._root.children[self._root.actions.index(action)] if action in self._root.actions else None
        return child.position if isinstance(child, TreeNode) and not child.position.forced else None

    def _end_or_go_on(self, leaf: Node, of_player: list[float]) -> None:
        self._back_up(self._path, of_player)
