"""One game with its search tree: the reference of azq/core/include/azq/search/game_search.hpp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from azq._core import Game, State
from reference import gumbel, puct
from reference.config import Settings
from reference.decision import Decision
from reference.float32 import F, clamp, exp, lane_sum
from reference.rng import Purpose, Rng
from reference.tree import MIN_PRIOR, Chooser, Edge, Node, keep

Evaluate = Callable[[NDArray[np.uint8]], tuple[NDArray[np.float16], NDArray[np.float16]]]


@dataclass
class Ply:
    """What the search of one ply left at the root, by action (A entries)."""

    decision: Decision
    policy: NDArray[np.float32]
    visit_counts: NDArray[np.int32]
    q_values: NDArray[np.float32]
    simulations: int


def plan_of(root: Chooser, settings: Settings, rng: Callable[[Purpose], Rng]) -> gumbel.Plan | None:
    """What is drawn before the simulations: Gumbel's plan, or Dirichlet noise in the priors."""
    if settings.algorithm == "gumbel":
        return gumbel.prepare(root, settings, rng(Purpose.GUMBEL))
    puct.add_noise(root, settings, rng(Purpose.DIRICHLET))
    return None


def select_edge(node: Chooser, root: Chooser, settings: Settings, plan: gumbel.Plan | None, simulations: int) -> Edge:
    """Where a simulation goes on from a node, after so many."""
    if plan is None:
        return puct.select(node, settings, at_root=node is root)
    if node is root:
        return gumbel.select_root(node, settings, plan, simulations + node.in_flight)
    return gumbel.select(node, settings)


def set_priors(node: Chooser, logits: NDArray[np.float16]) -> None:
    """Softmax over the legal actions, in lanes."""
    for edge in node.edges:
        edge.logit = clamp(F(logits[edge.action]), F(-65504.0), F(65504.0))
    largest = max(edge.logit for edge in node.edges)
    weights = [exp(edge.logit - largest) for edge in node.edges]
    total = lane_sum(weights)
    for edge, weight in zip(node.edges, weights, strict=True):
        edge.prior = max(weight / total, MIN_PRIOR)


