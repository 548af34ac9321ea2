"""What this daemon tells a machine that joins: how the brokers and the store are reached from elsewhere. Pure."""

from __future__ import annotations

from azq import __version__
from azq.config import Config
from azq.wire.connect import address
from azq.wire.messages import Fleet


def fleet_of(config: Config) -> Fleet:
    """The fleet's settings without any password; an address on a unix socket is left empty, since no other machine reaches it."""
    broker = config.broker
    named = broker.public_data_urls or tuple(filter(None, [broker.public_data_url])) or broker.data_urls
    data = tuple(map(_reachable, named or [broker.data_url or broker.public_control_url or broker.control_url]))
    return Fleet(
        version=__version__,
        control_url=_reachable(broker.public_control_url or broker.control_url),
        data_url=data[0],
        store_url=config.store.url,
        lease_s=config.daemon.lease_s,
        heartbeat_s=config.worker.heartbeat_s,
        heartbeat_life_s=config.worker.heartbeat_life_s,
        sent_ms=0,
        data_urls=data if len(data) > 1 else (),
        shards_per_run=broker.shards_per_run,
    )


def _reachable(url: str) -> str:
    return "" if url.startswith("unix://") else address(url)
