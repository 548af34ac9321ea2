"""Groups of games, each searched while the other groups' leaves are evaluated, and the arenas that they are searched in.

Arenas and the evaluation cache outlive a slice: allocating hundreds of megabytes each minute would cost.

Letters: L leaves, S slots, P bytes of a packed observation, A actions, V values per leaf.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.actor.slice import group_sizes, groups_that_fit
from azq.config import RunSections
from azq.errors import WireError
from azq.games import Game
from azq.search.evaluator import Evaluation, Evaluator
from azq.search.search import Record, Search, exploring, leaves_at_once, make_cache, make_search
from azq.wire.arrays import legal_bytes, outgrown, pack_record, unpack_record, unsearched_record
from azq.wire.codec import most_leaves
from azq.wire.messages import LATEST, GameRecord

FIRST_GAMES = 64
FEWEST_GAMES = 16
LATENCY_SHARE = 0.1  # of one answer in the running mean


class Width:
    """As many games as are evaluated within a time: where evaluations are slow, a few games come to their end and many hardly move.

    With 0 seconds as many as there are slots, whatever evaluations take.
    """

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._a_game_s = within_s / FIRST_GAMES  # from asking to the answer, by the games of the group

    def games(self, slots: int) -> int:
        """Of a group that has room for so many."""
        return min(slots, max(FEWEST_GAMES, round(self._within_s / self._a_game_s))) if self._within_s else slots

    def answered(self, games: int, after_s: float) -> None:
        """Notes a request of a group of so many games; a first one, all of whose games are at the same position, says little."""
        self._a_game_s += LATENCY_SHARE * (max(after_s, 1e-6) / max(games, 1) - self._a_game_s)


FORK_SOURCES = 5_000  # games: what the network plays by now, not what its first versions did


class Forks:
    """The newest games of a process, and the share of new games that begin with the first plies of one, cut anywhere, and a random move.

    Good play alone leads to few boards, random plies to boards that good play never meets; what follows a wrong move in good play is
    between the two. Go-Exploit: Trudeau and Bowling, arXiv:2302.12359, section 4; forks: Wu, arXiv:1902.10565, appendix D.
    """

    def __init__(self, share: float, seed: int | None = None) -> None:
        self._share = share
        self._random = random.Random(seed)
        self._games: deque[bytes] = deque(maxlen=FORK_SOURCES)

    def keep(self, record: GameRecord) -> None:
        """A game that ended."""
        if self._share:
            self._games.append(record.actions)

    def begin(self, game: Game, record: GameRecord) -> GameRecord:
        """The game to play: as it is given where it has plies already or is none of the share, else with the plies to begin with."""
        if record.actions or not self._games or self._random.random() >= self._share:
            return record
        source = np.frombuffer(self._random.choice(self._games), "<u2").tolist()
        actions = source[: self._random.randrange(len(source))]
        state = game.new_initial_state()
        for action in actions:
            state.apply_action(action)
        if not state.is_chance_node():
            actions.append(self._random.choice(state.legal_actions()))
        return unsearched_record(record.uid, actions, game.num_distinct_actions(), game.value_size())


MANY_ACTIONS = 64  # with fewer, picking the legal ones' logits costs as much CPU as sending all


class GameGroup:
    """A search with its buffers and the one request that it has in flight."""

    def __init__(self, search: Search, game: _core.Game, leaves: int) -> None:
        capacity = search.num_slots * leaves  # `leaves`: of a game at once
        self.search = search
        self._num_actions = game.num_distinct_actions()
        self._value_size = game.value_size()
        # Where there are many actions the core says which are legal, behind each leaf, so that answers may leave the others out.
        self._observation = game.packed_size()
        says_legal = isinstance(search, _core.Search) and self._num_actions >= MANY_ACTIONS
        self._packed = np.zeros((capacity, self._observation + says_legal * legal_bytes(self._num_actions)), np.uint8)
        self._slots = np.zeros(capacity, np.int32)
        self.leaves = 0  # of the last collect, which wait for their evaluations
        self._outgrown: dict[int, tuple[int, str]] = {}  # slots whose game became too long to be sent: number and reason
        self._unreported: list[tuple[int, str]] = []  # of them
        self.handle: int | None = None
        self.submitted_s = 0.0
        self.search_s = 0.0  # CPU of this thread in the core so far

    def room(self) -> list[int]:
        """Slots without a game, or whose game ended."""
        return self.search.empty_slots() + self.search.finished_slots()

    @property
    def games(self) -> int:
        """Open games."""
        return self.search.num_slots - len(self.room())

    def start(self, slot: int, record: GameRecord) -> None:
        """Puts a game into a free slot after replaying it; raises `WireError` or `IllegalActionError` where that fails."""
        arrays = unpack_record(record, self._num_actions, self._value_size)
        try:
            self.search.start(slot, record.uid, **arrays)
        except (ValueError, TypeError, IndexError) as error:
            raise WireError(f"game {record.uid} does not replay: {error}") from None

    def advance(self) -> int:
        """Searches on to the next leaves and returns their number; 0 where nothing can move."""
        began_s = time.thread_time()
        self.leaves = self.search.collect(self._packed, self._slots)
        self.search_s += time.thread_time() - began_s
        return self.leaves

    def submit(self, evaluator: Evaluator, now_s: float, weight_version: int = LATEST) -> None:
        """Asks for the evaluations of the last leaves (L, P); asking again for the same leaves is harmless."""
        packed, legal = self.request()
        self.handle = evaluator.submit(packed, legal=legal if legal.size else None, weight_version=weight_version)
        self.submitted_s = now_s

    def request(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The last leaves (L, P), and bits (L, ceil(A / 8)) of what is legal there, or (L, 0) in games of few actions."""
        rows = self._packed[: self.leaves]
        return rows[:, : self._observation], rows[:, self._observation :]

    def check(self, evaluation: Evaluation) -> None:
        """Raises `WireError` where the evaluations are not (L, A) and (L, V)."""
        wanted = (self.leaves, self._num_actions), (self.leaves, self._value_size)
        shapes = evaluation.logits.shape, evaluation.values.shape
        if shapes != wanted:
            raise WireError(f"evaluations have shapes {shapes}, the {self.leaves} leaves need {wanted}")

    def apply(self, evaluation: Evaluation) -> int:
        """Gives the trees their evaluations, whose shapes were checked, and returns how many."""
        count, began_s = self.leaves, time.thread_time()
        self.search.apply(evaluation.logits, evaluation.values, evaluation.weight_version)
        self.search_s += time.thread_time() - began_s
        self.handle, self.leaves = None, 0
        return count

    def finished(self) -> list[Record]:
        """Records of the games that ended."""
        return [self.search.record(slot) for slot in self.search.finished_slots() if slot not in self._outgrown]

    def clear_finished(self) -> None:
        for slot in self.search.finished_slots():
            self.search.clear(slot)

    def take_broken(self) -> list[tuple[int, str]]:
        """Games that cannot go on, as (uid, reason): too long to be sent, or (Python games) their own rules raised."""
        unreported, self._unreported = self._unreported, []
        broken = self.search.broken_slots()
        for slot in broken:
            self.search.clear(slot)
        return unreported + [reason for slot, reason in broken.items() if slot not in self._outgrown]

    def changed(self) -> Iterator[GameRecord]:
        """Open games that grew since this was last asked; one that is too long to be sent is left out and listed by `take_broken`."""
        for slot in self.search.changed_slots():
            if slot in self._outgrown:
                continue
            record = pack_record(self.search.record(slot))
            if reason := outgrown(record):
                self._outgrown[slot] = record.uid, reason
                self._unreported.append(self._outgrown[slot])
            else:
                yield record

    def clear_outgrown(self) -> None:
        """Frees the slots of games that are too long to be sent, once no leaf is out."""
        if not self.leaves:
            for slot in self._outgrown:
                self.search.clear(slot)
            self._outgrown.clear()

    def drop(self) -> None:
        """Empties all slots, whatever they hold, and leaves the search ready for other games."""
        if self.leaves:  # the core wants its answer before it forgets the question
            zeros = Evaluation(
                np.zeros((self.leaves, self._num_actions), np.float16), np.zeros((self.leaves, self._value_size), np.float16), 0
            )
            self.apply(zeros)
        self._outgrown, self._unreported = {}, []
        empty = set(self.search.empty_slots())
        for slot in range(self.search.num_slots):
            if slot not in empty:
                self.search.clear(slot)
        self.search.changed_slots()
        self.handle = None