class ReferenceGame:
    """Plays one game by search, ply by ply."""

    def __init__(self, game: Game, settings: Settings, *, seed: int, uid: int, evaluate: Evaluate) -> None:
        self.game = game
        self.settings = settings
        self.state = game.new_initial_state()
        self._seed = seed
        self._uid = uid
        self._evaluate = evaluate
        self._created = 0
        self.root = self._create(self.state, None, None)
        self._plan: gumbel.Plan | None = None
        self._simulations = 0

    def search(self) -> Ply:
        """Spends the budget of this ply."""
        self._simulations = 0
        if not self.root.expanded:
            self._apply([self.root])
        self._plan = plan_of(self.root, self.settings, self._rng)
        self._win_at_root()
        self._ask_early()
        while True:
            leaves = self._collect()
            if not leaves:
                return self._conclude()
            self._apply(leaves)

    def play(self, action: int) -> None:
        """Plays an action and keeps its subtree where the settings say so."""
        child = next(edge.child for edge in self.root.edges if edge.action == action)
        self.state = self.state.clone()
        self.state.apply_action(action)
        if child is not None and child.visits > 0 and child.expanded and self.settings.reuse_subtree:
            keep(child, self.settings.num_simulations)
            self.root = child
        else:
            self.root = self._create(self.state, None, None)

    def play_random_opening(self) -> None:
        """Plays the random plies that self-play begins with."""
        most = self.settings.random_opening_plies
        opening = Rng(self._seed, self._uid, 0, Purpose.OPENING_LENGTH).below(most + 1) if most else 0
        while len(self.state.history()) < opening and not self.state.is_terminal():
            actions = self.state.legal_actions()
            self.play(actions[self._rng(Purpose.OPENING).below(len(actions))])

    def _rng(self, purpose: Purpose) -> Rng:
        return Rng(self._seed, self._uid, len(self.state.history()), purpose)

    def _create(self, state: State, parent: Node | None, edge: Edge | None) -> Node:
        self._created += 1
        return Node(state, parent, edge, self._created)

    def _spent(self) -> bool:
        return self.root.solved() or self._left() <= 0

    def _left(self) -> int:
        done = self._simulations if self.settings.algorithm == "gumbel" else self.root.visits - 1
        return self.settings.num_simulations - done - self.root.in_flight

    def _ask_early(self) -> None:
        """Evaluates the children that the ply will visit, together; nothing of them counts before a simulation comes there."""
        if not self.settings.batch_root or self._spent():
            return
        wanted = [edge for number, edge in enumerate(self.root.edges) if edge.child is None and self._will_visit(number)]
        if len(wanted) > self._left():
            return
        leaves = []
        for edge in wanted:
            state = self.root.state.clone()
            state.apply_action(edge.action)
            if not state.is_terminal() and self._decisive(state) is None:
                edge.child = self._create(state, self.root, edge)
                leaves.append(edge.child)
        if leaves:
            logits, values = self._evaluate(np.stack([leaf.state.packed_observation() for leaf in leaves]))
            for leaf, row, value in zip(leaves, logits, values, strict=True):
                self._expand(leaf, row, clamp(F(value[0]), F(-1.0), F(1.0)))

    def _decisive(self, state: State) -> int | None:
        """With `decisive_moves` the first action that wins at once."""
        if not self.settings.decisive_moves:
            return None
        for action in state.legal_actions():
            after = state.clone()
            after.apply_action(action)
            if after.is_terminal() and after.returns()[state.current_player()] >= 1.0:
                return action
        return None

    def _win_at_root(self) -> None:
        if self._spent() or (action := self._decisive(self.root.state)) is None:
            return
        edge = next(edge for edge in self.root.edges if edge.action == action)
        state = self.root.state.clone()
        state.apply_action(action)
        edge.child = self._create(state, self.root, edge)
        self._back_up(edge.child, edge.child.lower, proven=True)
        self._simulations += 1

    def _will_visit(self, number: int) -> bool:
        return self._plan is None or self._plan.candidates[number]

    def _collect(self) -> list[Node]:
        leaves: list[Node] = []
        while len(leaves) < self.settings.leaves_per_step and not self._spent():
            node, collided = self._select()
            if collided:
                break
            if node is None:
                continue
            node.pending = True
            leaves.append(node)
            self._add_in_flight(node, 1)
        return leaves

    def _select(self) -> tuple[Node | None, bool]:
        """A new leaf; or None where the simulation ended in an exact value; and whether it met a leaf in flight."""
        node = self.root
        while True:
            edge = select_edge(node, self.root, self.settings, self._plan, self._simulations)
            child, created = edge.child, False
            if child is None:
                state = node.state.clone()
                state.apply_action(edge.action)
                child, created = self._create(state, node, edge), True
                edge.child = child
                if not child.solved() and self._decisive(state) is not None:
                    child.lower = child.upper = child.sign
            if child.solved():
                self._back_up(child, child.lower, proven=True)
                self._simulations += 1
                return None, False
            if created:
                return child, False
            if child.expanded and child.visits == 0:
                self._back_up(child, child.raw_value, proven=False)
                self._simulations += 1
                return None, False
            if child.pending:
                return None, True
            node = child

    def _add_in_flight(self, leaf: Node, amount: int) -> None:
        node: Node | None = leaf
        while node is not None:
            node.in_flight += amount
            if node.parent_edge is not None:
                node.parent_edge.in_flight += amount
            node = node.parent

    def _apply(self, leaves: list[Node]) -> None:
        logits, values = self._evaluate(np.stack([leaf.state.packed_observation() for leaf in leaves]))
        for leaf, row, value in zip(leaves, logits, values, strict=True):
            if leaf.pending:
                leaf.pending = False
                self._add_in_flight(leaf, -1)
                self._simulations += 1
            self._expand(leaf, row, clamp(F(value[0]), F(-1.0), F(1.0)))
            self._back_up(leaf, leaf.raw_value, proven=False)

    def _expand(self, node: Node, logits: NDArray[np.float16], value: F) -> None:
        set_priors(node, logits)
        node.raw_value = node.sign * value
        node.expanded = True

    def _back_up(self, leaf: Node, value: F, *, proven: bool) -> None:
        node, narrower = leaf, proven
        while True:
            value = clamp(value, node.lower, node.upper)
            node.visits += 1
            node.mean = node.mean + (value - node.mean) / F(node.visits)
            edge, parent = node.parent_edge, node.parent
            if edge is None or parent is None:
                return
            edge.visits += 1
            edge.q = clamp(edge.q + (value - edge.q) / F(edge.visits), node.lower, node.upper)
            narrower = narrower and parent.tighten()
            node = parent

    def _conclude(self) -> Ply:
        settings, root, ply = self.settings, self.root, len(self.state.history())
        rng = self._rng(Purpose.TEMPERATURE)
        decision = gumbel.decide(root, settings, self._plan, rng) if self._plan else puct.decide(root, settings, ply, rng)
        size = self.game.num_distinct_actions()
        policy, visits = np.zeros(size, np.float32), np.zeros(size, np.int32)
        q_values = np.full(size, np.nan, np.float32)
        for edge, share in zip(root.edges, decision.policy, strict=True):
            policy[edge.action] = share
            visits[edge.action] = edge.visits
            if edge.visits > 0:
                q_values[edge.action] = root.sign * edge.q
        return Ply(decision, policy, visits, q_values, self._simulations)
