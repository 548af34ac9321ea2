"""Perfect play at connect four, from an exact solver (extra `eval`) in a separate process."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from azq.arena.engines.process import EnginePlayer, EngineProcess
from azq.arena.player import DEADLINE_S, Tick, from_the_start, no_tick
from azq.errors import IllegalActionError, MissingExtra

SCRIPT = Path(__file__).with_name("solver_process.py")
CENTRE = 3


class SolverPlayer(EnginePlayer):
    """The solver's process, started at once; raises `MissingExtra` where the extra `eval` is not installed."""

    def __init__(self, *, deadline_s: float = DEADLINE_S, tick: Tick = no_tick) -> None:
        if importlib.util.find_spec("bitbully") is None:
            raise MissingExtra("player solver needs the package bitbully; install azq with its extra: pip install 'azq[eval]'")
        command = [sys.executable, "-I", str(SCRIPT)]
        super().__init__(EngineProcess("solver", command, remedy="reinstall azq[eval]", deadline_s=deadline_s, tick=tick))

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """The action that wins soonest, or loses latest; the most central of several."""
        scored = [self.scores(from_the_start(self.name, history)) for history in histories]
        return [max(scores, key=lambda action: (scores[action], -abs(action - CENTRE))) for scores in scored]

    def scores(self, history: Sequence[int]) -> dict[int, int]:
        """Score of each legal action: positive wins (more: sooner), 0 draws, negative loses.

        Raises `IllegalActionError` for actions that do not replay and `EngineError` when the solver died.
        """
        actions = [int(action) for action in history]
        answer = self._process.ask_json({"actions": actions}, f"connect_four after {actions}")
        if "error" in answer:
            raise IllegalActionError(f"solver: {answer['error']}")
        return {int(action): int(score) for action, score in answer["scores"].items()}
