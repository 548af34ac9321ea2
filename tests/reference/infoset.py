"""One game with chance or hidden hands: the reference of azq/core/include/azq/infoset.hpp."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from azq._core import Game, State
from reference import gumbel, puct
from reference.config import Settings
from reference.decision import Decision
from reference.float32 import F, clamp, exp, lane_sum
from reference.rng import Purpose, Rng
from reference.search import Evaluate
from reference.tree import HIGHEST, LOWEST, MIN_PRIOR, ZERO, Edge


@dataclass
class InfosetNode:
    """What its actor cannot tell apart; `key` says what made it a node of its own. Values are the actor's."""

    actor: int
    edges: list[Edge]
    parent: InfosetNode | None
    parent_edge: Edge | None
    children: dict[object, InfosetNode] = field(default_factory=dict)
    visits: int = 0
    in_flight: int = 0
    raw_value: F = ZERO
    mean: F = ZERO
    pending: bool = False
    sign: F = HIGHEST
    lower: F = LOWEST
    upper: F = HIGHEST

    def solved(self) -> bool:
        """Never: values are sampled."""
        return False


@dataclass
class InfosetPly:
    """What the search of one ply left at the root, by action (A entries); `values` (V,) from the mover's seat on."""

    decision: Decision
    policy: NDArray[np.float32]
    visit_counts: NDArray[np.int32]
    values: list[F]
    simulations: int
    num_nodes: int


