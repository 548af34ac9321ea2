"""Every error azq raises on purpose, with the exit code it ends a process with and the status the REST interface answers it with.

Messages follow one form: what is wrong, where, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every azq process. A supervisor restarts none of `DO_NOT_RESTART`."""

    OK = 0
    CRASH = 1
    CONFIG = 2
    BROKER_UNAVAILABLE = 3
    BROKER_REFUSED = 4
    WIRE = 5
    WEIGHTS = 6
    STORE = 7
    EVALUATION = 8
    NOT_FOUND = 9
    CONFLICT = 10
    MISSING_EXTRA = 11
    REQUEST = 12
    SCHEMA = 13
    DEVICE = 14
    HOST = 15
    INTERRUPTED = 130


DO_NOT_RESTART = frozenset(
    {
        ExitCode.CONFIG,
        ExitCode.BROKER_REFUSED,
        ExitCode.WEIGHTS,
        ExitCode.NOT_FOUND,
        ExitCode.CONFLICT,
        ExitCode.MISSING_EXTRA,
        ExitCode.SCHEMA,
    }
)


class AzqError(Exception):
    """Root of all errors that azq raises on purpose."""

    exit_code: ExitCode = ExitCode.CRASH
    http_status: int = 500

    def __init_subclass__(cls, exit_code: ExitCode | None = None, http_status: int | None = None) -> None:
        super().__init_subclass__()
        cls.exit_code = cls.exit_code if exit_code is None else exit_code
        cls.http_status = cls.http_status if http_status is None else http_status


class ConfigError(AzqError, exit_code=ExitCode.CONFIG, http_status=422):
    """A setting, flag or file an operator wrote is wrong."""


class UnknownGameError(ConfigError):
    """No game of that name is registered."""


class GameContractError(ConfigError):
    """A game written in Python breaks a rule of the contract; the message names it."""


class UnknownTagError(ConfigError, http_status=409):
    """A job asks for a hardware tag that no live worker has."""


class IllegalActionError(AzqError, exit_code=ExitCode.CONFIG):
    """An action that the rules forbid in this position; the position is unchanged."""


class BrokerError(AzqError, http_status=503):
    """The message broker failed."""


class BrokerUnavailable(BrokerError, exit_code=ExitCode.BROKER_UNAVAILABLE):
    """The broker is away, or does not do now what it is there for; to try again later may help."""


class BrokerAbsent(BrokerUnavailable):
    """No server listens at the broker's address."""


class BrokerRefused(BrokerError, exit_code=ExitCode.BROKER_REFUSED):
    """The broker answers and refuses the password or the command."""


class AccessRefused(BrokerRefused):
    """The broker does not know this user, its password or its right to the command; to ask again changes nothing."""


class WireError(AzqError, exit_code=ExitCode.WIRE, http_status=502):
    """Bytes that do not decode: too large, wrong shape or wrong schema number."""


class SchemaMismatch(WireError, exit_code=ExitCode.SCHEMA):
    """The control plane holds messages of another schema; no restart mends that."""


class WeightsError(AzqError, exit_code=ExitCode.WEIGHTS, http_status=502):
    """Weights that are missing, damaged or do not fit the network."""


class StoreError(AzqError, exit_code=ExitCode.STORE, http_status=502):
    """A blob that cannot be read or written."""


class SegmentError(AzqError, exit_code=ExitCode.STORE, http_status=502):
    """The segment log is damaged in a place that cutting its tail does not mend."""


class LeaseLost(AzqError):
    """This worker's claim on a job was taken over; nothing it holds may be committed."""


class JobFailed(AzqError):
    """An attempt at a job failed, and the ledger knows it, or its lease ends by itself: Celery's task fails with this reason."""


class EvaluationTimeout(AzqError, exit_code=ExitCode.EVALUATION, http_status=503):
    """No inference worker answered a request in time, re-sends included."""


class EvaluatorFailure(AzqError, exit_code=ExitCode.EVALUATION, http_status=502):
    """An inference worker answered a request with a named failure."""


class EvaluationRefused(EvaluatorFailure):
    """No inference worker will answer this request, however often it is asked; the message says why."""


class DeviceError(AzqError, exit_code=ExitCode.DEVICE):
    """The device of this process fails, or computes something else than the network; nothing more is answered from it."""


class EngineError(AzqError, exit_code=ExitCode.EVALUATION):
    """An opponent's process did not start, died, stayed silent or answered nonsense; it has been ended."""


class HostError(AzqError, exit_code=ExitCode.HOST, http_status=504):
    """A machine of a cluster is not reached, or does not do its part."""


class NotFound(AzqError, exit_code=ExitCode.NOT_FOUND, http_status=404):
    """No such run, job or weights; `run`: the name of a run that the control plane does not know."""

    def __init__(self, text: str, run: str = "") -> None:
        super().__init__(text)
        self.run = run


class StateConflict(AzqError, exit_code=ExitCode.CONFLICT, http_status=409):
    """The thing exists, and its state forbids what was asked."""


class MissingExtra(AzqError, exit_code=ExitCode.MISSING_EXTRA, http_status=501):
    """An optional package is not installed."""


class RequestError(AzqError, exit_code=ExitCode.REQUEST):
    """A request that the REST interface refuses."""


class InvalidRequest(RequestError, http_status=422):
    """A body, header, cursor or event id that the REST interface cannot use."""


class KeyReused(RequestError, http_status=422):
    """An Idempotency-Key that was sent before with another body; nothing was changed."""


class AccessDenied(RequestError, http_status=403):
    """No token, a wrong one, or one whose scope does not allow this."""


class TooManyRequests(RequestError, http_status=429):
    """More requests, or open streams, than the daemon allows."""


class DaemonUnavailable(RequestError):
    """No answer at the daemon's address, or it is not ready."""


def reason_of(error: BaseException, most: int = 300) -> str:
    """An error in one line of at most so many characters, all of which can be written; foreign ones with their type."""
    try:
        words = str(error)
    except Exception:  # of a class that others wrote
        words = "says nothing"
    text = words if isinstance(error, AzqError) else f"{type(error).__name__}: {words}"
    return " ".join(text.encode("utf-8", "replace").decode().split())[:most]


def meant(word: str, names: Iterable[str]) -> str:
    """`; did you mean X?` where one of the names is nearly that word; empty otherwise."""
    near = get_close_matches(word, names, 1)
    return f"; did you mean {near[0]}?" if near else ""
