"""What a worker answers to Celery's remote control (`celery inspect`, Flower): it tells about itself, and lets nobody change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import redis
from celery.utils.serialization import jsonify
from celery.worker.control import Panel

from azq import logs
from azq.errors import AccessRefused
from azq.masking import masked_settings
from azq.wire.acl import PIDBOX
from azq.wire.connect import translate

TELLS = ("ping", "stats", "conf", "active", "reserved", "scheduled", "revoked", "registered", "active_queues")
ANSWERED_WITHIN_S = 5.0

log = logs.get(__name__)


class ReadOnlyCommands(dict[str, Callable[..., Any]]):
    """The commands by name; every other one is answered, and not carried out."""

    def __missing__(self, command: str) -> Callable[..., Any]:
        return partial(_refused, command)


def read_only() -> None:
    """Leaves this process's remote control the commands that change nothing."""
    Panel.data = ReadOnlyCommands({name: partial(_told, Panel.data[name]) for name in TELLS})


def may_listen(client: redis.Redis) -> bool:
    """Whether the broker lets this worker hear commands; it does not where its users are of an older azq."""
    try:
        with translate(client), client.pubsub() as commands:  # type: ignore[no-untyped-call]
            commands.psubscribe(PIDBOX)
            commands.get_message(timeout=ANSWERED_WITHIN_S)
    except AccessRefused as error:
        log.warning("no_remote_control", reason=str(error), remedy="make the brokers' users anew: `azq fleet acl --apply`")
        return False
    return True


def _refused(command: str, _state: Any, **_arguments: Any) -> Mapping[str, str]:
    return {"error": f"azq's workers know no command {command!r}; jobs are revoked and workers counted through azq's own interface"}


def _told(command: Callable[..., Any], state: Any, **arguments: Any) -> Any:
    """Celery's own answer as plain values, without the password that a broker's address holds."""
    return masked_settings(jsonify(command(state, **arguments), unknown_type_filter=repr))
