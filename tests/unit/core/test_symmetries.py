"""With merged symmetries a position is asked for in one form of all its images, and its evaluation is turned back."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from reference.config import Settings
from reference.driver import Driver
from reference.evaluator import HashEvaluator

from azq import games
from azq._core import EvaluationCache, Game, Search

SLOTS = 8
BOARDS = [
    ("connect_four", {}, 24),
    ("tic_tac_toe", {}, 24),
    ("othello", {"size": 6}, 12),
    ("gomoku", {"size": 9}, 4),
    ("hex", {"size": 5, "swap": True}, 12),
]


class Turner:
    """The symmetries of a game, in NumPy, as the learner applies them."""

    def __init__(self, game: Game) -> None:
        self._shape = game.observation_planes()
        self._bits = int(np.prod(self._shape))
        self._cells = [game.plane_permutation(g) for g in range(game.num_symmetries())]
        self.actions = [game.action_permutation(g) for g in range(game.num_symmetries())]

    def images(self, packed: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """An observation's image under each symmetry."""
        planes = np.unpackbits(packed, bitorder="little")[: self._bits].reshape(self._shape[0], -1)
        return [np.packbits(planes[:, cells].ravel(), bitorder="little") for cells in self._cells]


class SymmetricEvaluator:
    """A hash of the smallest image, turned back: exactly symmetric but where a position is its own image."""

    def __init__(self, game: Game) -> None:
        self._turner = Turner(game)
        self._hash = HashEvaluator(game.num_distinct_actions(), seed=9)
        self.leaves = 0
        self.forms: set[bytes] = set()

    def __call__(self, packed: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        self.leaves += len(packed)
        rows = [self._one(row) for row in packed]
        return np.stack([logits for logits, _ in rows]), np.stack([value for _, value in rows])

    def _one(self, packed: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        images = self._turner.images(packed)
        smallest = min(image.tobytes() for image in images)
        self.forms.add(smallest)
        logits, value = self._hash(np.frombuffer(smallest, np.uint8)[None])
        same = [logits[0][actions] for actions, image in zip(self._turner.actions, images, strict=True) if image.tobytes() == smallest]
        ordered = np.sort(same, axis=0)  # over the position's own symmetries; a mean depends on the order
        return ordered.mean(axis=0, dtype=np.float32).astype(np.float16), value[0]


def played(
    game: Game, settings: Settings, evaluate: object, *, entries: int = 0, merge: bool = False, threads: int = 1
) -> tuple[list[bytes], Search]:
    cache = EvaluationCache(game, entries) if entries else None
    search = Search(game, settings.core(), num_slots=SLOTS, seed=5, cache=cache, merge_symmetries=merge, num_threads=threads)
    driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=settings.leaves_per_step, evaluate=evaluate)  # type: ignore[arg-type]
    records = driver.play(range(1, SLOTS + 1))
    return [r.actions.tobytes() + r.policies.tobytes() + r.root_values.tobytes() for r in records], search


@pytest.mark.parametrize(("name", "params", "simulations"), BOARDS, ids=[board[0] for board in BOARDS])
def test_an_evaluator_that_is_symmetric_gives_the_same_games(name: str, params: dict[str, int], simulations: int) -> None:
    game, settings = games.load(name, **params), Settings("puct", simulations, temperature_plies=4)
    plain, merging = SymmetricEvaluator(game), SymmetricEvaluator(game)
    expected, without = played(game, settings, plain, entries=65536)
    merged, search = played(game, settings, merging, entries=65536, merge=True)
    assert merged == expected
    assert merging.leaves < plain.leaves
    assert merging.leaves < 1.02 * len(merging.forms)  # each form was asked for once, but for places in the cache that two share
    assert search.cache_hits + search.merged_leaves > without.cache_hits + without.merged_leaves


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
@pytest.mark.parametrize("leaves", [1, 3])
def test_any_evaluator_is_made_symmetric_whatever_the_cache_knows(algorithm: str, leaves: int) -> None:
    """Which image is asked for is a matter of the position, not of what others asked before."""
    game, settings = games.load("othello", size=6), Settings(algorithm, 12, leaves_per_step=leaves)
    expected, _ = played(game, settings, HashEvaluator(37), merge=True)
    assert expected != played(game, settings, HashEvaluator(37))[0]
    for entries, threads in ((64, 1), (65536, 1), (65536, 3)):
        assert played(game, settings, HashEvaluator(37), entries=entries, merge=True, threads=threads)[0] == expected


def test_a_game_without_symmetries_is_left_alone() -> None:
    game = games.load("backgammon")
    settings = Settings("gumbel", 4)
    records = []
    for merge in (False, True):
        search = Search(game, settings.core(), num_slots=2, seed=5, merge_symmetries=merge)
        evaluate = HashEvaluator(game.num_distinct_actions(), value_size=game.value_size())
        driver = Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=evaluate)
        for slot in range(2):
            search.start(slot, slot, np.zeros(0, np.uint16))
        for _ in range(300):
            driver.step()
        records.append([search.record(slot).actions.tolist() for slot in range(2)])
    assert records[0] == records[1]
