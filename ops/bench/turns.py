"""One short run in this process, self-play and training in turns, by its own CPU-seconds: no queue, no wall clock, nothing to wait for.

So two runs differ by their settings and their seed alone, whatever else the machine does. `cheap_arms.py` compares many of them. What is
played, searched, sampled and trained by is the system's own code; what is left out is what a fleet adds: broker, ledger, log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from azq import games
from azq.actor.forks import Forks
from azq.actor.groups import GameGroup
from azq.arena.grade import line_of
from azq.arena.player import MAX_SLOTS, Ground
from azq.arena.players import NetworkPlayer
from azq.arena.positions import Position
from azq.arena.regret import judged
from azq.config import InferenceConfig, RunSections, merge, parse_overrides, parse_run
from azq.games import Game
from azq.inference.ask.local import LocalEvaluator, fixed_source
from azq.inference.device.model import Model
from azq.inference.device.placement import place
from azq.learner.data.batches import Draws, Feed
from azq.learner.step.growth import RunNetworks
from azq.learner.step.loss import Symmetries
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, WeightsMeta
from azq.nets.device import prepare_process
from azq.presets import preset
from azq.replay.samples import Columns, count_samples, judge
from azq.replay.window import Window, steps_allowed, window_size
from azq.search.search import exploring, make_cache, make_search, search_at
from azq.wire.arrays import pack_record
from azq.wire.messages import GameRecord, SampleEvent

HOST = InferenceConfig(device="cpu", threads=1)
CPU = torch.device("cpu")
FIGURES = ("search", "policy", "value_error", "errors")  # of a network on graded positions; the first one decides


def arm(game: str, settings: Sequence[str]) -> RunSections:
    """The game's preset with these settings; raises `ConfigError` for one that is none."""
    return parse_run(merge(preset(game), parse_overrides(settings)), "the arm")


def graded(game: Game, positions: list[Position]) -> list[Position]:
    """These positions; raises `ConfigError` naming the line that is none of the game's."""
    for position in positions:
        line_of(game, position)
    return positions


