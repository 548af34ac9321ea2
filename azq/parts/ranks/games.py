"""Games of a rank other than 0: its share, read from the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from azq import logs
from azq.bus.base import Bus
from azq.config import LearnerConfig, RunSections
from azq.errors import WireError
from azq.games import Game
from azq.learner.data.batches import Draws, Feed, Order, Prefetcher
from azq.learner.opening import open_trainer
from azq.learner.rounds import TrainingRound
from azq.learner.step.trainer import Trainer
from azq.parts.ranks.follower import Follower
from azq.parts.ranks.rules import RankPlace, is_mine
from azq.replay.readers import SegmentFollower
from azq.replay.samples import Rules, count_samples, judge
from azq.replay.window import Purges, Window
from azq.wire.codec import decode, uid_of
from azq.wire.messages import SampleEvent

GAMES_AT_ONCE = 64  # read between two words of rank 0, so that it does not wait long

log = logs.get(__name__)


@dataclass(kw_only=True, eq=False)
class GameWork:
    """The rank's window of games: a `RankWork`."""

    place: RankPlace
    config: LearnerConfig
    game: Rules
    segments: SegmentFollower
    window: Window
    purges: Purges  # whose games stay out of it, as rank 0 writes it down
    trainer: Trainer
    feed: Feed

    def ready(self) -> bool:
        """True with enough samples for varied batches."""
        return len(self.window) >= max(1, self.config.min_window // self.place.ranks // 2)

    def take_in(self) -> int:
        """Adds this rank's part of the games that came to its window; returns how many were looked at."""
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


def open_follower(run: str, directory: Path, sections: RunSections, game: Game, *, bus: Bus, place: RankPlace) -> Follower:
    """A rank other than 0, which sees the run's folder `directory`; raises what `LearnerSetup` raises of settings and segments."""
    config, folder = sections.learner, directory / "segments"
    trainer, columns = open_trainer(sections, game, place.local)
    window = Window(game, -(-config.max_window // (place.ranks - 1)), columns)
    draws = Draws(sections.run.seed, trainer.num_symmetries, place.rank)

    def count(frame: bytes) -> int:
        return count_samples(decode(frame, SampleEvent))

    work = GameWork(
        place=place,
        config=config,
        game=game,
        segments=SegmentFollower(folder, config.max_window, count),
        window=window,
        purges=Purges(folder),
        trainer=trainer,
        feed=Prefetcher(window, draws, trainer.device),
    )
    return Follower(run_name=run, place=place, config=config, bus=bus, work=work)
