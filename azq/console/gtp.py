"""`azq gtp`: a player of azq for boards that speak the Go Text Protocol, version 2 (Farneback, 2002): Sabaki, GoGui and others."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from azq import __version__
from azq.arena.analyse import softmax
from azq.arena.player import RESIGN, Player
from azq.arena.players import NetworkPlayer
from azq.config import Config
from azq.console.play import Seating, seated
from azq.errors import AzqError
from azq.games import Game, State
from azq.notation.boards import COLOURS, PASS, Coordinates, coordinates
from azq.notation.reading import read_games

# What boards send unasked: settings that mean nothing in these games, and questions to which there is nothing to say.
IGNORED = ("komi", "time_settings", "time_left", "gogui-analyze_commands", "hexgui-analyze_commands", "stop")
INTERVAL_S = 1.0  # between two lines of an analysis, where the board does not say it


class GtpRefusal(Exception):
    """What a command is answered with after the question mark."""


@dataclass(frozen=True, slots=True)
class GtpAnalysis:
    """A line about the moves of a position, to be said every so often until the next command."""

    line: str
    every_s: float


class GtpBoard:
    """One game and who plays it: an answer for each command, black being player 0.

    What was played is all that is kept: passes that a board leaves out follow from it, and go with the move that they belong to.
    """

    def __init__(self, game: Game, player: Player, cells: Coordinates) -> None:
        self._game, self._player, self._cells = game, player, cells
        self._played: list[tuple[int, int | None]] = []  # side and action; None: a pass after the end of the game
        self._commands: dict[str, Callable[[Sequence[str]], str | GtpAnalysis]] = {
            "protocol_version": lambda _: "2",
            "name": lambda _: f"azq {player.name}",
            "version": lambda _: __version__,
            "known_command": lambda words: str(_only(words) in self._commands).lower(),
            "list_commands": lambda _: "\n".join(self._commands),
            "quit": lambda _: "",
            "boardsize": self._resize,
            "rectangular_boardsize": self._resize,
            "set_game": self._set_game,
            "clear_board": self._clear,
            "loadsgf": self._load,
            "play": self._play,
            "genmove": lambda words: self._genmove(words, keep=True),
            "reg_genmove": lambda words: self._genmove(words, keep=False),
            "undo": self._undo,
            "showboard": lambda _: "\n" + str(self._state()).strip("\n"),
            "final_score": self._score,
            **dict.fromkeys(IGNORED, lambda _: ""),
        }
        if isinstance(player, NetworkPlayer):
            self._commands |= {f"{kind}-analyze": lambda words, kind=kind: self._analyse(words, kind, player) for kind in ("lz", "kata")}  # type: ignore[misc]

    def answer(self, line: str) -> tuple[str | GtpAnalysis, bool]:
        """The whole answer to a line, empty for one without a command, or an analysis; and whether the board hangs up.

        Raises what the player raises.
        """
        words = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", line.partition("#")[0]).split()
        number = words.pop(0) if words and words[0].isdecimal() else ""
        if not words:
            return "", False
        name, *rest = words
        try:
            if name not in self._commands:
                raise GtpRefusal("unknown command")
            result = self._commands[name](rest)
            if isinstance(result, GtpAnalysis):
                return GtpAnalysis(f"={number}\n{result.line}", result.every_s), False
            text = f"={number} {result}"  # with the blank also where nothing follows: HexGui takes no answer without
        except GtpRefusal as refusal:
            text = f"?{number} {refusal}"
        return text + "\n\n", name == "quit"

    def _state(self) -> State:
        state = self._game.new_initial_state()
        for side, action in self._played:
            if action is not None:
                self._pass_until(state, side)
                state.apply_action(action)
        return state

    def _pass_until(self, state: State, side: int) -> None:
        """A side that can only pass, where the other one moves, has passed."""
        passing = self._cells.pass_action
        if passing is not None and not state.is_terminal() and state.current_player() != side and state.legal_actions() == [passing]:
            state.apply_action(passing)

    def _resize(self, words: Sequence[str]) -> str:
        if len(words) not in (1, 2):
            raise GtpRefusal("syntax error")
        if set(words) != {str(self._cells.size)}:
            raise GtpRefusal("unacceptable size")
        return self._clear(())

    def _set_game(self, words: Sequence[str]) -> str:
        if " ".join(words).lower() != self._game.name:
            raise GtpRefusal(f"this is {self._game.name}")
        return self._clear(())

    def _clear(self, _: Sequence[str]) -> str:
        self._played = []
        return ""

    def _load(self, words: Sequence[str]) -> str:
        """The first game of a file, up to before the move of that number where one is given."""
        *names, last = words or [""]
        before = int(last) - 1 if names and last.isdecimal() else None
        try:
            data = Path(" ".join(words if before is None else names)).read_bytes()
            game = next(iter(read_games("sgf", self._game, data)), None)
        except (OSError, ValueError, AzqError) as error:
            raise GtpRefusal(f"cannot load file: {' '.join(str(error).split())}") from None
        if game is None or game.problem:
            raise GtpRefusal(f"cannot load file: {game.problem if game else 'it has no game'}")
        state, self._played = self._game.new_initial_state(), []
        for action in game.actions[:before]:
            self._played.append((state.current_player(), action))
            state.apply_action(action)
        return ""

    def _play(self, words: Sequence[str]) -> str:
        if len(words) != 2:
            raise GtpRefusal("syntax error")
        side, state = self._turn_of(words[0])
        action = self._cells.action(words[1])
        if state.is_terminal() and words[1].upper() == PASS:
            self._played.append((side, None))  # boards end a game by passes
            return ""
        if action is None or state.is_terminal() or action not in state.legal_actions():
            raise GtpRefusal("illegal move")
        self._played.append((side, action))
        return ""

    def _genmove(self, words: Sequence[str], *, keep: bool) -> str:
        side, state = self._turn_of(_only(words))
        action = None
        if not state.is_terminal():
            (action,) = self._player.choose([state.history()])
        if action == RESIGN:
            return "resign"
        if keep:
            self._played.append((side, action))
        return PASS if action is None else self._cells.vertex(action)

    def _turn_of(self, colour: str) -> tuple[int, State]:
        """A colour's side and the position with it to move."""
        side = next((number for number, name in enumerate(COLOURS) if colour.lower() in (name, name[0])), None)
        if side is None:
            raise GtpRefusal("syntax error")
        self._pass_until(state := self._state(), side)
        if not state.is_terminal() and state.current_player() != side:
            raise GtpRefusal(f"it is {COLOURS[1 - side]}'s turn")
        return side, state

    def _analyse(self, words: Sequence[str], kind: str, player: NetworkPlayer) -> GtpAnalysis:
        """Of Leela Zero's and KataGo's: `[colour] [interval] [word value ...]`; what has no meaning here is passed over."""
        rest, state, wanted = list(words), self._state(), {}
        if rest and rest[0].lower() in (*COLOURS, "b", "w"):
            _, state = self._turn_of(rest.pop(0))
        if rest and rest[0].isdecimal():
            wanted["interval"] = rest.pop(0)
        wanted |= dict(zip(rest[::2], rest[1::2], strict=False))
        if state.is_terminal():
            raise GtpRefusal("the game is over")
        if not all(wanted.get(word, "0").isdecimal() for word in ("interval", "maxmoves")):
            raise GtpRefusal("syntax error")
        every_s = int(wanted.get("interval", "0")) / 100 or INTERVAL_S
        return GtpAnalysis(
            self._moves(state, player, int(wanted.get("maxmoves", "0")) or None, scale=10_000 if kind == "lz" else 1), every_s
        )

    def _moves(self, state: State, player: NetworkPlayer, most: int | None, scale: int) -> str:
        """A line about the moves that a search has tried, the best first, as the player to move sees them."""
        ((result, line),) = player.results_and_lines([state.history()])
        priors = softmax(result.prior_logits)
        tried = sorted(
            (a for a in state.legal_actions() if result.visit_counts[a]),
            key=lambda a: (a != result.best_action, -result.visit_counts[a], a),
        )

        def share(of: float) -> str:
            return f"{of:.6f}" if scale == 1 else f"{of * scale:.0f}"

        results = []
        for order, action in enumerate(tried[:most]):
            won = share((1 + float(result.q_values[action])) / 2)
            moves = [self._cells.vertex(action) for action in (line if action == result.best_action else [action])]
            about = f"visits {int(result.visit_counts[action])} winrate {won} prior {share(float(priors[action]))} lcb {won} order {order}"
            results.append(f"info move {moves[0]} {about} pv {' '.join(moves)}".replace(PASS, PASS.lower()))
        return " ".join(results)

    def _undo(self, _: Sequence[str]) -> str:
        if not self._played:
            raise GtpRefusal("cannot undo")
        self._played.pop()
        return ""

    def _score(self, _: Sequence[str]) -> str:
        state = self._state()
        if not state.is_terminal():
            raise GtpRefusal("cannot score")
        black = state.returns()[0]
        return "0" if black == 0 else f"{'B' if black > 0 else 'W'}+{abs(black):g}"


