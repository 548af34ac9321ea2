"""Delivery of jobs by Celery: the app's settings, routing by hardware tag, publishing.

Celery is delivery, never the record. It may lose a message and may deliver one twice, so a message is only (job_id, attempt) and the
ledger decides whether it counts.
"""

from __future__ import annotations

import os
import platform
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from uuid import uuid4

import msgspec
from celery import Celery
from kombu import compression
from kombu.entity import Exchange, Queue
from kombu.exceptions import KombuError, OperationalError
from kombu.transport import redis as kombu_redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from azq import logs
from azq.config.host import CA_OPTION, TLS_SCHEME, plain
from azq.errors import BrokerRefused, BrokerUnavailable, ConfigError
from azq.process.cards import drivers
from azq.waiting import WAITS
from azq.wire import keys, tls
from azq.wire.connect import address, keepalive_options
from azq.wire.kinds import Kind, queue_name, task_name
from azq.wire.messages import GradeSpec, Job, MatchSpec
from azq.wire.parts import spec_of

KNOWN_TAGS = ("cpu", "cuda", "rocm", "mps")
PRIORITY_STEPS = (0, 3, 6, 9)
TIME_LIMIT_S = 900
WIND_DOWN_S = 60  # between the soft limit, which the job sees, and the hard one, which kills its process
VISIBILITY_TIMEOUT_S = 1800  # over the time limit: a message that is visible sooner would be delivered again and again
SOCKET_TIMEOUT_S = 8.0  # without one a publisher waits for ever on a frozen broker
SOFT_SHUTDOWN_S = 10.0

log = logs.get(__name__)

_SETTINGS = {
    "task_serializer": "msgpack",
    "accept_content": ["msgpack"],
    "event_serializer": "json",  # a receiver built without this app drops msgpack events silently
    "task_ignore_result": True,
    "task_acks_late": True,
    # The ledger, not the broker, gives a job another attempt: of one that failed, and of one whose process died.
    "task_acks_on_failure": True,
    "task_acks_on_timeout": True,
    "task_reject_on_worker_lost": False,
    "task_create_missing_queues": False,
    "task_send_sent_event": True,  # monitors learn a task's queue from it
    # One more try covers a pooled connection that died with an earlier broker; a job sent twice is claimed once.
    "task_publish_retry": True,
    "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0},
    "worker_prefetch_multiplier": 1,
    "worker_disable_prefetch": True,
    "worker_soft_shutdown_timeout": SOFT_SHUTDOWN_S,
    "worker_send_task_events": True,
    "worker_enable_remote_control": False,  # but where `workers.lifecycle` has left no command that changes a worker
    "worker_max_tasks_per_child": 50,
    "worker_hijack_root_logger": False,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "broker_connection_retry_on_startup": True,
    "broker_channel_error_retry": True,  # a replica, or a full disk: the broker answers, and takes no writes for a while
    "broker_connection_max_retries": None,
}
_TRANSPORT = {
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "global_keyprefix": keys.CELERY_PREFIX,
    "queue_order_strategy": "priority",
    "priority_steps": list(PRIORITY_STEPS),
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 25,
}


_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
MOST_TEXT, MOST_BODY = 1 << 18, 4096  # characters of any message, and of a job's body, which is two numbers


def read_message(text: str) -> Any:
    """A message, or what is kept of one that a worker took, from its JSON; kombu calls this wherever it reads.

    What no azq sends (too long, compressed, no message at all) becomes a message that every worker refuses and drops: in kombu it would
    end the worker, or take its memory. Raises `ValueError` for such a one among those taken, which is dropped there.
    """
    reason = "" if len(text) <= MOST_TEXT else f"it has {len(text)} characters"
    message: Any = None
    if not reason:
        try:
            message = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            reason = str(error)
    if isinstance(message, list) and len(message) == 3:
        message[0] = read_message(msgspec.json.encode(message[0]).decode())
        return message
    if reason or (reason := _fault(message)):
        log.warning("message_refused", reason=reason, remedy="`azq fleet list` names the machines that may write to queues")
        return {
            "body": "",
            "properties": {"delivery_tag": uuid4().hex, "delivery_info": {"exchange": "", "routing_key": ""}},
            "headers": {},
        }
    return message


