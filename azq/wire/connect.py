"""Connections to a broker: one way to open them, one translation of what goes wrong with them, one agreement on the schema there.

redis-py retries by itself unless it is forbidden; a retried BLPOP or XREADGROUP can drop what it had already taken. So nothing here
retries: callers know which of their calls are safe to repeat.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from azq.config.host import TLS_SCHEME
from azq.errors import AccessRefused, BrokerAbsent, BrokerRefused, BrokerUnavailable, ConfigError, SchemaMismatch
from azq.waiting import WAITS
from azq.wire import keys, tls
from azq.wire.messages import READABLE, SCHEMA

SCHEMES = ("unix", "redis", "rediss")
CONNECT_TIMEOUT_S = 5.0
BLOCKING_TIMEOUT_S = 15.0  # a read waits at most half of this in the server, so that a frozen one is noticed
_DENIED = ("ACL failure", "NOPERM")  # of a command in a script
_ADMISSION = "check it in azq.toml, or let this machine in again: `azq join-token` on the first one"
_PASSING = ("LOADING", "BUSY ", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "UNKILLABLE")

UNMARKED = 1  # of control planes from before the mark: whatever runs they hold were written under this schema

# ARGV[1] schema of the caller, ARGV[2] that of a plane with runs and without a mark, ARGV[3] oldest schema that the caller raises to its
# own, ARGV[4] the mark, ARGV[5] names of all runs: not declared, for most roles may only read them. Returns the plane's schema; a mark
# never goes down. Who may not write it leaves a plane without a mark to the daemon.
_AGREE = """
local mark = redis.call('GET', ARGV[4])
local before = mark
if not mark then mark = redis.call('SCARD', ARGV[5]) > 0 and ARGV[2] or ARGV[1] end
if tonumber(mark) >= tonumber(ARGV[3]) and tonumber(mark) < tonumber(ARGV[1]) then mark = ARGV[1] end
if mark ~= before then redis.pcall('SET', ARGV[4], mark) end -- no write without need: a full server must let its learner start
return mark
"""


def connect(url: str, *, timeout_s: float = CONNECT_TIMEOUT_S, blocking: bool = False) -> redis.Redis:
    """A client of the broker at `url`, proven by one round trip; safe to share between threads.

    `unix://[:password@]/path`, `redis://[user:password@]host:port/db` and `rediss://` are understood. `blocking` gives a client
    for long waits: its socket may be silent for longer. Raises `BrokerUnavailable`, `BrokerRefused`, or `ConfigError` for a URL of
    no known form.
    """
    client = open_client(url, timeout_s=timeout_s, blocking=blocking)
    try:
        with translate(client):
            client.ping()
    except BaseException:
        client.close()
        raise
    return client


def open_client(url: str, *, timeout_s: float = CONNECT_TIMEOUT_S, blocking: bool = False) -> redis.Redis:
    """A client that connects at its first command. Raises `ConfigError` for a URL of no known form."""
    _check(url)
    try:
        client: redis.Redis = redis.Redis.from_url(
            url,
            protocol=2,
            decode_responses=False,
            socket_connect_timeout=timeout_s,
            socket_timeout=max(timeout_s, BLOCKING_TIMEOUT_S) if blocking else timeout_s,
            **_network_options(url),
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            health_check_interval=0,
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"broker URL {address(url)} does not parse: {error}; write unix:///path or redis://host:port/0") from None
    return client


def _network_options(url: str) -> dict[str, Any]:
    """What a connection over the network has beside one on this host."""
    if url.startswith("unix://"):
        return {}
    verified = {"connection_class": tls.VerifiedConnection} if url.startswith(f"{TLS_SCHEME}://") else {}
    return {"socket_keepalive": True, "socket_keepalive_options": keepalive_options(), **verified}


def keepalive_options() -> dict[int, int]:
    """Socket options with which a peer that was cut off is found within some ten seconds, on systems that have them."""
    wanted = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}  # seconds, seconds, probes, ms
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


def address(url: str) -> str:
    """The URL without user and password, fit for logs and messages."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "(unreadable URL)"
    if not parts.scheme:
        return "(URL without a scheme)"
    place = f"{host}:{port}" if port else host
    return f"{parts.scheme}://{place}{unquote(parts.path)}"


def address_of(client: redis.Redis) -> str:
    """Where a client connects to, without user and password."""
    options = client.connection_pool.connection_kwargs
    if path := options.get("path"):
        return f"unix://{path}"
    scheme = TLS_SCHEME if issubclass(client.connection_pool.connection_class, redis.SSLConnection) else "redis"
    return f"{scheme}://{options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db', 0)}"


def socket_timeout_s(client: redis.Redis) -> float:
    """How long a client's socket may be silent."""
    timeout = client.connection_pool.connection_kwargs.get("socket_timeout")
    return BLOCKING_TIMEOUT_S if timeout is None else float(timeout)


