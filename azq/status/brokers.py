"""How the brokers are (memory, unread messages, dead letters; one round trip a plane), and how a machine that joins reaches them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import redis

from azq import __version__
from azq.config import Config
from azq.errors import BrokerError
from azq.wire import keys, shards
from azq.wire.connect import address, translate
from azq.wire.messages import Fleet


@dataclass(frozen=True, slots=True)
class PlaneFacts:
    """One broker instance at one moment."""

    plane: str  # "control", "data", "data1", ...
    up: bool = False
    used_bytes: int = 0
    limit_bytes: int = 0  # 0: none set
    dead_letters: int = 0  # ever
    waiting: Mapping[str, int] = field(default_factory=dict)  # run -> entries of the plane's stream not acknowledged yet
    reason: str = ""  # why it is not up


class Plane:
    """A broker instance behind a client; `stream_of` names the stream of a run whose length is the plane's backlog."""

    def __init__(self, name: str, client: redis.Redis, stream_of: Callable[[str], str]) -> None:
        self._name = name
        self._client = client
        self._stream_of = stream_of

    def read(self, runs: Sequence[str]) -> PlaneFacts:
        """The plane now; one that does not answer is not up."""
        try:
            with translate(self._client), self._client.pipeline(transaction=False) as pipe:
                pipe.info("memory")
                pipe.get(keys.DEAD_COUNT)
                for run in runs:
                    pipe.xlen(self._stream_of(run))
                memory, dead, *lengths = pipe.execute()
        except BrokerError as error:
            return PlaneFacts(self._name, reason=str(error))
        waiting = dict(zip(runs, map(int, lengths), strict=True))
        return PlaneFacts(self._name, True, int(memory["used_memory"]), int(memory["maxmemory"]), int(dead or 0), waiting)

    def forget(self, run: str) -> None:
        """Deletes the run's stream; a plane that is away is passed over: what it holds is no record of anything."""
        with contextlib.suppress(BrokerError), translate(self._client):
            self._client.unlink(self._stream_of(run))


def open_planes(control: redis.Redis, data: Sequence[redis.Redis]) -> tuple[Plane, ...]:
    """All planes of a fleet; they may be one server. The data planes are `data`, `data1`, `data2`, ... in the order of their addresses."""
    planes = [Plane(shards.data_name(place), client, keys.eval_stream) for place, client in enumerate(data)]
    return Plane("control", control, keys.samples), *planes


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
        host=socket.gethostname(),
    )


def _reachable(url: str) -> str:
    return "" if url.startswith("unix://") else address(url)
