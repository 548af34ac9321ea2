"""The ledger's rules on the server: Lua scripts, so that every change is atomic; how they are called, and what they answer.

`lua/prelude.lua` tells what all scripts take and answer. A group of commands is one script: a change is one EVALSHA of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from importlib import resources
from itertools import chain
from typing import Any, TypeVar

import msgspec
import redis

from azq import logs
from azq.errors import NotFound, WireError
from azq.ledger import types
from azq.ledger.types import (
    KEPT_ENDED_JOBS,
    ONCE_LIFE_S,
    Effort,
    JobState,
    JobView,
    LedgerCounts,
    RequestKey,
    RunSnapshot,
    RunState,
    RunView,
    no_run,
)
from azq.wire import keys
from azq.wire.codec import decode, encode, printable, skip_unreadable
from azq.wire.connect import translate
from azq.wire.kinds import MAKES_GAMES, Kind
from azq.wire.messages import UNCHECKED, Job, RunRecord

Argument = str | bytes | float
Holder = tuple[int | str, str, int | str]  # fencing token (a job's attempt, a learner's token), owner, life of the lease in ms
NO_HOLDER: Holder = ("", "", "")

_PAUSES = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...])

T = TypeVar("T")

log = logs.get(__name__)

#: what a job's hash says of it, in the order in which scripts answer and `JobView` has it
JOB_FIELDS = (
    *("spec", "state", "attempt", "owner"),
    *("lease_until_ms", "published_ms", "created_ms", "claimed_ms", "ended_ms", "error"),
)
#: the fields of a `Job` that stand beside its frame: scripts read the first two, an azq of before `spec` reads, and wrote, all of them
SPELT_FIELDS = ("kind", "tag", "priority", "games", "slice_s", "payload")
LEARNING = "learning"  # what a run is whose learner holds its place

Constant = str | int | bool | tuple[str, ...] | Mapping[str, bool] | Mapping[str, str] | Mapping[Kind, bool] | Mapping[int, int]

_SHARED = ("prelude", "strikes", "leases")
_LAST = "return commands[ARGV[1]](unpack(ARGV, FIRST, FIRST + 6)) -- those that take more read it from ARGV\n"


def _below_run(key: keys.RunKey) -> str:
    return key("").removeprefix(keys.run_prefix(""))


_KEYS = (
    *("run", "ledger", "open_games", "pool", "abandoned", "strikes", "jobs", "jobs_done", "job_prefix", "held_prefix"),
    *("samples", "weights", "results", "stall", "events", "learner_lease", "mended", "aside"),
)
_MENDED = ("ledger", "open", "pool", "abandoned", "strikes", "jobs", "jobs_done", "samples", "results", "events", "stall", "learner_lease")
_CONSTANTS: Mapping[str, Constant] = {
    "COMPANY": types.COMPANY,
    "JOB_COUNTS": (*(name for name in JOB_FIELDS if name == "attempt" or name.endswith("_ms")), "failures"),
    "JOB_FIELDS": JOB_FIELDS,
    "KEPT_ENDED_JOBS": types.KEPT_ENDED_JOBS,
    "KEPT_EVENTS": types.KEPT_EVENTS,
    "KEPT_PAUSES": types.KEPT_PAUSES,
    "LEARNING": LEARNING,
    "LOST_WITH_IT": types.LOST_WITH_IT,
    "MAKES_GAMES": dict.fromkeys(sorted(MAKES_GAMES), True),
    "MENDED_LIFE_S": 3600,
    "MOST_COMPANY": max(types.COMPANY.values()),
    "OF_RUN": tuple(_below_run(key) for key in keys.OF_RUN),
    "ONCE_LIFE_S": ONCE_LIFE_S,
    "RECENT": types.RECENT,
    "SET_ASIDE": types.SET_ASIDE,
    "SET_ASIDE_REASON": types.SET_ASIDE_REASON,
    "SPELT_FIELDS": SPELT_FIELDS,
    "SUSPECT": types.SUSPECT,
    "TRANSITIONS": {f"{before} {after}": True for before, allowed in types.TRANSITIONS.items() for after in sorted(allowed)},
    "TYPES": {name: key.type for key in keys.TABLE if (name := key.pattern.removeprefix("azq:{run}:")) in _MENDED},
    "UNCHECKED": UNCHECKED,
    "WORK": tuple(field.name for field in fields(Effort)),
    "WRITTEN_OFF": types.WRITTEN_OFF,
}


# Read with this module, in the main thread: a thread that reads them later imports what reads them, and a process that is forked
# meanwhile has that import's lock for ever.
BODIES = {
    file.name.removesuffix(".lua"): file.read_text("utf-8")
    for file in (resources.files("azq.ledger") / "lua").iterdir()
    if file.name.endswith(".lua")
}


@cache
def source(group: str) -> str:
    """The script of a group of commands as the server gets it, with those keys and constants that it names."""
    body = "\n".join(BODIES[name] for name in (*_SHARED, group))
    values = {name.upper(): f"KEYS[1] .. {_literal(_below_run(getattr(keys, name)))}" for name in _KEYS}
    values |= {name: _literal(value) for name, value in _CONSTANTS.items()}
    named = set(re.findall(r"\b[A-Z_]+\b", body))
    return "".join(f"local {name} = {value}\n" for name, value in values.items() if name in named) + body + _LAST


def _literal(value: Constant) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return f"'{value}'"
        case tuple():
            return f"{{{', '.join(map(_literal, value))}}}"
    return f"{{{', '.join(f'[{_literal(name)}] = {_literal(item)}' for name, item in value.items())}}}"


class ScriptClient:
    """Calls scripts on a control plane; safe to share between threads."""

    def __init__(self, client: redis.Redis, *, clock_ms: Callable[[], int] | None = None) -> None:
        self.client = client
        self._clock_ms = clock_ms
        self._scripts: dict[str, Any] = {}

    def pin(self, run: str, once: RequestKey | None) -> None:
        """Binds a key to its request for a day. Raises `KeyReused` where it is bound to another.

        A process that dies between this and the change has changed nothing; the same request may be sent again.
        """
        if once is None:
            return
        with translate(self.client):
            while not self.client.set(keys.pinned(once.key), _pin_of(run, once), nx=True, ex=ONCE_LIFE_S):
                if self._is_pinned(run, once):
                    return

    def _is_pinned(self, run: str, once: RequestKey) -> bool:
        pin = self.client.get(keys.pinned(once.key))
        if pin not in (None, _pin_of(run, once)):
            raise RequestKey.reused()
        return pin is not None

    def read_once(self, run: str, once: RequestKey | None) -> dict[str, bytes] | None:
        if once is None:
            return None
        with translate(self.client):
            if not self._is_pinned(run, once):
                return None
        word, *answer = self.call("runs.read_once", run, once.fingerprint, once=once)
        return fields_of(answer[0]) if word == "replayed" else None

    def call(
        self,
        command: str,
        run: str,
        *arguments: Argument,
        number: int = 0,
        holder: Holder = NO_HOLDER,
        once: RequestKey | None = None,
    ) -> list[Any]:
        """What a command (`<group>.<name>` of the scripts) answers; the word that it begins with as text.

        Raises `NotFound` where the job it is about, or the run, is not there, `KeyReused` where the key belongs to another request.
        """
        with translate(self.client):
            word, *answer = self._send(self.client, command, run_keys(run, once), number or "", *holder, *arguments)
        if word == b"missing":
            no_job = f"no job {run}:{number}; only the newest {KEPT_ENDED_JOBS} ended jobs of a run are kept"
            raise NotFound(no_job) if number else no_run(run, self.names())
        if word == b"reused":
            raise RequestKey.reused()
        return [bytes(word).decode(), *answer]

    def read_all(self, command: str, read: Callable[[str, list[Any]], T], names: Sequence[str] | None = None) -> list[T]:
        """What a command answers of each run, or of each of some, all asked in one round trip."""
        names, answers_read = self.names() if names is None else names, []
        with translate(self.client), self.client.pipeline(transaction=False) as pipe:
            for name in names:
                self._send(pipe, command, run_keys(name), "", *NO_HOLDER)
            answers = pipe.execute()
        for name, (word, *answer) in zip(names, answers, strict=True):
            try:
                if word == b"ok":
                    answers_read.append(read(name, answer))
            except WireError as error:
                log.warning("run_unreadable", run=name, reason=str(error))
        return answers_read

    def _send(self, client: redis.Redis, command: str, names: list[str], *arguments: Argument) -> Any:
        group, _, name = command.partition(".")
        script = self._scripts.get(group)
        if script is None:
            script = self._scripts.setdefault(group, self.client.register_script(source(group)))
        now: Argument = "" if self._clock_ms is None else self._clock_ms()
        return script(keys=names, args=[name, now, *arguments], client=client)

    def names(self) -> list[str]:
        with translate(self.client):
            names: Any = self.client.smembers(keys.RUNS)
        return sorted(name.decode() for name in names)


def run_keys(run: str, once: RequestKey | None = None) -> list[str]:
    """What scripts about a run declare."""
    return [keys.run_prefix(run), *([keys.once(run, once.key)] if once else [])]


def _pin_of(run: str, once: RequestKey) -> bytes:
    return f"{run} {once.fingerprint}".encode()


def fields_of(flat: Sequence[bytes]) -> dict[str, bytes]:
    """A hash from the flat list that a script answers."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def text_of(part: bytes) -> str:
    """What the control plane holds as text, fit for a screen: machines write it."""
    return printable(bytes(part).decode(errors="replace"))


