"""A gateway's child that makes each network that serves for browsers: it has PyTorch, which its parent has not."""

from __future__ import annotations

import random
import sys

import numpy as np
import redis
from numpy.typing import NDArray

from azq import logs
from azq.bus.base import Bus
from azq.bus.catalog import ModelCatalog
from azq.bus.redis import RedisBus, connect_at_start
from azq.config import Config, VolunteersConfig, load
from azq.errors import AzqError, BrokerError, ExitCode
from azq.games import Game, GameFiles
from azq.inference.weights import WeightCatalog
from azq.ledger import Ledger
from azq.ledger.records import sections_of
from azq.ledger.types import RunState, RunView
from azq.parts.volunteers.matches import versions_named
from azq.process.interrupts import Interrupts, StopSign
from azq.process.start import run_main
from azq.store import Store, open_run_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import BROWSER, Kind, queue_name
from azq.wire.messages import ModelEvent, WeightEvent

POLL_S = 1.0
PROBES = 8  # positions that a browser tries a network on
TOLERANCE = 2.0**-12  # of the largest logit: half a step of the float16 that logits are rounded to before a search reads them
Catalogs = tuple[WeightCatalog, ModelCatalog]  # of one run

log = logs.get(__name__)


def main(config: Config) -> int:
    """Makes networks until SIGTERM or SIGINT; returns an exit code. Raises `ConfigError`, `BrokerUnavailable`, `BrokerRefused`."""
    client = connect_at_start(config.broker)
    with Interrupts() as stop:
        follow(config, client, stop)
    return int(ExitCode.OK)


def follow(config: Config, client: redis.Redis, stop: StopSign) -> None:
    """Follows the runs that volunteers play for; a failure delays no other run, and is logged once a version."""
    catalogs: dict[tuple[str, int], Catalogs] = {}
    failed: set[tuple[str, int, int]] = set()
    while not stop.wait(POLL_S):
        try:
            views = [view for view in Ledger(client).runs() if view.state is RunState.RUNNING]
        except BrokerError as error:
            log.warning("broker_lost", reason=str(error))
            continue
        for view in views:
            _make(config, client, view, catalogs, failed)


def _make(
    config: Config, client: redis.Redis, view: RunView, catalogs: dict[tuple[str, int], Catalogs], failed: set[tuple[str, int, int]]
) -> None:
    record, version, bus = view.record, 0, RedisBus(client)
    try:
        sections = sections_of(record)
        followed = WeightCatalog(bus, record.run, gated=sections.arena.promotes), ModelCatalog(bus, record.run)
        weights, models = catalogs.setdefault((record.run, record.created_ms), followed)
        for version in _wanted(client, record.run, sections.volunteers, weights):
            event = weights.find(version)
            if event is None or (record.run, record.created_ms, version) in failed or models.find(version) is not None:
                continue
            game = GameFiles(config.worker.game_files).load(sections.run.game, sections.run.params)
            made = make_model(bus, open_run_store(config.store, record, config.home, client), game, event, models)
            log.info("network_made", run=record.run, version=version, sha256=made.sha256, bytes=made.size)
    except BrokerError as error:
        log.warning("broker_lost", reason=str(error))
    except AzqError as error:
        failed.add((record.run, record.created_ms, version))
        log.error("network_not_made", run=record.run, version=version, reason=str(error))


def _wanted(client: redis.Redis, run: str, volunteers: VolunteersConfig, weights: WeightCatalog) -> list[int]:
    """The version that serves, and those that the matches of tabs are between."""
    if not volunteers.kinds:
        return []
    while weights.refresh():
        pass
    jobs = Ledger(client).jobs(run) if Kind.EVAL in volunteers.kinds else []
    matches = [view.job for view in jobs if view.job.queue == queue_name(Kind.EVAL, BROWSER)]
    return [event.version for event in weights.preferred()[:1]] + [version for job in matches for version in versions_named(job)]


def make_model(control: Bus, store: Store, game: Game, weights: WeightEvent, catalog: ModelCatalog) -> ModelEvent:
    """The network of published weights; made, stored and announced unless it is there. Two makers at once write the same.

    Raises `WeightsError` for weights that are damaged or do not fit the game, `StoreError`, `BrokerError`.
    """
    if (made := catalog.find(weights.version)) is not None:
        return made
    event = _made(store, game, weights)
    control.publish(keys.networks(weights.run), encode(event))
    return event


def _made(store: Store, game: Game, weights: WeightEvent) -> ModelEvent:
    import torch

    from azq.inference.device.native import NativeForward, fastest_kernel
    from azq.nets import restore, unpack
    from azq.nets.whole import for_tabs, has_whole_form

    network = restore(store.get(weights.uri, weights.sha256), game)
    data, positions = for_tabs(network), probe_positions(game)
    if has_whole_form(network):
        logits, values = NativeForward(fastest_kernel(), network, lambda: 1).launch(positions).wait()
        tolerance = 0.0
    else:
        with torch.inference_mode():
            logits, values = (output.numpy() for output in network(*unpack(torch.from_numpy(positions), network.spec)))
        tolerance = TOLERANCE * max(1.0, float(np.abs(logits).max()))
    sha256, uri = store.put(data)
    answers = logits.astype("<f4").tobytes(), values.astype("<f4").tobytes()
    return ModelEvent(weights.version, sha256, uri, len(data), positions.tobytes(), *answers, tolerance)


def probe_positions(game: Game, count: int = PROBES) -> NDArray[np.uint8]:
    """Packed observations (count, P) of positions in random games, the same ones every time."""
    rng = random.Random(0)
    positions: list[NDArray[np.uint8]] = []
    while len(positions) < count:
        state = game.new_initial_state()
        seen = []
        while not state.is_terminal():
            if not state.is_chance_node():
                seen.append(state.packed_observation())
            state.apply_action(rng.choice(state.legal_actions()))
        positions.extend(rng.sample(seen, min(2, len(seen))))
    return np.stack(positions[:count])


if __name__ == "__main__":
    sys.exit(run_main("models", lambda: main(load())))
