"""A gateway's child that makes each newest network for browsers: it has PyTorch, which its parent has not."""

from __future__ import annotations

import sys

import redis

from azq import logs
from azq.bus.redis import RedisBus, connect_at_start
from azq.config import Config, load
from azq.errors import AzqError, BrokerError, ExitCode
from azq.games import GameFiles
from azq.ledger import Ledger
from azq.ledger.records import sections_of
from azq.ledger.types import RunState, RunView
from azq.process.interrupts import Interrupts, StopSign
from azq.process.start import run_main
from azq.status.observe import read_weights
from azq.store import open_run_store
from azq.volunteers.models import ModelCatalog, make_model

LOOK_S = 1.0

log = logs.get(__name__)


def main(config: Config) -> int:
    """Makes networks until it is told to stop; returns an exit code. Raises `ConfigError`, `BrokerUnavailable`, `BrokerRefused`."""
    client = connect_at_start(config.broker)
    with Interrupts() as stop:
        follow(config, client, stop)
    return int(ExitCode.OK)


def follow(config: Config, client: redis.Redis, stop: StopSign) -> None:
    """Looks at the runs that volunteers play for; one that fails keeps no other waiting, and is said once a version."""
    catalogs: dict[tuple[str, int], ModelCatalog] = {}
    failed: set[tuple[str, int, int]] = set()
    while not stop.wait(LOOK_S):
        try:
            views = [view for view in Ledger(client).runs() if view.state is RunState.RUNNING]
        except BrokerError as error:
            log.warning("broker_lost", reason=str(error))
            continue
        for view in views:
            catalog = catalogs.setdefault((view.record.run, view.record.created_ms), ModelCatalog(RedisBus(client), view.record.run))
            _make(config, client, view, catalog, failed)


def _make(config: Config, client: redis.Redis, view: RunView, catalog: ModelCatalog, failed: set[tuple[str, int, int]]) -> None:
    record, version = view.record, 0
    try:
        sections = sections_of(record)
        weights = read_weights(RedisBus(client), record.run) if sections.volunteers.kinds else []
        version = weights[0].version if weights else 0
        if not weights or (record.run, record.created_ms, version) in failed or catalog.find(version) is not None:
            return
        game = GameFiles(config.worker.game_files).load(sections.run.game, sections.run.params)
        made = make_model(RedisBus(client), open_run_store(config.store, record, config.home, client), game, weights[0], catalog)
        log.info("network_made", run=record.run, version=version, sha256=made.sha256, bytes=made.size)
    except BrokerError as error:
        log.warning("broker_lost", reason=str(error))
    except AzqError as error:
        failed.add((record.run, record.created_ms, version))
        log.error("network_not_made", run=record.run, version=version, reason=str(error))


if __name__ == "__main__":
    sys.exit(run_main("models", lambda: main(load())))
