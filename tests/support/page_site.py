"""A daemon's REST interface and page over the doubles, with a run that has everything the page can show."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from factories import heartbeat, learner_status
from replay_games import play_game
from rest_site import RestSite
from starlette.types import ASGIApp, Receive, Scope, Send

from azq import games
from azq.config import ArenaConfig, RunConfig, RunSections, dump_run
from azq.process.webserver import WebServer, open_listener, url_of
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import (
    GradeResult,
    HistoryPoint,
    Job,
    MatchResult,
    MatchSpec,
    RunRecord,
    SampleEvent,
    WeightEvent,
)
from daemon.api.rest import rest_server

RUN = "first"
HISTORY_S = 3000
VERSIONS = 12


def now_ms() -> int:
    """This host's clock."""
    return time.time_ns() // 1_000_000


class Watched:
    """An app that notes the paths it is asked for, and can be away: it then answers nothing at all."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on one request."""
        if scope["type"] == "http":
            self.paths.append(scope["path"])
        await self._app(scope, receive, send)


class Site(RestSite):
    """Doubles, REST interface and page; `start` serves them on a free port."""

    def __init__(self, folder: Path, game: str = "connect_four", **options: Any) -> None:
        super().__init__(folder, port=0, **options)
        self.folder = folder
        self.game = games.load(game)
        self.watched = Watched(self.app)
        sections = RunSections(run=RunConfig(game=game), arena=ArenaConfig())
        record = RunRecord(RUN, msgspec.json.encode(dump_run(sections)), {"minutes": 60.0}, str(folder / RUN), now_ms() - 1000 * HISTORY_S)
        self.ledger.create_run(record)
        self._server: WebServer | None = None
        self.url = ""

    def start(self) -> None:
        """Serves; again at the same address after `stop`."""
        config = self.config if not self.url else self.config.model_copy(update={"port": int(self.url.rpartition(":")[2])})
        listener = open_listener(config)
        self.url = url_of(listener)
        self._server = rest_server(self.watched, listener, config)
        self._server.start()

    def stop(self) -> None:
        """Closes the port; what is known stays."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def plant(self) -> None:
        """Everything at once."""
        self.plant_workers()
        self.plant_learner()
        self.plant_history()
        self.plant_arena()
        self.plant_games(range(1, 61))
        self.plant_jobs()

    def plant_beat(self, role: str, worker: str, host: str, age_s: float = 0.5, **facts: Any) -> None:
        """One heartbeat."""
        sent = now_ms() - round(1000 * age_s)
        values = {"pid": 4242, "started_ms": now_ms() - 3_600_000, "sent_ms": sent, **facts}
        self.bus.put(keys.beat(worker), encode(heartbeat(role, worker, host, **values)), life_s=600)

    def plant_workers(self) -> None:
        """Two hosts; one worker is late."""
        rates = {"games_per_s": 21.5, "simulations_per_s": 90_400.0}
        one_behind = {RUN: VERSIONS - 1}
        cpu: dict[str, Any] = {"queues": ("selfplay.cpu", "eval.cpu"), "tags": ("cpu",), "weight_versions": one_behind}
        self.plant_beat("daemon", "daemon@north:1", "north")
        self.plant_beat("learner", "learner@north:2", "north", run=RUN, rates={"samples_per_s": 640.0})
        self.plant_beat("selfplay", "selfplay@north:3", "north", slots=2, rates=rates, **cpu)
        self.plant_beat("eval", "eval@north:3", "north", rates={"simulations_per_s": 1200.0})
        gpu = {"evaluations_per_s": 88_000.0, "mean_batch": 2048.0, "network_busy": 0.87}
        self.plant_beat("inference", "inference@south:4", "south", tags=("cuda", "h200"), rates=gpu)
        cuda: dict[str, Any] = {"queues": ("selfplay.cuda",), "tags": ("cuda", "h200"), "weight_versions": one_behind}
        self.plant_beat("selfplay", "selfplay@south:5", "south", age_s=6.2, slots=4, rates=rates, **cuda)

    def plant_learner(self) -> None:
        """A learner in the middle of its run, and its weights."""
        status = learner_status(
            step=18_250,
            samples_inserted=1_234_567,
            samples_consumed=2_469_134,
            loss_policy=1.204,
            loss_value=0.431,
            learning_rate=0.002,
            weight_version=VERSIONS,
            samples_per_s=640.0,
            progress=0.83,
        )
        self.bus.put(keys.learner_status(RUN), encode(status), life_s=600)
        for version in range(1, VERSIONS + 1):
            event = WeightEvent(
                RUN, version, f"{version:064x}", "file:x", version * 1500, now_ms() - 200_000 * (VERSIONS - version), blocks=5, channels=64
            )
            self.bus.publish(keys.weights(RUN), encode(event))

    def plant_history(self, points: int = 600) -> None:
        """Curves that rise and fall over the last `HISTORY_S` seconds, with a gap."""
        start = now_ms() - 1000 * HISTORY_S
        for number in range(points):
            share = number / points
            if 0.55 < share < 0.62:
                continue
            point = HistoryPoint(
                at_ms=start + round(1000 * HISTORY_S * share),
                games_per_s=43 * (1 - math.exp(-6 * share)) + 2 * math.sin(number / 7),
                simulations_per_s=180_000 * share,
                evaluations_per_s=88_000 * (1 - math.exp(-9 * share)) + 2500 * math.sin(number / 5),
                mean_batch=1900 + 150 * math.sin(number / 11),
                network_busy=0.85 + 0.05 * math.sin(number / 9),
                policy_lag=1 + 0.4 * math.sin(number / 13),
                loss_policy=1.2 + 0.9 * math.exp(-5 * share),
                loss_value=0.43 + 0.5 * math.exp(-4 * share),
                step=number,
                spent={
                    "selfplay_search": 0.6,
                    "selfplay_wait": 0.3 - 0.2 * share,
                    "selfplay_other": 0.1 + 0.2 * share,
                    "learner_forward": 0.3,
                    "learner_backward": 0.5,
                    "learner_intake": 0.15,
                    "learner_other": 0.05,
                },
            )
            self.bus.publish(keys.history(RUN), encode(point))
        newest = HistoryPoint(now_ms(), 43.0, 182_000.0, 88_000.0, 2048.0, 0.87, 1.0, 640.0, 1.2, 0.43, step=points, active_ms=10**9)
        self.bus.publish(keys.history(RUN), encode(newest))

    def plant_arena(self) -> None:
        """Matches and grades that get better by version."""
        for version in range(1, VERSIONS + 1):
            wins = min(39, 8 + 3 * version)
            for opponent, won in (("uct:100", wins), (f"weights:{version - 1}", 24)):
                if opponent != "weights:0":
                    spec = MatchSpec(f"weights:{version}", opponent, 40, 64, 4, 0)
                    result = MatchResult(
                        spec, spec.first, opponent, won, 0, 40 - won, now_ms() - 60_000 * (VERSIONS - version), share=won / 40
                    )
                    self.bus.publish(keys.results(RUN), encode(result))
            grade = GradeResult(version, 64, 200, round(80 * math.exp(-version / 5)) + 5, now_ms())
            self.bus.publish(keys.results(RUN), encode(grade))

    def plant_games(self, uids: Sequence[int]) -> dict[int, SampleEvent]:
        """Recorded games on disk."""
        played = {uid: play_game(self.game, uid, weight_version=1 + uid // 6) for uid in uids}
        events = {uid: msgspec.structs.replace(event, finished_ms=now_ms() - 9000 * (uids[-1] - uid)) for uid, event in played.items()}
        log = SegmentLog(self.folder / RUN / "segments", self.game.name)
        log.append([LogEntry(uid, 1, encode(event)) for uid, event in events.items()])
        log.close()
        return events

    def plant_jobs(self) -> None:
        """A leased job with open games, a finished game, and a job that waits."""
        view = self.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu", games=8, slice_s=60))
        lease = self.ledger.claim(view.job.job_id, 1, "w", 600.0)
        assert lease is not None
        opened = self.ledger.adopt(lease, 8)
        finished = [msgspec.structs.replace(play_game(self.game, game.uid), finished_ms=now_ms()) for game in opened[:5]]
        self.ledger.replace_games(lease, finished, 0)
        ids = [entry.id for entry in self.bus.newest(keys.samples(RUN), 3)]
        self.ledger.record_inserted(RUN, 3, 1, ack=ids)
        self.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cuda", games=8, slice_s=60))
