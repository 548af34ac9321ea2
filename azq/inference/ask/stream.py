"""The way to the inference workers: over one data broker, or over several, of which each client has its own."""

from __future__ import annotations

from pathlib import Path

from azq.bus.base import AskingBus
from azq.bus.redis import RedisBus
from azq.bus.same_host import HostFirstBus
from azq.bus.sharded import TIMEOUT_S
from azq.config import BrokerConfig, RunSections
from azq.games import Game
from azq.inference.ask.client import StreamEvaluator
from azq.inference.ask.failover import FailoverEvaluator
from azq.phases import Phases
from azq.search.evaluator import Evaluator
from azq.wire import keys
from azq.wire.acl import user_in
from azq.wire.connect import connect
from azq.wire.shards import client_shards, on_shard


def open_stream(
    broker: BrokerConfig,
    run: str,
    sections: RunSections,
    game: Game,
    who: str,
    phases: Phases | None = None,
    host: Path | None = None,
) -> Evaluator:
    """An evaluator over the request stream, for one thread; another broker is asked when the client's own is lost.

    `who` is no other client's name. With `host`, the home folder of inference workers of this host, those are asked directly while there
    are any. Raises `BrokerError` where no data broker answers.
    """
    urls = broker.data_planes
    client = f"{user_in(urls[0])}:{who}"  # its replies lie below its user's name, as the rights of roles ask

    def over(place: int, name: str) -> StreamEvaluator:
        alone = len(urls) == 1  # else a socket that is silent for long is a broker to leave
        timeout_s = broker.connect_timeout_s if alone else min(broker.connect_timeout_s, TIMEOUT_S)
        bus: AskingBus = RedisBus(connect(urls[place], timeout_s=timeout_s, blocking=alone))
        if host is not None:
            bus = HostFirstBus(bus, keys.eval_stream(run), keys.reply(name), host)
        patience_s = sections.selfplay.resend_after_s
        actions, values = game.num_distinct_actions(), game.value_size()
        spent = phases or Phases()
        return StreamEvaluator(bus, run, name, num_actions=actions, value_size=values, resend_after_s=patience_s, phases=spent)

    if len(urls) == 1:
        return over(0, client)
    order = client_shards(run, client, len(urls), broker.shards_per_run)
    return FailoverEvaluator(lambda place: over(place, on_shard(client, place)), order)
