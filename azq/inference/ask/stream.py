"""The way to the inference workers: over one data broker, or over several, of which each client has its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from azq.bus.base import AskingBus
from azq.bus.redis import RedisBus
from azq.bus.same_host import HostFirstBus
from azq.bus.sharded import TIMEOUT_S
from azq.config import BrokerConfig
from azq.errors import BrokerError
from azq.games import Game
from azq.inference.ask.client import StreamEvaluator
from azq.phases import Phases
from azq.wire import keys
from azq.wire.connect import CONNECT_TIMEOUT_S, connect
from azq.wire.shards import on_shard, ranked


class BrokerRotation:
    """A client's brokers by turns, the first of `order` first: each call gives the next one that answers, but for the one in use.

    `connect` gives the connection to a broker (its place in the list) and the client's name there. Both raise `BrokerError`.
    """

    def __init__(self, connect: Callable[[int], tuple[AskingBus, str]], order: Sequence[int]) -> None:
        self._connect, self._order = connect, deque(order)
        self._in_use = False  # the last of the order

    def __call__(self) -> tuple[AskingBus, str]:
        refused: BrokerError | None = None
        for _ in range(len(self._order) - self._in_use):
            place = self._order.popleft()
            self._order.append(place)
            try:
                there = self._connect(place)
            except BrokerError as error:
                refused = refused or error
            else:
                self._in_use = True
                return there
        if self._in_use:
            self._order.rotate(-1)
        raise refused or BrokerError("no other data plane to ask; set broker.data_urls")


def open_stream(
    broker: BrokerConfig, run: str, game: Game, who: str, phases: Phases | None = None, host: Path | None = None
) -> StreamEvaluator:
    """An evaluator over the request stream, for one thread; another broker is asked when the client's own is lost.

    `who` is no other client's name. With `host`, the home folder of inference workers of this host, those are asked directly while there
    are any. Raises `BrokerError` where no data broker answers.
    """
    urls = broker.data_planes
    client = f"{keys.user_in(urls[0])}:{who}"  # its replies lie below its user's name, as the rights of roles ask
    alone = len(urls) == 1  # else a socket that is silent for long is a broker to leave

    def connected(place: int) -> tuple[AskingBus, str]:
        name = client if alone else on_shard(client, place)
        bus: AskingBus = RedisBus(connect(urls[place], timeout_s=CONNECT_TIMEOUT_S if alone else TIMEOUT_S, blocking=alone))
        return (bus if host is None else HostFirstBus(bus, keys.eval_stream(run), keys.reply(name), host)), name

    brokers = BrokerRotation(connected, ranked(client, range(len(urls))))
    bus, name = brokers()
    actions, values = game.num_distinct_actions(), game.value_size()
    spent = phases or Phases()
    return StreamEvaluator(bus, run, name, num_actions=actions, value_size=values, phases=spent, elsewhere=None if alone else brokers)