@contextmanager
def _written_by_azq(what: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # a field that is not there is None
        raise WireError(f"what the control plane holds of {what} is not what this azq writes: {error!r}") from None


def spelt(job: Job) -> list[Argument]:
    """A new job's own fields for its hash: names and values in turn."""
    return ["spec", encode(job), *chain.from_iterable((name, getattr(job, name)) for name in SPELT_FIELDS)]


def job_view(run: str, answer: Sequence[Any]) -> JobView:
    """A job from its number, the values of `JOB_FIELDS` and, without a spec, those of `SPELT_FIELDS`. Raises `WireError` for others."""
    with _written_by_azq(f"a job of run {run}"):
        number, (spec, state, attempt, owner, *times, error), *fields = answer
        job = decode(spec, Job) if spec else _spelt_job(run, *fields)
        named = msgspec.structs.replace(job, job_id=f"{run}:{number.decode()}")
        lease_until_ms, published_ms, created_ms, claimed_ms, ended_ms = map(int, times)
        when_and_why = (lease_until_ms, published_ms, created_ms, claimed_ms, ended_ms, text_of(error))
        return JobView(named, JobState(state.decode()), int(attempt), text_of(owner), *when_and_why)


def _spelt_job(run: str, fields: Sequence[Any]) -> Job:
    kind, tag, priority, games, slice_s, payload = fields
    return Job("", run, Kind(kind.decode()), tag.decode(), int(priority), int(games), float(slice_s), payload)


def new_job(run: str, values: Mapping[str, bytes]) -> JobView:
    """A job from its hash, with its number among the fields."""
    return job_view(run, (values["number"], *([values.get(name) for name in names] for names in (JOB_FIELDS, SPELT_FIELDS))))


def run_view(now_ms: int, values: Mapping[str, bytes]) -> RunView:
    """A run from its hash, as it is at `now_ms`. Raises `WireError` where this is no run's."""
    with _written_by_azq("a run"):
        state, reason = RunState(values["state"].decode()), values["reason"].decode()
        active_ms, changed_ms = int(values["active_ms"]), int(values["changed_ms"])
        pauses = _PAUSES.decode(values["pauses"]) if "pauses" in values else ()
        if state is RunState.RUNNING:
            active_ms += max(0, now_ms - changed_ms)
        record, changed_job = decode(values["record"], RunRecord), int(values.get("changed_job", 0))
        return RunView(record, state, reason, active_ms, changed_ms, pauses, changed_job)


def run_snapshot(run: str, answer: Sequence[Any]) -> RunSnapshot:
    """A run from what the command `runs.snapshot` answers. Raises `WireError` for what cannot be read."""
    now, fields, counts, jobs, ended = answer
    with _written_by_azq(f"the counts of run {run}"):
        whole = LedgerCounts(*map(int, counts))
    return RunSnapshot(run_view(int(now), fields_of(fields)), whole, _readable(run, jobs), _readable(run, ended))


def _readable(run: str, answers: Sequence[Any]) -> tuple[JobView, ...]:
    """Those jobs that can be read; another one is named and stops no others."""
    views = []
    for answer in answers:
        with skip_unreadable(f"job {run}:{answer[0].decode(errors='replace')}"):
            views.append(job_view(run, answer))
    return tuple(views)
