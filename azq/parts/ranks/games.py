"""Games of a rank other than 0: its share, read from the run's folder or its store."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from azq import logs
from azq.bus.base import Bus
from azq.config import LearnerConfig, RunSections
from azq.errors import StoreError, WireError
from azq.files import make_folders, publish_file
from azq.games import Game
from azq.learner.data.batches import Draws, Feed, Order, feed_of
from azq.learner.opening import open_trainer
from azq.learner.replication.remote_index import SEGMENTS, RemoteSegment, remote_log
from azq.learner.rounds import TrainingRound
from azq.learner.step.trainer import Trainer
from azq.ledger.holder import LOCK_NAME
from azq.parts.ranks.follower import Follower
from azq.parts.ranks.rules import RankPlace, is_mine
from azq.process.breaker import CircuitBreaker
from azq.replay.index import path_of, read_index, segment_path
from azq.replay.readers import SegmentFollower
from azq.replay.samples import Rules, count_samples, judge
from azq.replay.window import Purges, Window
from azq.store.extents import Extent, list_extents, read_spans
from azq.store.objects import ObjectPrefix
from azq.wire import keys
from azq.wire.codec import decode, uid_of
from azq.wire.machines import PurgeOrders
from azq.wire.messages import SampleEvent

ORDERS_EVERY_S = 2.0
LISTING_EVERY_S = 2.0  # of the store
GAMES_AT_ONCE = 64  # read between two words of rank 0, so that it does not wait long

log = logs.get(__name__)


class StoreFollower:
    """Copies new segments of a prefix to a folder and reads them as a `SegmentFollower`; deletes read ones.

    A store that is away is waited for. `read` raises `StoreError` where games that were read are not in the log any more, since another
    learner went on from before them: a rank that starts again reads it right.
    """

    def __init__(
        self,
        prefix: ObjectPrefix,
        directory: Path,
        samples: int,
        count: Callable[[bytes], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        make_folders(directory)
        self._prefix = prefix
        self._directory = directory
        self._samples = samples
        self._clock = clock
        self._follower = SegmentFollower(directory, samples, count)
        self._store = CircuitBreaker(StoreError, ("store_away", "store_back"), clock=clock)
        self._first = 0  # segment that is read; 0: none yet
        self._here: dict[int, list[Extent]] = {}  # extents that are in the folder, of segments that are not closed there
        self._due_s = 0.0
        self._moved = ""

    def read(self, most: int) -> Iterator[bytes]:
        """Up to `most` frames that were not read before, oldest first."""
        if self._clock() >= self._due_s:
            self._store.attempt(self._pull)
            self._due_s = self._clock() + LISTING_EVERY_S
        if self._moved:
            raise StoreError(self._moved)
        yield from self._follower.read(most)
        for number in range(max(1, self._first), self._follower.number):
            segment_path(self._directory, number).unlink(missing_ok=True)
            self._first = number + 1

    def _pull(self) -> None:
        try:
            remote = remote_log(list_extents(self._prefix).files)
            if not self._first and remote:
                self._first = self._start(remote)
            for segment in remote[self._first - 1 :] if self._first else ():
                self._bring(segment)
        except OSError as error:
            raise StoreError(f"{self._directory} does not take games from the store: {error.strerror}; free space there") from error

    def _start(self, remote: list[RemoteSegment]) -> int:
        """The segment where the newest samples begin; indexes tell."""
        closed, missing = [segment for segment in remote if segment.index], self._samples
        while closed and missing > 0:
            segment = closed.pop()
            publish_file(path_of(self._directory, segment.number), read_spans(self._prefix, segment.index))
            index = read_index(self._directory, segment.number)
            missing -= index.samples if index else 0
        return min(len(closed) + 1, len(remote))

    def _bring(self, segment: RemoteSegment) -> None:
        path = segment_path(self._directory, segment.number)
        if segment.number not in self._here and path.exists():  # closed
            return
        here = self._here.setdefault(segment.number, [])
        whole = [span.extent for span in segment.spans if span.end == span.extent.end]
        same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(here, whole, strict=False))))
        if rest := segment.spans[same:]:
            self._replace(path, rest[0].extent.start, read_spans(self._prefix, rest))
        self._here[segment.number] = whole
        if segment.index:
            del self._here[segment.number]
            publish_file(path_of(self._directory, segment.number), read_spans(self._prefix, segment.index))

    def _replace(self, path: Path, start: int, data: bytes) -> None:
        """The bytes of a file from `start` on."""
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.seek(start)
            before = file.read()
            if before != data[: len(before)]:
                self._moved = (
                    f"{SEGMENTS}/{path.name} in the store goes on otherwise than it did: another learner took over; start this rank again"
                )
                return
            file.seek(start)
            file.write(data)
            file.truncate()


@dataclass(kw_only=True, eq=False)
class GameWork:
    """The rank's window of games: a `RankWork`."""

    run: str
    place: RankPlace
    config: LearnerConfig
    game: Rules
    bus: Bus
    segments: SegmentFollower | StoreFollower
    window: Window
    purges: Purges  # whose games stay out of it, as rank 0 writes it down
    trainer: Trainer
    feed: Feed
    follows_orders: bool = False  # to purge: in the control plane, for rank 0 writes none where it sees

    def __post_init__(self) -> None:
        self._broker = CircuitBreaker()
        self._ordered_s = 0.0

    def ready(self) -> bool:
        """True with enough samples for varied batches."""
        return len(self.window) >= max(1, self.config.min_window // self.place.ranks // 2)

    def take_in(self) -> int:
        """Adds this rank's part of the games that came to its window; returns how many were looked at."""
        if self.follows_orders:
            self._follow_orders()
        for worker in self.purges.reload():
            self.window.drop(worker)
        seen = 0
        mine: list[SampleEvent] = []
        for frame in self.segments.read(GAMES_AT_ONCE):
            seen += 1
            if not is_mine(uid_of(frame), self.place.rank, self.place.ranks):
                continue
            try:
                if not self.purges.drops(event := decode(frame, SampleEvent)):
                    mine.append(event)
            except WireError as error:
                log.warning("sample_refused", reason=str(error))
        judged = judge(self.game, mine, self.window.columns)
        for samples in judged.samples:
            self.window.add(samples)
        for reason in judged.refused.values():
            log.warning("sample_refused", reason=reason)
        return seen

    def restore(self, tensors: Mapping[str, Tensor], step: int) -> None:
        self.trainer.restore(tensors, step)

    def share(self, planned: TrainingRound, rows: tuple[int, ...], place: int) -> Order:
        mine = max(1, min(len(self.window), planned.size // max(1, self.place.ranks - 1)))
        return self.feed.order(planned.step, rows[place], mine)

    def _follow_orders(self) -> None:
        """Follows purge orders every few seconds, as rank 0 does."""
        if time.monotonic() < self._ordered_s + ORDERS_EVERY_S:
            return
        self._ordered_s = time.monotonic()
        frame = self._broker.attempt(lambda: self.bus.get(keys.purges(self.run)))
        for worker in self.purges.order(decode(frame, PurgeOrders).until_ms) if frame else ():
            self.window.drop(worker)


def open_follower(
    run: str, directory: Path, sections: RunSections, game: Game, *, bus: Bus, place: RankPlace, prefix: ObjectPrefix | None = None
) -> Follower:
    """A rank other than 0, which sees the run's folder `directory`; raises what `LearnerSetup` raises of settings and segments.

    Where that is not the learner's, it reads games from the run's `prefix`.
    """
    config = sections.learner
    trainer, columns = open_trainer(sections, game, place.local)
    window = Window(game, -(-config.max_window // (place.ranks - 1)), columns)
    draws = Draws(sections.run.seed, trainer.num_symmetries, place.rank)
    pulls = prefix is not None and not (directory / LOCK_NAME).exists()
    folder = directory / (f"rank-{place.rank}" if pulls else "segments")

    def count(frame: bytes) -> int:
        return count_samples(decode(frame, SampleEvent))

    segments: StoreFollower | SegmentFollower = SegmentFollower(folder, config.max_window, count)
    if pulls and prefix:
        segments = StoreFollower(prefix, folder, config.max_window, count)
    work = GameWork(
        run=run,
        place=place,
        config=config,
        game=game,
        bus=bus,
        segments=segments,
        window=window,
        purges=Purges(folder),
        follows_orders=pulls,
        trainer=trainer,
        feed=feed_of(window, draws, config.prefetch_batches, trainer.device),
    )
    return Follower(run_name=run, place=place, config=config, bus=bus, work=work)