def _fault(message: Any) -> str:
    """Why a message is none of azq's; empty where it may be one."""
    match message:
        case {"body": str(body), "properties": {"delivery_tag": str(), "delivery_info": dict(), **rest}, "headers": dict() as headers}:
            if "task" in headers and len(body) > MOST_BODY:
                return f"its body has {len(body)} characters"
            if headers.get("compression"):
                return "it is compressed"
            return "" if rest.get("body_encoding") == "base64" and _BASE64.fullmatch(body) else "its body is not in base64"
        case {"event": str()} | {"method": str()}:
            return ""
    return "it is no message of Celery"


class CreditBack(kombu_redis.QoS):
    """Gives a worker its credit back also where the acknowledgement of a message fails.

    kombu keeps it then, and polls no socket without credit, so that the worker never learns that its connection is dead: it beats, and
    takes nothing any more. The message is delivered again after the visibility timeout, and the ledger refuses it.
    """

    def ack(self, delivery_tag: str) -> None:
        """Tells the broker that a message is done. Raises what the connection raises."""
        with self._credit_of(delivery_tag):
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Hands a message back, or drops it. Raises what the connection raises."""
        with self._credit_of(delivery_tag):
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call]

    @contextmanager
    def _credit_of(self, delivery_tag: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._quick_ack(delivery_tag)
            raise


def _consume(channel: Any, queue: str, no_ack: bool, callback: Callable[[Any], Any], *arguments: Any, **options: Any) -> Any:
    """kombu's, but for a message that Celery cannot handle, which would end the worker: it is refused."""

    def handle(message: Any) -> Any:
        try:
            return callback(message)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            log.warning("message_refused", reason=f"Celery cannot handle it: {error!r}")
            return message.reject()

    return _kombus_consume(channel, queue, no_ack, handle, *arguments, **options)


_kombus_consume: Any = kombu_redis.Channel.basic_consume
kombu_redis.Channel.basic_consume = _consume  # type: ignore[method-assign,assignment]
kombu_redis.loads = read_message  # type: ignore[attr-defined,assignment]
compression._decoders.clear()
kombu_redis.Channel.QoS = CreditBack  # by attribute, since `redis+socket://` names its transport itself


class _VerifiedChannel(kombu_redis.Channel):
    connection_class_ssl = tls.VerifiedConnection


class VerifiedTransport(kombu_redis.Transport):
    """kombu's transport over Redis, whose TLS trusts what `broker.tls_ca` says and nothing else."""

    Channel = _VerifiedChannel


class PublishedJob(Protocol):
    """What publishing needs of a job: `azq.ledger.types.JobView` has it."""

    @property
    def job(self) -> Job: ...
    @property
    def attempt(self) -> int: ...


def make_app(
    control_url: str,
    *,
    tags: Iterable[str] = (),
    socket_timeout_s: float = SOCKET_TIMEOUT_S,
) -> Celery:
    """The Celery app on a control plane, with queues for the known tags and `tags`. Raises `ConfigError` for a malformed tag or URL."""
    all_tags = dict.fromkeys((*KNOWN_TAGS, *tags))
    keepalive = {} if control_url.startswith("unix://") else {"socket_keepalive_options": keepalive_options()}
    transport = {"visibility_timeout": VISIBILITY_TIMEOUT_S, "socket_timeout": socket_timeout_s}
    for name in [name for name in os.environ if name.startswith("CELERY_")]:
        del os.environ[name]  # another application's: Celery has CELERY_BROKER_URL and its like go before what an app is given
    app = Celery("azq", broker=celery_url(control_url), set_as_current=False)
    app.conf.update(
        **_SETTINGS,
        **_tls_settings(control_url),
        task_queues=[make_queue(queue_name(kind, tag)) for tag in all_tags for kind in Kind],
        task_default_queue=queue_name(Kind.SELFPLAY, "cpu"),
        task_time_limit=TIME_LIMIT_S,
        task_soft_time_limit=TIME_LIMIT_S - WIND_DOWN_S,
        broker_transport_options=_TRANSPORT | transport | keepalive,
    )
    return app


