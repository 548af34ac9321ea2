"""A finished, a paused and a running run on one control plane; their figures have three digits, of which the first tells whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from factories import heartbeat
from page_site import RUN, Site, now_ms

from azq.config import ArenaConfig, RunConfig, RunSections, dump_run
from azq.ledger.types import Effort, RunState
from azq.status.history import Recorder
from azq.status.observe import Beats, Observer
from azq.status.state import SILENT
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, GradeResult, Job, MatchResult, MatchSpec, RunRecord, SampleEvent, WeightEvent

FINISHED, PAUSED, RUNNING = "alpha", "beta", "gamma"
DIGIT = {FINISHED: 7, PAUSED: 9, RUNNING: 6}
GAME = {FINISHED: "backgammon", PAUSED: "connect_four", RUNNING: "tic_tac_toe"}
REASON = {FINISHED: "minutes=5 reached", PAUSED: "paused by hand"}
FLEET = 555.0  # what heartbeats say that all runs do together
GREW, GREW_S = 20, 20  # games of the running run between two looks


class SideBySide(Site):
    """The site of a daemon that looked at all three twice, `GREW_S` apart; its own run is not there."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = now_ms()
        super().__init__(folder, clock_ms=lambda: self.now_ms)
        self.ledger.set_run_state(RUN, RunState.FINISHED)
        self.ledger.delete_run(RUN)
        recorder, observer = Recorder(self.bus, 1.0), Observer(self.ledger, self.bus, Beats(self.bus))
        for run in GAME:
            self._plant_run(run)
        self._plant_fleet()
        for state in (RunState.FINISHED, RunState.PAUSED):
            self.now_ms += 1000 * GREW_S
            recorder.note(*observer.observe(), self.now_ms)
            run = FINISHED if state is RunState.FINISHED else PAUSED
            self.ledger.set_run_state(run, state, REASON[run])
            self.bus.delete(keys.learner_status(run))  # as its life ends
        for _ in range(3):
            self.now_ms += 1000 * GREW_S
            self._play(RUNNING, GREW, 10 * GREW)
            recorder.note(*observer.observe(), self.now_ms)

    def _plant_run(self, run: str) -> None:
        own = 100 * DIGIT[run]
        sections = RunSections(run=RunConfig(game=GAME[run]), arena=ArenaConfig())
        self.ledger.create_run(
            RunRecord(run, msgspec.json.encode(dump_run(sections)), {"minutes": 5.0}, str(self.folder / run), self.now_ms)
        )
        self._play(run, own + 1, own + 2)
        figures: dict[str, Any] = {"step": own + 3, "samples_inserted": own + 4, "samples_consumed": own + 5, "window": own + 6}
        figures |= {"loss_policy": own + 0.25, "loss_value": own + 0.5, "learning_rate": own + 7.0, "weight_version": DIGIT[run]}
        said = encode(msgspec.structs.replace(SILENT, **figures))
        for key in (keys.learner_status(run), keys.learned(run)):
            self.bus.put(key, said)
        self.bus.publish(keys.weights(run), encode(WeightEvent(run, DIGIT[run], f"{DIGIT[run]:064x}", "file:x", own + 3, self.now_ms)))
        for game in range(2):  # one of them the first game's version
            spec = MatchSpec(f"weights:{DIGIT[run] - game}", "random", 200, 64, 0, 0)
            result = MatchResult(spec, spec.first, "random", 180 - 60 * game, 0, 20 + 60 * game, self.now_ms)
            self.bus.publish(keys.results(run), encode(result))
        grade = GradeResult(DIGIT[run], 64, 1000, own + 8, self.now_ms, mean_loss=(own + 9) / 1000)
        self.bus.publish(keys.results(run), encode(grade))

    def _play(self, run: str, games: int, effort: int) -> None:
        """So many games, finished and learned from."""
        job = self.ledger.enqueue(Job("", run, Kind.SELFPLAY, "cpu", games=games))
        lease = self.ledger.claim(job.job.job_id, 1, "w", 60.0)
        assert lease is not None
        held = self.ledger.adopt(lease, games)
        self.ledger.replace_games(lease, [SampleEvent(GameRecord(game.uid, b"\0\0"), (0.0, 0.0), "w", 0) for game in held], 0)
        self.ledger.count_work(lease, Effort(effort, effort, effort))
        self.ledger.release(lease, [])
        ids = [entry.id for entry in self.bus.newest(keys.samples(run), games)]
        self.ledger.record_inserted(run, self.ledger.counts(run).finished, 0, ack=ids)

    def _plant_fleet(self) -> None:
        rates = dict.fromkeys(("games_per_s", "simulations_per_s", "evaluations_per_s", "mean_batch", "network_busy", "policy_lag"), FLEET)
        serves: dict[str, Any] = {"weight_versions": dict(DIGIT), "by_run": {RUNNING: (80.0, 20.0, 0.25)}}
        for role, facts in (("selfplay", {"note": "few files left to open"}), ("inference", serves), ("gateway", {})):
            beat = heartbeat(role, f"{role}@h:1", sent_ms=self.now_ms, rates=rates, **facts)
            self.bus.put(keys.beat(beat.worker), encode(beat))
