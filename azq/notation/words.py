"""Moves as people write them: the text of an action, with or without who plays it, a turn of several, or the action's number. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise, permutations

from azq.errors import IllegalActionError
from azq.games import State

MOST_WORDS = 4  # of a turn: backgammon's doubles
SHOWN = 24  # legal moves in a refusal or a prompt


def read_move(state: State, text: str) -> list[int]:
    """The actions that a person's words mean here, all his own; raises `IllegalActionError` naming what there is."""
    if (action := _meant(state, text)) is not None:
        return [action]
    words = single_moves(text)
    for order in permutations(words) if 1 < len(words) <= MOST_WORDS else ():
        if actions := _in_order(state, order):
            return actions
    raise IllegalActionError(f"{text!r} is no move here; there are: {', '.join(legal_texts(state))}")


def legal_texts(state: State) -> list[str]:
    """The legal moves in words, the first of them where there are many."""
    legal = state.legal_actions()
    shown = [_bare(state.action_to_string(action)) for action in legal[:SHOWN]]
    return [*shown, f"and {len(legal) - SHOWN} more"] if len(legal) > SHOWN else shown


def _meant(state: State, text: str) -> int | None:
    """The one legal action with this text, this number, or a text that begins so."""
    wanted, legal = _plain(text), state.legal_actions()
    named = {action: _forms(state.action_to_string(action)) for action in legal}
    exact = [action for action in legal if wanted in named[action]]
    if exact:
        return exact[0]  # of two alike, as with either die from a point off the board, the smaller die
    if wanted.isdecimal() and len(wanted) < 9 and int(wanted) in legal:
        return int(wanted)
    begun = [action for action in legal if wanted and any(form.startswith(wanted) for form in named[action])]
    return begun[0] if len(begun) == 1 else None


def _in_order(state: State, words: Iterable[str]) -> list[int]:
    """The actions of one player's turn in this order; none where one of them is not legal."""
    at, actions = state.clone(), []
    for word in words:
        action = _meant(at, word) if at.current_player() == state.current_player() else None
        if action is None:
            return []
        at.apply_action(action)
        actions.append(action)
    return actions


def single_moves(text: str) -> list[str]:
    """Single moves of a turn: `8/5(2)` is one twice, `13/8/3` goes on with the same checker."""
    words: list[str] = []
    for word in text.replace(",", " ").split():
        once, times = (match[1], int(match[2])) if (match := re.fullmatch(r"(\S+)\(([1-4])\)", word)) else (word, 1)
        places = once.split("/")
        steps = [f"{source}/{target}" for source, target in pairwise(places)] if len(places) > 2 else [once]
        words += steps * times
    return words


def _plain(text: str) -> str:
    return re.sub(r"[\s()*]", "", text.lower())


def _bare(text: str) -> str:
    """Without who plays it: `x 13/8`, `o(1,2)`."""
    return re.sub(r"^[xo](?: |(?=\())", "", text)


def _forms(text: str) -> set[str]:
    return {_plain(text), _plain(_bare(text))}