def serve(config: Config, seating: Seating, player: str, source: TextIO, sink: TextIO) -> None:
    """Answers commands until `quit` or the end of `source`.

    Raises `ConfigError` for a game that such boards do not play, and what `seated` raises. The board reads of a player who cannot answer
    in one line.
    """
    for stream in (source, sink):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")  # boards send any bytes, in any locale
    with seated(config, seating, [player]) as (game, (seat,)):
        answer_lines(GtpBoard(game, seat, coordinates(game)), source, sink)


def answer_lines(board: GtpBoard, source: TextIO, sink: TextIO) -> None:
    """Answers each line, and goes on with an analysis until the next one."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()  # an empty one: the end
    threading.Thread(target=_read, args=(source, lines), daemon=True).start()
    over, line = False, lines.get()
    while line and not over:
        try:
            answer, over = board.answer(line)
        except AzqError as error:
            answer = f"? {' '.join(str(error).split())}\n\n"
        sink.write(answer if isinstance(answer, str) else f"{answer.line}\n")
        sink.flush()
        if over:
            return
        line = lines.get() if isinstance(answer, str) else _repeat(answer, lines, sink)


def _repeat(analysis: GtpAnalysis, lines: queue.SimpleQueue[str], sink: TextIO) -> str:
    """Says an analysis again and again until a line comes, which it gives back."""
    again = analysis.line.partition("\n")[2]
    while True:
        try:
            line = lines.get(timeout=analysis.every_s)
        except queue.Empty:
            sink.write(f"{again}\n")
        else:
            sink.write("\n")
            return line
        finally:
            sink.flush()


def _read(source: TextIO, lines: queue.SimpleQueue[str]) -> None:
    for line in source:
        lines.put(line)
    lines.put("")


def _only(words: Sequence[str]) -> str:
    if len(words) != 1:
        raise GtpRefusal("syntax error")
    return words[0]