class Arenas:
    """Keeps the searches of one self-play setting; another setting replaces them."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._searches: Sequence[Search] = ()
        self._cache: _core.EvaluationCache | None = None
        self._run: Hashable = ""
        self._width = Width(0.0)
        self._forks = Forks(0.0)

    def searches(self, game: _core.Game, sections: RunSections, games: int, run: Hashable = "") -> Sequence[Search]:
        """One empty search for each group of `games` games in flight; the memory is that of the last slice where it fits.

        More groups than configured where answers would else outgrow a message. Raises `ConfigError` where no group is small enough.

        All groups share one cache of evaluations and the games to fork from, which another run's slice finds empty: weight versions are a
        run's own. `run` tells runs apart, also those that bear one name in turn.
        """
        key = (game.name, repr(sorted(game.params.items())), sections.search, sections.selfplay, sections.run.seed, games)
        if (key, run) != (self._key, self._run):
            self._forks = Forks(sections.selfplay.fork_share)
        if key != self._key:
            self.forget()  # the old arenas go before the new ones come
            most = most_leaves(game.packed_size(), game.num_distinct_actions(), game.value_size())
            groups = groups_that_fit(games, sections.selfplay.groups, leaves_at_once(sections.search, game), most)
            self._cache = make_cache(game, sections.selfplay.cache_entries)
            config = exploring(sections.search, random_opening_plies=sections.selfplay.random_opening_plies)
            self._searches = [
                make_search(
                    game,
                    config,
                    num_slots=size,
                    seed=sections.run.seed,
                    num_threads=sections.selfplay.threads,
                    autoplay=True,
                    cache=self._cache,
                    merge_symmetries=sections.selfplay.merge_symmetries,
                )
                for size in group_sizes(games, groups)
            ]
            self._key = key
            self._width = Width(sections.selfplay.answer_within_ms / 1000)
        if run != self._run and self._cache is not None:
            self._cache.clear()
        self._run = run
        return self._searches

    @property
    def width(self) -> Width:
        """What slices of these searches learnt of how many games are evaluated in time."""
        return self._width

    @property
    def forks(self) -> Forks:
        """The newest games of these searches, for new ones to begin with."""
        return self._forks

    def forget(self) -> None:
        """Drops the searches; the next slice gets new ones."""
        self._searches, self._key, self._cache = (), None, None

    @property
    def memory_bytes(self) -> int:
        cache_bytes = 0 if self._cache is None else self._cache.memory_bytes
        return cache_bytes + sum(search.memory_bytes for search in self._searches)
