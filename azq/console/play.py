"""`azq play`: a person against a run's newest weights, in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from azq import games
from azq.arena.position import position
from azq.config import Config
from azq.console.move import Player, open_player
from azq.errors import IllegalActionError

HELP = "enter an action number; u takes your last move back, q quits"


def play(config: Config, run: str | None, num_simulations: int, human_first: bool) -> None:
    """Plays games until the person quits."""
    player = open_player(config, game=None, run=run, weights="latest", num_simulations=num_simulations)
    sys.stdout.write(f"{player.game.name}, weights version {player.weight_version}; {HELP}\n")
    match(player, 0 if human_first else 1, input, sys.stdout.write)


def match(player: Player, human: int, ask: Callable[[str], str], tell: Callable[[str], object]) -> None:
    """One game; `human` is the person's seat. Ends at the end of the game or at `q`."""
    history: list[int] = []
    while not (state := position(player.game, history)).is_terminal():
        tell(f"\n{state}\n")
        if state.current_player() != human:
            answer = player.move(history)
            tell(f"agent plays {state.action_to_string(answer['action'])} (value {answer['value']:+.2f})\n")
            history.append(answer["action"])
        elif not _ask_action(state, history, ask, tell):
            return
    tell(f"\n{state}\n{_verdict(state.returns()[human])}\n")


def _ask_action(state: games.State, history: list[int], ask: Callable[[str], str], tell: Callable[[str], object]) -> bool:
    """Changes the history by what the person says; False when there is nothing more to say."""
    while True:
        try:
            text = ask(f"your move {state.legal_actions()}: ").strip().lower()
        except EOFError:
            return False
        if text in ("q", "quit"):
            return False
        if text == "u" and len(history) >= 2:
            del history[-2:]
            return True
        try:
            action = int(text)
            state.clone().apply_action(action)
        except (ValueError, IllegalActionError) as error:
            tell(f"{error if isinstance(error, IllegalActionError) else HELP}\n")
            continue
        history.append(action)
        return True


def _verdict(result: float) -> str:
    return "you win" if result > 0 else "the agent wins" if result < 0 else "a draw"
