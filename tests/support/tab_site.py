"""A gateway with its pages over the doubles, and a run whose games tabs may play."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import uvicorn
from memory_broker import MemoryBus, MemoryLedger
from sharp_nets import KINDS, sharp_bytes
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from waiting import PATIENCE_S, until

from azq import games
from azq.bus.catalog import ModelCatalog
from azq.config import GatewayConfig, RunConfig, RunSections, SearchConfig, VolunteersConfig, dump_run
from azq.ledger.types import Lease
from azq.parts.volunteers.contributor_store import ContributorStore
from azq.parts.volunteers.gateway import PATIENCE, Gateway
from azq.parts.volunteers.handouts import GamesBatch, GamesVerdict
from azq.parts.volunteers.hub import Backing
from azq.parts.volunteers.model_maker import make_model
from azq.parts.volunteers.pages import Public, make_site
from azq.parts.volunteers.verifier import Judge
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, MatchResult, MatchSpec, ModelEvent, RunRecord, SampleEvent, WeightEvent
from azq.wire.tabs import ModelUpdate

RUN = "tabs"
OTHER = "others"  # a second run, where a site has one
SECRET = b"secret"
FAR = 10  # by which versions of its networks are higher


class Believer(Judge):
    """Believes every game that the rules allow."""

    def __init__(self, game: games.Game) -> None:
        self._game = game

    def batch_games(self, contributor: str) -> int:
        return 1

    def judge(self, batch: GamesBatch) -> GamesVerdict:
        return GamesVerdict({each.record.uid: self._returns(each.record) for each in batch.games})

    def _returns(self, record: GameRecord) -> tuple[float, ...]:
        state = self._game.new_initial_state()
        for action in np.frombuffer(record.actions, "<u2").tolist():
            state.apply_action(action)
        assert state.is_terminal()
        return tuple(state.returns())


class TabSite:
    """`start` serves on a free port; `publish` puts out weights, which tabs get within a second or two."""

    def __init__(
        self, folder: Path, kind: str = "mlp", num_simulations: int = 32, most_games: int = 400, runs: tuple[str, ...] = (RUN,)
    ) -> None:
        self.kind, self.game = kind, games.load(KINDS[kind][0])
        self.bus = MemoryBus()
        self.ledger = MemoryLedger(self.bus)
        self._settings = GatewayConfig(keys_per_day=1000)
        self.contributors = ContributorStore(self.bus.client, self._settings, SECRET)
        self.store = open_store("file", directory=folder)
        self.update: ModelUpdate | None = None
        self.judge: Judge = Believer(self.game)
        self._updates: dict[int, ModelUpdate] = {}
        self._most_games = most_games
        self._models: dict[str, ModelEvent] = {}
        search = SearchConfig(num_simulations=num_simulations)
        self.sections = RunSections(
            run=RunConfig(game=self.game.name, seed=7), search=search, volunteers=VolunteersConfig(kinds=("selfplay", "eval"))
        )
        self.runs = runs
        for run in runs:
            self.ledger.create_run(RunRecord(run, msgspec.json.encode(dump_run(self.sections)), {"minutes": 60.0}, str(folder), 1))
        self.answers: list[tuple[str, int]] = []  # path and status of each
        self.url = ""
        self._server: uvicorn.Server | None = None

    def publish(self, version: int, seed: int = 3, **lies: Any) -> None:
        """New weights, with something untrue in what tabs are told of them where that is asked for."""
        sha256, uri = self.store.put(sharp_bytes(self.kind, seed))
        event = make_model(self.bus, self.store, self.game, WeightEvent(RUN, version, sha256, uri, version, 0), ModelCatalog(self.bus, RUN))
        self._models[event.sha256] = event
        told: dict[str, Any] = {name: getattr(event, name) for name in ("sha256", "size", "positions", "logits", "values", "tolerance")}
        self.update = self._updates[version] = ModelUpdate(RUN, self.game.name, dict(self.game.params), version, **{**told, **lies})

    # What the gateway asks of its networks.

    def find(self, record: RunRecord, sections: RunSections, version: int | None = None) -> ModelUpdate | None:
        update = self.update if version is None else self._updates.get(version)
        far = FAR * (record.run == OTHER)
        return update and msgspec.structs.replace(update, run=record.run, version=update.version + far)

    def read(self, sha256: str) -> bytes | None:
        event = self._models.get(sha256)
        return self.store.get(event.uri, event.sha256) if event else None

    def finished(self, run: str = RUN) -> list[SampleEvent]:
        """All games that were committed."""
        return [decode(entry.frame, SampleEvent) for entry in self.bus.newest(keys.samples(run), 10_000)]

    def rate(self, versions: int) -> None:
        """Matches of so many versions, each stronger than the one before."""
        for version in range(1, versions + 1):
            spec = MatchSpec(f"weights:{version}", f"weights:{version - 1}" if version > 1 else "uct:100", 40, 64, 4, 0)
            won = 22 + version
            self.bus.publish(keys.results(RUN), encode(MatchResult(spec, spec.first, spec.second, won, 0, 40 - won, version)))

    def start(self) -> None:
        """Serves; again at the same address after `stop`."""
        ready: dict[str, Any] = {}
        backing = Backing(self.ledger, self.contributors, self.judge, self, SECRET)
        gateway = Gateway(self._settings, backing, patience=replace(PATIENCE, batch_s=1.0))
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        site = make_site(gateway, self, Public(gateway, backing, self.bus), "http://volunteers.test")
        settings = uvicorn.Config(
            self._noted(site), host="127.0.0.1", port=port, log_config=None, ws_max_size=2**20, timeout_graceful_shutdown=1
        )
        self._server = server = uvicorn.Server(settings)

        async def serve() -> None:
            ready["loop"] = asyncio.get_running_loop()
            await server.serve()

        self._thread = threading.Thread(target=lambda: asyncio.run(serve()))
        self._thread.start()
        until(lambda: server.started, "the gateway")
        self.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

        def begin(lease: Lease) -> None:
            ready["loop"].call_soon_threadsafe(gateway.begin, lease, self.ledger.run(lease.job.run), self.sections, bool)

        self._begin = begin
        for run in self.runs:
            self.ask(Job("", run, Kind.SELFPLAY, "browser", games=self._most_games, slice_s=600))

    def ask(self, job: Job) -> str:
        """A job that the gateway takes at once."""
        view = self.ledger.enqueue(job)
        lease = self.ledger.claim(view.job.job_id, 1, "gateway", 60.0)
        assert lease is not None
        self._begin(lease)
        return view.job.job_id

    def _noted(self, app: ASGIApp) -> ASGIApp:
        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            async def note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self.answers.append((scope["path"], message["status"]))
                await send(message)

            await app(scope, receive, note)

        return noted

    def stop(self) -> None:
        """The gateway ends; its games return to the pool."""
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