def publish(app: Celery, view: PublishedJob, game: str = "") -> None:
    """Hands a job's current attempt to the queue of its kind and tag; with a description for monitors.

    Raises `BrokerUnavailable` when the broker does not take it in time, `BrokerRefused` where it refuses the password, and
    `UnknownTagError` for a malformed kind or tag.
    """
    job = view.job
    queue = make_queue(queue_name(job.kind, job.tag))
    place = address(app.conf.broker_url.removeprefix("redis+").replace("socket://", "unix://"))
    try:
        with WAITS.here():
            app.send_task(
                task_name(job.kind),
                args=(job.job_id, view.attempt),
                argsrepr=described(job, view.attempt, game),
                queue=queue,
                priority=min(max(job.priority, 0), 9),
                task_id=f"{job.job_id}:{view.attempt}",
            )
    except (OperationalError, KombuError, RedisError, OSError) as error:
        if any(isinstance(cause, (AuthenticationError, NoPermissionError)) for cause in _causes(error)):
            raise BrokerRefused(f"broker at {place} refuses the password: {error}; check it in azq.toml") from None
        raise BrokerUnavailable(
            f"broker at {place} does not take job {job.job_id}: {error}; it is sent again when the broker answers"
        ) from None


def described(job: Job, attempt: int, game: str = "") -> str:
    """A job in a few words: `ttt:7 attempt 1 · selfplay.cpu · tic_tac_toe · 128 games`."""
    match spec := spec_of(job):
        case MatchSpec():
            work = f"{spec.first} - {spec.second}, {spec.games} games"
        case GradeSpec():
            work = f"weights:{spec.weight_version} graded on {spec.positions} positions"
        case _:
            work = f"{job.games} games" if job.games else ""
    return " · ".join(part for part in (f"{job.job_id} attempt {attempt}", job.queue, game, work) if part)


def make_queue(name: str) -> Queue:
    """A direct queue with an exchange of the same name."""
    return Queue(name, Exchange(name), routing_key=name)  # type: ignore[no-untyped-call]


def celery_url(control_url: str) -> str:
    """The broker URL as Celery writes it: unix sockets become `redis+socket`."""
    scheme, separator, rest = control_url.partition("://")
    if not separator or scheme not in ("unix", "redis", "rediss"):
        raise ConfigError(f"broker.control_url {address(control_url)} is none of unix:///path, redis(s)://host:port/0; mend azq.toml")
    return f"redis+socket://{rest}" if scheme == "unix" else plain(control_url)


def _tls_settings(control_url: str) -> dict[str, Any]:
    """Celery's settings for `rediss://`: without them kombu would encrypt and ask for no certificate."""
    if not control_url.startswith(f"{TLS_SCHEME}://"):
        return {}
    verified = {"ssl_cert_reqs": ssl.CERT_REQUIRED, CA_OPTION: tls.anchors_of(control_url)}
    return {"broker_transport": VerifiedTransport, "broker_use_ssl": verified}


def detect_tags() -> tuple[str, ...]:
    """The hardware tags of this host, found without loading any device library."""
    return tags_of(platform.system(), platform.machine(), drivers())


def tags_of(system: str, machine: str, drivers: Sequence[str]) -> tuple[str, ...]:
    """`cpu` always, `cuda` with an NVIDIA device, `rocm` with an AMD one, `mps` on Apple silicon."""
    return ("cpu", *drivers, *(("mps",) if (system, machine) == ("Darwin", "arm64") else ()))


def _causes(error: BaseException) -> Sequence[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain
