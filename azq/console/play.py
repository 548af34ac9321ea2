"""`azq play`: a person against a run's newest weights, in the terminal; the agent takes every other seat."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence

from azq import games
from azq.arena.match import share_of_first_place
from azq.arena.player import position
from azq.config import Config
from azq.console.move import Agent, open_player
from azq.errors import IllegalActionError

HELP = "enter an action number; u takes your last move back, q quits"

Ask = Callable[[str], str]
Tell = Callable[[str], object]


def play(config: Config, run: str | None, num_simulations: int, human_first: bool) -> None:
    """Plays games until the person quits."""
    player = open_player(config, game=None, run=run, weights="latest", num_simulations=num_simulations)
    sys.stdout.write(f"{player.game.name}, weights version {player.weight_version}; {HELP}\n")
    match(player, 0 if human_first else 1, input, sys.stdout.write)


def match(player: Agent, human: int, ask: Ask, tell: Tell, luck: random.Random | None = None) -> None:
    """One game; `human` is the person's seat, `luck` throws dice and deals. Ends at the end of the game or at `q`."""
    luck = luck or random.Random()
    history: list[int] = []
    while not (state := position(player.game, history)).is_terminal():
        if state.is_chance_node():
            history.append(_chance(state, luck))
            continue
        tell(f"\n{_view(player.game, state, human)}\n")
        if state.current_player() != human:
            answer = player.move(history)
            tell(f"{_agent(player.game, state)} plays {state.action_to_string(answer['action'])} (value {answer['value']:+.2f})\n")
            history.append(answer["action"])
        elif not _ask_action(player.game, state, history, ask, tell):
            return
    tell(f"\n{state}\n{_verdict(state.returns(), human)}\n")


def _chance(state: games.State, luck: random.Random) -> int:
    outcomes = state.chance_outcomes()
    return luck.choices([outcome for outcome, _ in outcomes], [probability for _, probability in outcomes])[0]


def _view(game: games.Game, state: games.State, human: int) -> str:
    """What the person may see."""
    return state.information_state_string(human) if game.is_hidden() else str(state)


def _agent(game: games.Game, state: games.State) -> str:
    return "agent" if game.num_players() == 2 else f"agent {state.current_player()}"


def _ask_action(game: games.Game, state: games.State, history: list[int], ask: Ask, tell: Tell) -> bool:
    """Changes the history by what the person says; False when there is nothing more to say."""
    human = state.current_player()
    while True:
        try:
            text = ask(f"your move {state.legal_actions()}: ").strip().lower()
        except EOFError:
            return False
        if text in ("q", "quit"):
            return False
        if text == "u" and (before := _last_move(game, history, human)) is not None:
            del history[before:]
            return True
        try:
            action = int(text)
            state.clone().apply_action(action)
        except (ValueError, IllegalActionError) as error:
            tell(f"{error if isinstance(error, IllegalActionError) else HELP}\n")
            continue
        history.append(action)
        return True


def _last_move(game: games.Game, history: Sequence[int], human: int) -> int | None:
    """The ply of the person's last action; None before the first."""
    state = game.new_initial_state()
    last = None
    for ply, action in enumerate(history):
        last = ply if state.current_player() == human else last
        state.apply_action(action)
    return last


def _verdict(returns: Sequence[float], human: int) -> str:
    share = share_of_first_place(returns, human)
    return "you win" if share == 1.0 else "the agent wins" if share == 0.0 else "a draw"
