"""Any engine that speaks the Go Text Protocol, version 2 (Farneback, 2002): `gtp:<command>`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from azq import _core
from azq.arena.engines.process import EnginePlayer, EngineProcess
from azq.arena.player import DEADLINE_S, RESIGN, Tick, from_the_start, no_tick, position
from azq.errors import ConfigError
from azq.notation.boards import COLOURS, PASS, coordinates


def answered(lines: Sequence[str]) -> bool:
    """Whether an answer is whole: a line that begins with = or ?, and an empty one after it."""
    begun = False
    for line in lines:
        if begun and not line.strip():
            return True
        begun = begun or line.startswith(("=", "?"))
    return False


class GtpPlayer(EnginePlayer):
    """Plays the moves of a GTP engine; black is player 0.

    Raises `ConfigError` for a game that GTP engines do not play, `EngineError` where the engine cannot be started, dies,
    stays silent, refuses a command or answers what is no legal action. With `move_ms` it gets its time, in seconds; one that refuses the
    command takes what it takes.
    """

    def __init__(self, command: str, game: _core.Game, *, move_ms: int = 0, deadline_s: float = DEADLINE_S, tick: Tick = no_tick) -> None:
        self._game = game
        self._cells = coordinates(game)
        name, remedy = f"gtp:{command}", f"try it by hand: echo name | {command}"
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"player {name} is no command line: {error}") from None
        super().__init__(EngineProcess(name, words, remedy=remedy, deadline_s=deadline_s + move_ms / 1000, tick=tick))
        self._time = f"{move_ms / 1000:g} 1" if move_ms else ""  # and one move to make in it
        if self._time:
            self._command(f"time_settings 0 {self._time}", "its start", may_refuse=True)
        self._sent: list[int] | None = None  # the game on the engine's board

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """The engine's move in each position, or `RESIGN`."""
        return [self._move(from_the_start(self.name, history)) for history in histories]

    def _move(self, history: list[int]) -> int:
        state = position(self._game, history)
        legal = state.legal_actions()
        if len(legal) == 1:
            return legal[0]
        about = f"{self._game.name} {state.notation()}"
        self._set_up(history, about)
        colour = COLOURS[state.current_player()]
        if self._time:
            self._command(f"time_left {colour} {self._time}", about, may_refuse=True)
        text = self._command(f"genmove {colour}", about)
        self._sent = None  # genmove plays its move on the engine's board
        if text.lower() == "resign":
            return RESIGN
        action = self._cells.action(text)
        if action is None or action not in legal:
            raise self._process.broke(f"answered genmove {colour} with {text[:40]!r}, which is no legal action,", about)
        self._sent = [*history, action]
        return action

    def _set_up(self, history: list[int], about: str) -> None:
        """Brings the engine's board to the position; sends only the moves that it lacks."""
        on_board = self._sent
        if on_board is None or history[: len(on_board)] != on_board:
            self._command(f"boardsize {self._cells.size}", about)
            self._command("clear_board", about)
            on_board = []
        state = position(self._game, on_board)
        for action in history[len(on_board) :]:
            vertex = self._cells.vertex(action)
            self._command(f"play {COLOURS[state.current_player()]} {vertex}", about, may_refuse=vertex == PASS)
            state.apply_action(action)
        self._sent = history

    def _command(self, command: str, about: str, *, may_refuse: bool = False) -> str:
        """What follows the = of the answer; raises `EngineError` for a refusal.

        A time may be refused, and a pass: gtp-rhino takes none, it passes by itself where the rules make a side pass.
        """
        lines = self._process.ask(command, about, complete=answered)
        reply = " ".join(line.strip() for line in lines[_start(lines) :]).strip()
        if reply.startswith("?") and not may_refuse:
            raise self._process.broke(f"refused {command!r} ({reply[1:].strip()[:80]})", about)
        return reply[1:].strip()


def _start(lines: Sequence[str]) -> int:
    return next(number for number, line in enumerate(lines) if line.startswith(("=", "?")))