class ReferenceInfosetGame:
    """Plays one game by search, ply by ply; chance acts by itself."""

    def __init__(self, game: Game, settings: Settings, *, seed: int, uid: int, evaluate: Evaluate) -> None:
        self.game = game
        self.settings = settings
        self.state = game.new_initial_state()
        self._key = (seed, uid)
        self._evaluate = evaluate
        self._decisions = 0
        self._settle()

    def search(self) -> InfosetPly:
        """Spends the budget of this ply."""
        self._num_nodes, self._simulations = 0, 0
        self._plan: gumbel.Plan | None = None
        self._means = [F(0.0)] * self.game.num_players()
        self._root = self._create(self.state, None, None)
        self._apply([(self._root, self.state)])
        if self.settings.algorithm == "gumbel":
            self._plan = gumbel.prepare(self._root, self.settings, self._rng(Purpose.GUMBEL))
        else:
            puct.add_noise(self._root, self.settings, self._rng(Purpose.DIRICHLET))
        while leaves := self._collect():
            self._apply(leaves)
        return self._conclude()

    def play(self, action: int) -> None:
        """Plays an action and lets chance act."""
        self.state.apply_action(action)
        self._decisions += 1
        self._settle()

    def _settle(self) -> None:
        while self.state.is_chance_node():
            self.state.apply_action(_pick(self.state, self._rng(Purpose.CHANCE).uniform()))

    def _rng(self, purpose: Purpose) -> Rng:
        return Rng(*self._key, len(self.state.history()), purpose)

    def _create(self, state: State, parent: InfosetNode | None, edge: Edge | None) -> InfosetNode:
        self._num_nodes += 1
        return InfosetNode(state.current_player(), [Edge(action) for action in state.legal_actions()], parent, edge)

    def _collect(self) -> list[tuple[InfosetNode, State]]:
        leaves: list[tuple[InfosetNode, State]] = []
        while len(leaves) < self.settings.leaves_per_step and not self._spent():
            node, state, collided = self._select()
            if collided:
                break
            if node is None:
                continue
            node.pending = True
            leaves.append((node, state))
            _add_in_flight(node, 1)
        return leaves

    def _spent(self) -> bool:
        return len(self._root.edges) == 1 or self._simulations + self._root.in_flight >= self.settings.num_simulations

    def _select_edge(self, node: InfosetNode) -> Edge:
        if self._plan is None:
            return puct.select(node, self.settings, at_root=node is self._root)
        if node is self._root:
            return gumbel.select_root(node, self.settings, self._plan, self._simulations + node.in_flight)
        return gumbel.select(node, self.settings)

    def _select(self) -> tuple[InfosetNode | None, State, bool]:
        """A new leaf with its position; or None where the simulation ended; and whether it met a leaf in flight."""
        node, state, chance, world = self._root, self.state, None, 0
        while True:
            if node.pending:
                return None, state, True
            edge = self._select_edge(node)
            if chance is None:
                visit = edge.visits + edge.in_flight
                world = visit % self.settings.determinizations if self.settings.determinizations else visit
                state, chance = self._world(world), Rng(self._seed_of(visit), 0, 0, Purpose.SAMPLE)
            state.apply_action(edge.action)
            happened = []
            while state.is_chance_node():
                happened.append(_pick(state, chance.uniform()))
                state.apply_action(happened[-1])
            if state.is_terminal():
                self._back_up(node, edge, [F(value) for value in state.returns()])
                self._simulations += 1
                return None, state, False
            key = (edge.action, self._told_apart_by(state, world, happened))
            if key not in node.children:
                node.children[key] = self._create(state, node, edge)
                return node.children[key], state, False
            node = node.children[key]

    def _told_apart_by(self, state: State, world: int, happened: list[int]) -> object:
        if not self.game.is_hidden():
            return tuple(happened)
        if self.settings.determinizations:
            return world, tuple(happened)  # in one world chance may still differ
        return state.packed_observation(state.current_player()).tobytes()

    def _world(self, number: int) -> State:
        """The hidden hands of one number."""
        if not self.game.is_hidden():
            return self.state.clone()
        return self.state.resample_from_infostate(self._root.actor, self._seed_of(number))

    def _seed_of(self, number: int) -> int:
        numbers = self._rng(Purpose.SAMPLE)
        numbers.skip(number)
        low = numbers.next()
        return low | numbers.next() << 32

    def _apply(self, leaves: list[tuple[InfosetNode, State]]) -> None:
        rows = [state.packed_observation(node.actor) for node, state in leaves]
        logits, values = self._evaluate(np.stack(rows))
        for (leaf, _), row, given in zip(leaves, logits, values, strict=True):
            if leaf.pending:
                leaf.pending = False
                _add_in_flight(leaf, -1)
                self._simulations += 1
            of_player = self._of_players(leaf.actor, given)
            _expand(leaf, row, of_player[leaf.actor])
            leaf.visits += 1
            leaf.mean = leaf.mean + (of_player[leaf.actor] - leaf.mean) / F(leaf.visits)
            self._back_up(leaf.parent, leaf.parent_edge, of_player)

    def _of_players(self, actor: int, given: NDArray[np.float16]) -> list[F]:
        numbers = [clamp(F(value), F(-1.0), F(1.0)) for value in given]
        if len(numbers) == 1:
            return [numbers[0] if player == actor else -numbers[0] for player in range(2)]
        return [numbers[(player - actor) % len(numbers)] for player in range(len(numbers))]

    def _back_up(self, node: InfosetNode | None, edge: Edge | None, of_player: list[F]) -> None:
        while node is not None and edge is not None:
            value = of_player[node.actor]
            node.visits += 1
            node.mean = node.mean + (value - node.mean) / F(node.visits)
            edge.visits += 1
            edge.q = edge.q + (value - edge.q) / F(edge.visits)
            edge, node = node.parent_edge, node.parent
        visits = F(self._root.visits)
        self._means = [mean + (value - mean) / visits for mean, value in zip(self._means, of_player, strict=True)]

    def _conclude(self) -> InfosetPly:
        settings, root, rng = self.settings, self._root, self._rng(Purpose.TEMPERATURE)
        decision = gumbel.decide(root, settings, self._plan, rng) if self._plan else puct.decide(root, settings, self._decisions, rng)
        policy = np.zeros(self.game.num_distinct_actions(), np.float32)
        visits = np.zeros(len(policy), np.int32)
        for edge, share in zip(root.edges, decision.policy, strict=True):
            policy[edge.action] = share
            visits[edge.action] = edge.visits
        players = self.game.num_players()
        others = [self._means[(root.actor + seat) % players] for seat in range(1, self.game.value_size())]
        return InfosetPly(decision, policy, visits, [decision.root_value, *others], self._simulations, self._num_nodes)


def _pick(state: State, target: F) -> int:
    passed = F(0.0)
    for outcome, probability in state.chance_outcomes():
        passed = passed + F(probability)
        if target < passed:
            return outcome
    return state.chance_outcomes()[-1][0]


def _expand(node: InfosetNode, logits: NDArray[np.float16], value: F) -> None:
    for edge in node.edges:
        edge.logit = clamp(F(logits[edge.action]), F(-65504.0), F(65504.0))
    largest = max(edge.logit for edge in node.edges)
    weights = [exp(edge.logit - largest) for edge in node.edges]
    total = lane_sum(weights)
    for edge, weight in zip(node.edges, weights, strict=True):
        edge.prior = max(weight / total, MIN_PRIOR)
    node.raw_value = value


def _add_in_flight(leaf: InfosetNode, amount: int) -> None:
    node: InfosetNode | None = leaf
    while node is not None:
        node.in_flight += amount
        if node.parent_edge is not None:
            node.parent_edge.in_flight += amount
        node = node.parent
