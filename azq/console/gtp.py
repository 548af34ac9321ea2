"""`azq gtp`: a player of azq for boards that speak the Go Text Protocol, version 2 (Farneback, 2002): Sabaki, GoGui and others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TextIO

from azq import __version__
from azq.arena.player import RESIGN, Player, position
from azq.config import Config
from azq.console.play import Seating, seated
from azq.errors import AzqError
from azq.games import Game, State
from azq.notation.boards import COLOURS, PASS, Coordinates, coordinates

IGNORED = ("komi", "time_settings", "time_left")  # boards send them unasked; they mean nothing in these games


class GtpRefusal(Exception):
    """What a command is answered with after the question mark."""


class GtpBoard:
    """One game and who plays it: an answer for each command, black being player 0."""

    def __init__(self, game: Game, player: Player, cells: Coordinates) -> None:
        self._game, self._player, self._cells = game, player, cells
        self._history: list[int] = []
        self._commands: dict[str, Callable[[Sequence[str]], str]] = {
            "protocol_version": lambda _: "2",
            "name": lambda _: f"azq {player.name}",
            "version": lambda _: __version__,
            "known_command": lambda words: str(_only(words) in self._commands).lower(),
            "list_commands": lambda _: "\n".join(self._commands),
            "quit": lambda _: "",
            "boardsize": self._resize,
            "clear_board": self._clear,
            "play": self._play,
            "genmove": lambda words: self._genmove(words, keep=True),
            "reg_genmove": lambda words: self._genmove(words, keep=False),
            "undo": self._undo,
            "showboard": lambda _: "\n" + str(self._state()).strip("\n"),
            "final_score": self._score,
            **dict.fromkeys(IGNORED, lambda _: ""),
        }

    def answer(self, line: str) -> tuple[str, bool]:
        """The whole answer to a line, empty for one without a command; and whether the board hangs up. Raises what the player raises."""
        words = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", line.partition("#")[0]).split()
        number = words.pop(0) if words and words[0].isdecimal() else ""
        if not words:
            return "", False
        name, *rest = words
        try:
            if name not in self._commands:
                raise GtpRefusal("unknown command")
            said = f"={number} {self._commands[name](rest)}"
        except GtpRefusal as refusal:
            said = f"?{number} {refusal}"
        return said.rstrip() + "\n\n", name == "quit"

    def _state(self) -> State:
        return position(self._game, self._history)

    def _resize(self, words: Sequence[str]) -> str:
        if _only(words) != str(self._cells.size):
            raise GtpRefusal("unacceptable size")
        return self._clear(())

    def _clear(self, _: Sequence[str]) -> str:
        self._history = []
        return ""

    def _play(self, words: Sequence[str]) -> str:
        if len(words) != 2:
            raise GtpRefusal("syntax error")
        state = self._turn_of(words[0])
        action = self._cells.action(words[1])
        if words[1].upper() == PASS and (action is None or action not in state.legal_actions()):
            if state.is_terminal():
                return ""  # boards end a game by passes
            raise GtpRefusal("illegal move")
        if action is None or state.is_terminal() or action not in state.legal_actions():
            raise GtpRefusal("illegal move")
        self._history = [*state.history(), action]
        return ""

    def _genmove(self, words: Sequence[str], *, keep: bool) -> str:
        state = self._turn_of(_only(words))
        if state.is_terminal():
            return PASS
        history = state.history()
        (action,) = self._player.choose([history])
        if action == RESIGN:
            return "resign"
        if keep:
            self._history = [*history, action]
        return self._cells.vertex(action)

    def _turn_of(self, colour: str) -> State:
        """The position with this colour to move: a side that can only pass, and was not asked, has passed."""
        side = next((number for number, name in enumerate(COLOURS) if colour.lower() in (name, name[0])), None)
        if side is None:
            raise GtpRefusal("syntax error")
        state, passing = self._state(), self._cells.pass_action
        if passing is not None and not state.is_terminal() and state.current_player() != side and state.legal_actions() == [passing]:
            state.apply_action(passing)
        if not state.is_terminal() and state.current_player() != side:
            raise GtpRefusal(f"it is {COLOURS[1 - side]}'s turn")
        return state

    def _undo(self, _: Sequence[str]) -> str:
        if not self._history:
            raise GtpRefusal("cannot undo")
        self._history = self._history[:-1]
        return ""

    def _score(self, _: Sequence[str]) -> str:
        state = self._state()
        if not state.is_terminal():
            raise GtpRefusal("cannot score")
        black = state.returns()[0]
        return "0" if black == 0 else f"{'B' if black > 0 else 'W'}+{abs(black):g}"


def serve(config: Config, seating: Seating, player: str, source: TextIO, sink: TextIO) -> None:
    """Answers commands until `quit` or the end of `source`.

    Raises `ConfigError` for a game that such boards do not play, and what `seated` raises. A player who cannot answer is told to the
    board in one line.
    """
    with seated(config, seating, [player]) as (game, (seat,)):
        board = GtpBoard(game, seat, coordinates(game))
        for line in source:
            try:
                said, over = board.answer(line)
            except AzqError as error:
                said, over = f"? {' '.join(str(error).split())}\n\n", False
            sink.write(said)
            sink.flush()
            if over:
                return


def _only(words: Sequence[str]) -> str:
    if len(words) != 1:
        raise GtpRefusal("syntax error")
    return words[0]