def losses(game: Game, player: NetworkPlayer, positions: Sequence[Position]) -> dict[str, NDArray[np.float64]]:
    """What a network loses on each of N positions, by `FIGURES`; (N,) each."""
    marks, regret = judged(game, player, positions)
    assert regret is not None, "every graded move is one action"
    errors = np.array([mark.loses_class for mark in marks], np.float64)
    return dict(zip(FIGURES, (regret.search, regret.policy, regret.value_error, errors), strict=True))


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run has behind it."""

    cpu_s: float
    games: int
    samples: int
    steps: int
    evaluations: int


class TurnsRun:
    """Games in flight, a window and a trainer; `go` takes them on by CPU-seconds, what others do between two calls does not count."""

    def __init__(self, sections: RunSections) -> None:
        prepare_process(1)
        self.sections = sections
        self.game = games.load(sections.run.game, **sections.run.params)
        networks = RunNetworks(sections, NetSpec.of(self.game))
        symmetries = Symmetries(self.game, CPU) if sections.learner.symmetries else None
        self.trainer = Trainer(networks.make(sections.network), networks.spec, sections.learner, CPU, symmetries)
        columns = Columns.of(self.game, sections.network.auxiliary, sections.learner)
        self._window = Window(self.game, sections.learner.max_window, columns)
        self._feed = Feed(self._window, Draws(sections.run.seed, self.trainer.num_symmetries))
        self._cache = make_cache(self.game, sections.selfplay.cache_entries)
        self._model = Model(networks.spec, sections.network, HOST, place(HOST))
        self._cpu_s = self._published_s = 0.0
        self._games = self._consumed = self._evaluations = self._next_uid = self._version = 0
        self.kept: list[SampleEvent] = []  # its games
        self._taught = False
        self._forks = Forks(sections.selfplay.fork_share, sections.run.seed)
        self._group = self._grouped([])
        self._publish()

    @property
    def counts(self) -> Counts:
        return Counts(round(self._cpu_s, 2), self._games, self._window.total, self.trainer.step, self._evaluations)

    def teach(self, events: Sequence[SampleEvent]) -> None:
        """Fills the window with games of another run; from now on none are played, and steps are taken as long as there is time."""
        self._taught = True
        self._into_window(events)

    def go(self, until_cpu_s: float) -> Counts:
        """Plays and trains in turns up to so many CPU-seconds of its life; raises `WeightsError` where training diverges."""
        while self._cpu_s < until_cpu_s:
            began_s = time.process_time()
            if not self._taught:
                self._play()
            self._train()
            self._cpu_s += time.process_time() - began_s
            if self._cpu_s - self._published_s >= self.sections.learner.publish_every_s:
                began_s = time.process_time()
                self.trainer.mean_losses()
                self._publish()
                self._cpu_s += time.process_time() - began_s
        return self.counts

    def losses(self, positions: Sequence[Position], num_simulations: int) -> dict[str, NDArray[np.float64]]:
        """What the averaged weights lose, at no cost to the run."""
        with self.player(num_simulations) as player:
            return losses(self.game, player, positions)

    @contextmanager
    def player(self, num_simulations: int, *, seed: int = 0, slots: int = MAX_SLOTS) -> Iterator[NetworkPlayer]:
        """The averaged weights of now."""
        model = Model(self._model.spec, self.sections.network, HOST, place(HOST))
        model.take(self.trainer.averaged.state_dict(), WeightsMeta(self.game.name, version=1))
        evaluator = LocalEvaluator(fixed_source(model))
        try:
            yield NetworkPlayer((1,), Ground(self.game, evaluator, self.sections.search, num_simulations, latest=1, seed=seed, slots=slots))
        finally:
            evaluator.close()

    def _play(self) -> None:
        """One evaluation of every game in flight; games that ended go into the window."""
        if self._group.finished_any():
            self._take([pack_record(record) for record in self._group.finished()])
            self._group.clear_finished()
            self._fill()
        if self._search_now != search_at(self.sections.search, 0.0, self._window.total):
            self._group = self._grouped([pack_record(self._group.search.record(slot)) for slot in self._busy()])
        if not self._group.advance():
            return
        packed, _ = self._group.asked()
        logits, values = self._model.evaluate(packed)
        self._evaluations += len(packed)
        self._group.search.apply(logits, values, self._version)
        self._group.leaves = 0

    def _grouped(self, records: Sequence[GameRecord]) -> GameGroup:
        """Games that go on, and new ones in the other slots, with the budget of the stage that has begun."""
        settings = self.sections.selfplay
        self._search_now = search_at(self.sections.search, 0.0, self._window.total)
        config = exploring(self._search_now, random_opening_plies=settings.random_opening_plies)
        search = make_search(
            self.game,
            config,
            num_slots=settings.games_in_flight,
            seed=self.sections.run.seed,
            cache=self._cache,
            merge_symmetries=settings.merge_symmetries,
        )
        group = GameGroup(search, self.game, self._search_now.leaves_per_step)
        for slot, record in enumerate(records):
            group.start(slot, record)
        self._group = group
        self._fill()
        return group

    def _busy(self) -> list[int]:
        empty = set(self._group.room())
        return [slot for slot in range(self._group.search.num_slots) if slot not in empty]

    def _fill(self) -> None:
        for slot in self._group.search.empty_slots():
            self._next_uid += 1
            self._group.start(slot, self._forks.begin(self.game, GameRecord(self._next_uid)))

    def _take(self, records: list[GameRecord]) -> None:
        for record in records:
            self._forks.keep(record)
        events = [SampleEvent(record, self._returns(record), "turns", 0) for record in records]
        self.kept += events
        self._into_window(events)

    def _into_window(self, events: Sequence[SampleEvent]) -> None:
        for samples in judge(self.game, events, self._window.columns).samples:
            self._window.add(samples)
        self._games += sum(count_samples(event) > 0 for event in events)

    def _returns(self, record: GameRecord) -> tuple[float, ...]:
        actions: NDArray[np.uint16] = np.frombuffer(record.actions, "<u2")
        return tuple(self.game.replay(actions)[3].tolist())

    def _train(self) -> None:
        learner = self.sections.learner
        for _ in range(1 if self._taught else steps_allowed(self._window.total, self._consumed, learner)):
            size = min(window_size(self._window.total, learner), len(self._window))
            with self._feed.take(self._feed.order(self.trainer.step, learner.batch_size, size)) as batch:
                self.trainer.train_on(batch, 0.0)
            self._consumed += learner.batch_size

    def _publish(self) -> None:
        self._version += 1
        self._published_s = self._cpu_s
        self._model.take(self.trainer.averaged.state_dict(), WeightsMeta(self.game.name, version=self._version))
