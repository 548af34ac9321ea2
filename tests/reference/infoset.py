"""One game with chance or hidden hands: the reference of azq/core/include/azq/search/infoset_search.hpp."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from azq._core import Game, State
from reference import gumbel, puct
from reference.config import Settings
from reference.decision import Decision
from reference.float32 import F, clamp
from reference.rng import Purpose, Rng
from reference.search import Evaluate, plan_of, select_edge, set_priors
from reference.tree import HIGHEST, LOWEST, ZERO, Edge


@dataclass
class InfosetNode:
    """What its actor cannot tell apart. Values are the actor's."""

    actor: int
    edges: list[Edge]
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
class Simulation:
    """One way from the root: the edges taken, what tells the present node apart, and what each player thought of his own node."""

    state: State
    world: int = 0
    chance: Rng | None = None
    way: list[tuple[InfosetNode, Edge]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    new_nodes: int = 0
    own_views: dict[int, F] = field(default_factory=dict)


@dataclass
class InfosetPly:
    """What the search of one ply left at the root, by action (A entries); `values` (V,) from the mover's seat on."""

    decision: Decision
    policy: NDArray[np.float32]
    visit_counts: NDArray[np.int32]
    values: list[F]
    simulations: int


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
        self._simulations = 0
        self._nodes: dict[object, InfosetNode] = {}
        self._root = _create(self.state)
        self._evaluate_root()
        self._plan = plan_of(self._root, self.settings, self._rng)
        while not self._spent():
            if self.game.is_hidden():
                self._simulate()
            else:
                self._simulate_several()
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

    def _evaluate_root(self) -> None:
        self._means = self._judge(self._root, self.state)

    def _simulate(self) -> None:
        """With hidden hands: through other players' new nodes to the root's player, or to the end."""
        simulation = Simulation(self.state)
        node = self._walk(self._root, simulation)
        while node is not None:
            of_player = self._judge(node, simulation.state)
            if node.actor == self._root.actor or simulation.new_nodes == 3 * self.game.num_players():
                others = {player: view for player, view in simulation.own_views.items() if player != node.actor}
                self._back_up(simulation, [others.get(player, value) for player, value in enumerate(of_player)])
                return
            simulation.own_views[node.actor] = of_player[node.actor]
            node = self._walk(node, simulation)

    def _simulate_several(self) -> None:
        """Without: several leaves may be out at once."""
        leaves: list[tuple[InfosetNode, Simulation]] = []
        while len(leaves) < self.settings.leaves_per_step and not self._spent():
            simulation = Simulation(self.state)
            node = self._walk(self._root, simulation)
            if node is None:
                continue
            if node.pending:
                break
            node.pending = True
            leaves.append((node, simulation))
            _add_in_flight(node, simulation, 1)
        for node, simulation in leaves:
            _add_in_flight(node, simulation, -1)
            node.pending = False
            self._back_up(simulation, self._judge(node, simulation.state))

    def _judge(self, node: InfosetNode, state: State) -> list[F]:
        """The evaluation of a position: everybody's value, as its player to move sees it. Expands a new node."""
        logits, values = self._evaluate(state.packed_observation(node.actor)[None])
        of_player = self._of_players(node.actor, values[0])
        if node.visits == 0:
            _expand(node, logits[0], of_player[node.actor])
        return of_player

    def _spent(self) -> bool:
        return len(self._root.edges) == 1 or self._simulations + self._root.in_flight >= self.settings.num_simulations

    def _walk(self, node: InfosetNode, simulation: Simulation) -> InfosetNode | None:
        """On from a node to one that is to be evaluated, or that is being; None where the game ended, which was backed up."""
        while True:
            edge = self._choose(node, simulation)
            if not simulation.way:
                self._begin(simulation, edge)
            simulation.way.append((node, edge))
            state, legal = simulation.state, [edge.action]
            while len(legal) == 1:
                self._move(simulation, legal[0])
                if state.is_terminal():
                    self._back_up(simulation, [F(value) for value in state.returns()])
                    return None
                legal = state.legal_actions()
            key = self._told_apart_by(simulation)
            if key not in self._nodes:
                simulation.new_nodes += 1
                self._nodes[key] = _create(state)
                return self._nodes[key]
            node = self._nodes[key]
            long_enough = simulation.new_nodes >= self.game.num_players()
            if node.pending or (self.game.is_hidden() and long_enough and node.actor == self._root.actor):
                return node

    def _choose(self, node: InfosetNode, simulation: Simulation) -> Edge:
        if self.game.is_hidden() and node.actor != self._root.actor:
            assert simulation.chance is not None
            target = simulation.chance.uniform()
            if node.visits == 1:
                return _draw_prior(node, target)
        return select_edge(node, self._root, self.settings, self._plan, self._simulations)

    def _begin(self, simulation: Simulation, edge: Edge) -> None:
        visit = edge.visits + edge.in_flight
        simulation.world = visit % self.settings.determinizations if self.settings.determinizations else visit
        simulation.state = self._world(simulation.world)
        simulation.chance = Rng(self._seed_of(visit), 0, 0, Purpose.SAMPLE)

    def _move(self, simulation: Simulation, action: int) -> None:
        state = simulation.state
        state.apply_action(action)
        simulation.steps.append(action)
        while state.is_chance_node():
            assert simulation.chance is not None
            outcome = _pick(state, simulation.chance.uniform())
            state.apply_action(outcome)
            if not self.game.is_hidden() or self.settings.determinizations:
                simulation.steps.append(outcome)

    def _told_apart_by(self, simulation: Simulation) -> object:
        state, steps = simulation.state, tuple(simulation.steps)
        if not self.game.is_hidden():
            return steps
        if self.settings.determinizations:
            return simulation.world, steps
        return state.packed_observation(state.current_player()).tobytes(), steps

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

    def _of_players(self, actor: int, given: NDArray[np.float16]) -> list[F]:
        numbers = [clamp(F(value), F(-1.0), F(1.0)) for value in given]
        if len(numbers) == 1:
            return [numbers[0] if player == actor else -numbers[0] for player in range(self.game.num_players())]
        return [numbers[(player - actor) % len(numbers)] for player in range(len(numbers))]

    def _back_up(self, simulation: Simulation, of_player: list[F]) -> None:
        for node, edge in simulation.way:
            value = of_player[node.actor]
            node.visits += 1
            node.mean = node.mean + (value - node.mean) / F(node.visits)
            edge.visits += 1
            edge.q = edge.q + (value - edge.q) / F(edge.visits)
        visits = F(self._root.visits)
        self._means = [mean + (value - mean) / visits for mean, value in zip(self._means, of_player, strict=True)]
        self._simulations += 1

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
        return InfosetPly(decision, policy, visits, [decision.root_value, *others], self._simulations)


def _pick(state: State, target: F) -> int:
    passed = F(0.0)
    for outcome, probability in state.chance_outcomes():
        passed = passed + F(probability)
        if target < passed:
            return outcome
    return state.chance_outcomes()[-1][0]


def _draw_prior(node: InfosetNode, target: F) -> Edge:
    passed = F(0.0)
    for edge in node.edges:
        passed = passed + edge.prior
        if target < passed:
            return edge
    return node.edges[-1]


def _create(state: State) -> InfosetNode:
    return InfosetNode(state.current_player(), [Edge(action) for action in state.legal_actions()])


def _expand(node: InfosetNode, logits: NDArray[np.float16], value: F) -> None:
    set_priors(node, logits)
    node.raw_value = node.mean = value
    node.visits = 1


def _add_in_flight(leaf: InfosetNode, simulation: Simulation, amount: int) -> None:
    leaf.in_flight += amount
    for node, edge in simulation.way:
        node.in_flight += amount
        edge.in_flight += amount
