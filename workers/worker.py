"""The process behind `azq worker`: a Celery worker with a soft stop."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import closing

from celery.exceptions import SecurityWarning

from azq.bus.redis import connect_at_start
from azq.config import Config
from azq.errors import ConfigError, ExitCode
from azq.wire.connect import agree_on_schema
from workers.factory import SoftWorker, build_app
from workers.lifecycle import node_name


def main(config: Config, queues: Sequence[str], concurrency: int) -> int:
    """Runs a Celery worker on these queues until SIGTERM; returns its exit code.

    Raises `ConfigError` for no queues or malformed ones, `BrokerUnavailable` or `BrokerRefused` when the broker does not let it
    in or lets it in no longer, and `SchemaMismatch` where the control plane belongs to another azq.
    """
    warnings.simplefilter("ignore", SecurityWarning)  # it warns root of pickle, which this app does not accept
    if not queues:
        raise ConfigError("no queues to serve; give --queues selfplay.cpu,eval.cpu")
    app = build_app(config, queues)
    with closing(connect_at_start(config.broker.control_url, timeout_s=config.broker.connect_timeout_s)) as client:
        agree_on_schema(client)
    worker = app.subclass_with_self(SoftWorker, name="Worker", attribute="app")(
        hostname=node_name(queues),
        concurrency=concurrency,
        pool_cls="prefork",
        loglevel="WARNING",
        queues=list(queues),
        quiet=True,
        no_color=True,
        without_mingle=True,
        without_gossip=True,
    )
    try:
        worker.start()
    finally:
        heart = app.azq.heart
        if heart is not None:
            heart.end()
    if heart is not None and heart.refused is not None:
        raise heart.refused
    return int(worker.exitcode or ExitCode.OK)
