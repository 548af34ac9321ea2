"""What one pool child keeps between jobs: connections, the ledger, search arenas. Made in the child, after the fork."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import redis

from azq import games
from azq.actor.groups import Arenas
from azq.actor.progress import Meter
from azq.bus.connect import connect
from azq.bus.redis import RedisBus
from azq.bus.sharded import TIMEOUT_S
from azq.config import Config, RunSections
from azq.goals import Done, Goals
from azq.ledger import Ledger
from azq.ledger.records import sections_of
from azq.ledger.types import RunView
from azq.phases import Phases
from azq.search.evaluator import Evaluator, UniformEvaluator
from azq.search.search import search_at
from azq.wire.acl import user_in
from azq.wire.messages import LATEST, RunRecord
from azq.wire.shards import client_shards, on_shard
from workers.board import ChildFigures
from workers.children import Signs, owner_of

if TYPE_CHECKING:
    from azq.games import Game


class Context:
    """A child's belongings; `owner` names it in the ledger."""

    def __init__(self, config: Config, signs: Signs) -> None:
        self.config = config
        self.board = signs.board
        self.slot = signs.slot
        self.owner = owner_of(os.getpid())
        self.arenas = Arenas()
        self.meter = Meter()
        self.phases = Phases()
        self._control: redis.Redis | None = None
        self._evaluators = 0
        self._signs = signs

    @property
    def control(self) -> redis.Redis:
        """The connection to the control plane, made at the first use."""
        if self._control is None:
            self._control = connect(self.config.broker.control_url, timeout_s=self.config.broker.connect_timeout_s)
        return self._control

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return Ledger(self.control)

    def stopping(self) -> bool:
        """Whether the worker is stopping; who asks is alive."""
        self._signs.asked()
        return self.board.stopping()

    def busy(self, job_id: str, attempt: int) -> None:
        """Says which job is held."""
        self._signs.hold(job_id, attempt)

    def idle(self) -> None:
        """Says that no job is held."""
        self._signs.hold("")
        self.board.write(self.slot, ChildFigures())

    def sections_now(self, view: RunView) -> RunSections:
        """The run's settings with the search as it is at this share of its horizon; raises `ConfigError`."""
        sections, until = sections_of(view.record), view.record.until
        if not sections.search.schedule:
            return sections
        games = self.ledger.counts(view.record.run).finished
        steps = self._published_step(view.record.run) if "steps" in until else 0
        now = search_at(sections.search, Goals(until).progress(Done.of(view.active_ms, games, steps)))
        return sections.model_copy(update={"search": now})

    def game(self, sections: RunSections) -> Game:
        """The run's rules."""
        return games.GameFiles(self.config.worker.game_files).load(sections.run.game, sections.run.params)

    def evaluator(self, record: RunRecord, sections: RunSections, game: Game) -> Evaluator:
        """The evaluator the run asks for; the caller closes it."""
        if sections.selfplay.evaluator == "uniform":
            return UniformEvaluator(game.num_distinct_actions(), game.value_size())
        if sections.selfplay.evaluator == "local":
            return self._local(record, sections, game)
        self._evaluators += 1
        return self._stream(record.run, sections, game, f"{user_in(self.config.broker.data_planes[0])}:{self.owner}:{self._evaluators}")

    def _stream(self, run: str, sections: RunSections, game: Game, client: str) -> Evaluator:
        """The request stream; over several data planes the client's own of them, and another one when that is lost."""
        from azq.inference.ask.client import StreamEvaluator
        from azq.inference.ask.failover import FailoverEvaluator

        urls, broker = self.config.broker.data_planes, self.config.broker

        def over(place: int, name: str) -> StreamEvaluator:
            alone = len(urls) == 1  # else a socket that is silent for long is a broker to leave
            timeout_s = broker.connect_timeout_s if alone else min(broker.connect_timeout_s, TIMEOUT_S)
            bus = RedisBus(connect(urls[place], timeout_s=timeout_s, blocking=alone))
            return StreamEvaluator(
                bus,
                run,
                name,
                num_actions=game.num_distinct_actions(),
                value_size=game.value_size(),
                resend_after_s=sections.selfplay.resend_after_s,
                phases=self.phases,
            )

        if len(urls) == 1:
            return over(0, client)
        order = client_shards(run, client, len(urls), broker.shards_per_run)
        return FailoverEvaluator(lambda place: over(place, on_shard(client, place)), order)

    def _published_step(self, run: str) -> int:
        from azq.inference.weights import WeightCatalog

        catalog = WeightCatalog(RedisBus(self.control), run)
        catalog.refresh()
        newest = catalog.find(LATEST)
        return newest.step if newest else 0

    def _local(self, record: RunRecord, sections: RunSections, game: Game) -> Evaluator:
        from azq.inference.ask.local import LocalEvaluator
        from azq.inference.weights import WeightCatalog, fetch_from
        from azq.store import open_run_store

        store = open_run_store(self.config.store, record, self.config.home, self.control)
        catalog = WeightCatalog(RedisBus(self.control), record.run)
        return LocalEvaluator.from_catalog(game, catalog, fetch_from(store), self.config.inference)