@contextmanager
def translate(client: redis.Redis) -> Iterator[None]:
    """Turns every failure of a client's commands into `BrokerUnavailable` (try again later) or `BrokerRefused` (mend something).

    Meanwhile the thread counts as one that waits for a broker.
    """
    try:
        with WAITS.here():
            yield
    except (AuthenticationError, AuthorizationError, AuthenticationWrongNumberOfArgsError) as error:
        why = str(error).rstrip(".")
        raise AccessRefused(f"broker at {address_of(client)} refuses the password ({why}); {_ADMISSION}") from None
    except NoPermissionError as error:
        raise AccessRefused(f"broker at {address_of(client)} refuses the command: {error}; {_ADMISSION}") from None
    except BusyLoadingError:
        raise BrokerUnavailable(f"broker at {address_of(client)} is still loading its file; try again in a moment") from None
    except OutOfMemoryError as error:
        raise BrokerUnavailable(f"broker at {address_of(client)} is out of memory: {error}; raise its maxmemory") from None
    except (ReadOnlyError, ClusterDownError) as error:
        raise BrokerUnavailable(f"broker at {address_of(client)} takes no writes: {error}; name the primary in azq.toml") from None
    except TimeoutError:
        raise BrokerUnavailable(f"broker at {address_of(client)} did not answer in time; {_silent(client)}?") from None
    except (ConnectionError, InvalidResponse, OSError) as error:
        raise _unreached(client, error) from None
    except ResponseError as error:
        if str(error).startswith(_DENIED):
            raise AccessRefused(f"broker at {address_of(client)} refuses the command: {error}; {_ADMISSION}") from None
        if str(error).startswith("MISCONF"):
            raise BrokerUnavailable(f"broker at {address_of(client)} takes no writes: {error}; look at its disk") from None
        if str(error).startswith(_PASSING):
            raise BrokerUnavailable(f"broker at {address_of(client)} is busy: {error}; try again in a moment") from None
        if str(error).startswith("WRONGTYPE"):
            wrong = f"{error}; somebody wrote what azq does not, and the daemon mends such a key within seconds"
            raise BrokerUnavailable(f"broker at {address_of(client)} refuses the command: {wrong}") from None
        raise BrokerRefused(f"broker at {address_of(client)} refuses the command: {error}; azq needs Redis >= 6.2 or Valkey") from None


def agree_on_schema(client: redis.Redis, *, upgrade: bool = False) -> None:
    """Marks a fresh control plane with this azq's schema, or compares. Raises `SchemaMismatch` naming both numbers, and `BrokerError`.

    With `upgrade` the plane of an older azq whose messages this one reads is raised to this schema: for the daemon, once it has
    its lock. Processes of the older azq are refused from then on.
    """
    oldest = min(READABLE) if upgrade else SCHEMA
    with translate(client):
        answer = client.eval(_AGREE, 0, str(SCHEMA), str(UNMARKED), str(oldest), keys.SCHEMA, keys.RUNS)
    theirs = bytes(answer).decode()
    if theirs != str(SCHEMA):
        raise SchemaMismatch(
            f"the control plane at {address_of(client)} has schema {theirs}, this azq speaks {SCHEMA}; {_remedy(int(theirs))}"
        )


def _check(url: str) -> None:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES or not rest:
        raise ConfigError(f"broker URL {address(url)} is none of unix:///path, redis(s)://host:port/0; mend azq.toml")
    if scheme == TLS_SCHEME:
        tls.context_for(tls.anchors_of(url))  # a file that is not there is a wrong setting, not a broker that is away


def _silent(client: redis.Redis) -> str:
    """Why a server may say nothing: one without TLS waits for the end of what it takes for a command."""
    secured = issubclass(client.connection_pool.connection_class, redis.SSLConnection)
    return "is it frozen or overloaded, or does it not speak TLS" if secured else "is it frozen or overloaded"


def _unreached(client: redis.Redis, error: Exception) -> BrokerUnavailable:
    """Why there is no connection: no server, no room for one more, or no permission."""
    place, why, code = address_of(client), _reason(error), _code(error)
    if turned_away(error):
        room = "has no room for one more (maxclients, `ulimit -n`), or it ends; see its log"
        return BrokerUnavailable(f"broker at {place} turned the connection away ({why}); it {room}")
    if code in (errno.EMFILE, errno.ENFILE):
        return BrokerUnavailable(f"no descriptor is left for a connection to the broker at {place} ({why}); raise `ulimit -n` here")
    if code in (errno.EACCES, errno.EPERM):
        return BrokerUnavailable(f"this user may not connect to the broker at {place} ({why}); be the user who owns it")
    kind = BrokerAbsent if code in (errno.ENOENT, errno.ECONNREFUSED) else BrokerUnavailable
    return kind(f"no broker at {place} ({why}); start it, or mend its URL in azq.toml")


def turned_away(error: Exception) -> bool:
    """Whether somebody listens there and ended the connection, as a server without room for one more does."""
    words = str(error)
    return "max number of clients" in words or "closed by server" in words or _code(error) in (errno.EPIPE, errno.ECONNRESET)


def _code(error: Exception) -> int | None:
    cause = error if isinstance(error, OSError) else error.__context__
    return cause.errno if isinstance(cause, OSError) else None


def _reason(error: Exception) -> str:
    cause = error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not the one that broker.tls_ca vouches for: {tls.reason_of(cause)}; "
            "where the first machine made a new one, join again with what `azq join-token` prints there"
        )
    if isinstance(cause, ssl.SSLError) and "VERSION" in str(cause.reason):
        return "it does not speak TLS; write redis://, or let it"
    text = str(error).strip().rstrip(".")
    return text.splitlines()[0] if text else type(error).__name__


def _remedy(theirs: int) -> str:
    if theirs > SCHEMA:
        return "install the azq that its daemon runs"
    if theirs in READABLE:
        return "start the daemon of this azq first"
    return "finish its runs with the azq that began them, or use another broker"
