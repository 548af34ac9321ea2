"""Classical searches for games in Python and of OpenSpiel: the core's `Uct` and `Pimc` over any game's own rules, any number of seats.

Playouts are uniformly random; chance is drawn as the game says, in tree and playout alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

from azq import _core
from azq.arena.match import draw_outcome
from azq.arena.player import Tick, no_tick

C_UCT = 1.414  # the core's


class Branch:
    """A position of the tree; `total` is what the visits brought to the player who moved to it."""

    __slots__ = ("children", "player", "state", "total", "untried", "visits")

    def __init__(self, state: _core.State, rng: random.Random) -> None:
        self.state, self.player = state, state.current_player()
        self.children: dict[int, Branch] = {}
        self.untried = state.legal_actions() if self.player >= 0 else []
        rng.shuffle(self.untried)
        self.visits, self.total = 0, 0.0

    def after(self, action: int, rng: random.Random) -> Branch:
        """The position that an action or outcome leads to."""
        if action not in self.children:
            state = self.state.clone()
            state.apply_action(action)
            self.children[action] = Branch(state, rng)
        return self.children[action]

    def choice(self, c_uct: float) -> int:
        """UCB1: the action of the largest mean plus c_uct * sqrt(ln N / n)."""
        log_visits = math.log(self.visits)
        return max(self.children, key=lambda action: self.children[action].score(c_uct, log_visits))

    def score(self, c_uct: float, log_visits: float) -> float:
        """What UCB1 compares."""
        return self.total / self.visits + c_uct * math.sqrt(log_visits / self.visits)


class PythonUct:
    """UCT (Kocsis and Szepesvari, ECML 2006): UCB1 over random playouts, each seat for itself; not for games with secrets.

    UCB1 expects results from -1 to 1; the scores of a game for one may lie anywhere, so there it is the range seen in a search that counts.
    """

    def __init__(self, num_simulations: int, seed: int, tick: Tick = no_tick) -> None:
        self._num_simulations, self._rng, self._tick = num_simulations, random.Random(seed), tick

    def best_action(self, state: _core.State) -> int:
        """The most visited action; ties go to the lowest."""
        root = Branch(state, self._rng)
        self._c_uct, self._low, self._high = C_UCT, math.inf, -math.inf
        for _ in range(self._num_simulations):
            self._tick()
            self._simulate(root)
        return max(sorted(root.children), key=lambda action: root.children[action].visits)

    def _simulate(self, root: Branch) -> None:
        path = [root]
        returns = play_out(self._descend(path).state.clone(), self._rng)
        if len(returns) == 1:
            self._low, self._high = min(self._low, returns[0]), max(self._high, returns[0])
            self._c_uct = C_UCT * (self._high - self._low) / 2
        for parent, child in pairwise(path):
            child.total += returns[parent.player] if parent.player >= 0 else 0.0
        for branch in path:
            branch.visits += 1

    def _descend(self, path: list[Branch]) -> Branch:
        """Down to one new position where chance does not act, or to the end."""
        fresh, branch = False, path[0]
        while branch.player == _core.CHANCE_PLAYER or (branch.player >= 0 and not fresh):
            if branch.player == _core.CHANCE_PLAYER:
                action = draw_outcome(branch.state, self._rng)
            else:
                fresh = bool(branch.untried)
                action = branch.untried.pop() if fresh else branch.choice(self._c_uct)
            branch = branch.after(action, self._rng)
            path.append(branch)
        return branch


class PythonPimc:
    """Perfect-information Monte Carlo (Ginsberg, JAIR 14, 2001): all that is hidden is drawn again, then a playout after each action."""

    def __init__(self, num_determinizations: int, seed: int, tick: Tick = no_tick) -> None:
        self._num_determinizations, self._rng, self._tick = num_determinizations, random.Random(seed), tick

    def best_action(self, state: _core.State) -> int:
        """The action of the largest mean result; ties go to the lowest."""
        player = state.current_player()
        sums = dict.fromkeys(state.legal_actions(), 0.0)
        for _ in range(self._num_determinizations):
            world = state.resample_from_infostate(player, self._rng.random)
            for action in sums:
                self._tick()
                end = world.clone()
                end.apply_action(action)
                sums[action] += play_out(end, self._rng)[player]
        return max(sums, key=lambda action: sums[action])


def play_out(state: _core.State, rng: random.Random) -> Sequence[float]:
    """Plays uniformly random actions, lets chance act, and tells what each player has in the end; the state is used up."""
    while not state.is_terminal():
        state.apply_action(draw_outcome(state, rng) if state.is_chance_node() else rng.choice(state.legal_actions()))
    return state.returns()
