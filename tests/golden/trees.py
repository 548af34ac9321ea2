"""Whole search trees as JSON, float32 to the last bit. `python -m golden.trees` in `tests/` writes them anew.

A change here means that searches differ from those of earlier versions: say so in the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator

from azq import games
from azq._core import Search
from azq.search.search import leaves_at_once

FOLDER = Path(__file__).parent / "trees"

#: name of the tree: game, actions before the search, settings
CASES: dict[str, tuple[str, list[int], Settings]] = {
    "puct_connect_four": ("connect_four", [3, 3], Settings("puct", 40)),
    "puct_tic_tac_toe": ("tic_tac_toe", [0, 4, 8], Settings("puct", 40, leaves_per_step=3)),
    "gumbel_connect_four": ("connect_four", [3, 3], Settings("gumbel", 40)),
    "batch_root_connect_four": ("connect_four", [3, 3], Settings("gumbel", 40, batch_root=True, reuse_subtree=False)),
    "gumbel_tic_tac_toe": ("tic_tac_toe", [0, 4, 8], Settings("gumbel", 40, max_considered_actions=4)),
}


#: with chance or hidden hands: game, decisions before the search, settings
SAMPLED: dict[str, tuple[str, int, Settings]] = {
    "gumbel_backgammon": ("backgammon", 2, Settings("gumbel", 24, max_considered_actions=4)),
    "gumbel_blob": ("blob", 5, Settings("gumbel", 24)),
    "puct_beasty_bar": ("beasty_bar", 3, Settings("puct", 24)),
    "worlds_beasty_bar": ("beasty_bar", 3, Settings("gumbel", 24, determinizations=3)),
}


def build(name: str) -> dict[str, NDArray[Any]]:
    """The tree of one case: of its position, or without chance after its search, one reply and the search after that."""
    return _build_sampled(name) if name in SAMPLED else _build_plain(name)


def _build_sampled(name: str) -> dict[str, NDArray[Any]]:
    game_name, decisions, settings = SAMPLED[name]
    game = games.load(game_name)
    search = Search(game, settings.core(), num_slots=1, seed=2026, autoplay=False)
    evaluate = HashEvaluator(game.num_distinct_actions(), seed=11, value_size=game.value_size())
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate)
    search.start_at(0, 123, _opening(game, decisions))
    driver.run()
    return search.tree(0)


def _opening(game: games.Game, decisions: int) -> games.State:
    """A fixed game's position with a choice, after so many decisions or a few more."""
    state = game.new_initial_state()
    while decisions > 0 or state.is_chance_node() or len(state.legal_actions()) < 2:
        ply = len(state.history())
        choices = [outcome for outcome, _ in state.chance_outcomes()] if state.is_chance_node() else state.legal_actions()
        decisions -= not state.is_chance_node()
        state.apply_action(choices[(7 * ply + 3) % len(choices)])
    return state


def script(name: str) -> dict[str, Any]:
    """One case as parity.mjs reads it."""
    sampled = name in SAMPLED
    game, actions, settings = SAMPLED[name] if sampled else CASES[name]
    if isinstance(actions, int):
        actions = _opening(games.load(game), actions).history()
    return {"name": name, "kind": "tree", "game": game, "params": {}, "settings": settings.plain(), "actions": actions, "sampled": sampled}


def _build_plain(name: str) -> dict[str, NDArray[Any]]:
    game_name, actions, settings = CASES[name]
    game = games.load(game_name)
    search = Search(game, settings.core(), num_slots=1, seed=2026, autoplay=False)
    evaluate = HashEvaluator(game.num_distinct_actions(), seed=11)
    leaves = leaves_at_once(settings.core(), game)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=leaves, evaluate=evaluate)
    search.start(0, 123, np.array(actions, np.uint16))
    driver.run()
    search.play(0, search.result(0).action)
    driver.run()
    return search.tree(0)


def to_plain(array: NDArray[Any]) -> Any:
    """Nested lists; each float32 as the shortest decimal that reads back as the same bits, NaN as null."""
    if array.ndim > 1:
        return [to_plain(row) for row in array]
    if array.dtype != np.float32:
        return array.tolist()
    return [None if np.isnan(x) else float(str(x)) for x in array]


def from_plain(values: Any, like: NDArray[Any]) -> NDArray[Any]:
    """The array that `to_plain` wrote, in the type of `like`."""
    if like.dtype != np.float32:
        return np.array(values, like.dtype)
    return np.array(values, object).astype(np.float64).astype(np.float32)  # None becomes NaN


def lines(tree: dict[str, NDArray[Any]]) -> Iterator[str]:
    """JSON with one line a field, so that a difference can be read."""
    yield "{"
    for number, (key, array) in enumerate(tree.items()):
        yield f'"{key}": {json.dumps(to_plain(array))}' + ("," if number + 1 < len(tree) else "")
    yield "}"


def path(name: str) -> Path:
    """Where one case is kept."""
    return FOLDER / f"{name}.json"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case in (*CASES, *SAMPLED):
        path(case).write_text("\n".join(lines(build(case))) + "\n", "utf-8")
