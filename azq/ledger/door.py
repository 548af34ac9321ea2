"""The one door to the server: how a script is called, and what its answers have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import redis

from azq import logs
from azq.errors import LeaseLost, NotFound, WireError
from azq.ledger import scripts
from azq.ledger.answers import fields_of, split_job_id
from azq.ledger.idempotency import reused
from azq.ledger.rules import lease_ms
from azq.ledger.types import ONCE_LIFE_S, Directive, Lease, Once
from azq.wire import keys
from azq.wire.connect import translate

Argument = str | bytes | float
Holder = tuple[int | str, str, int | str]  # fencing token (a job's attempt, a learner's token), owner, life of the lease in ms
NOBODY: Holder = ("", "", "")

T = TypeVar("T")

log = logs.get(__name__)


class ScriptDoor:
    """Calls scripts on a control plane; safe to share between threads."""

    def __init__(self, client: redis.Redis, *, clock_ms: Callable[[], int] | None = None) -> None:
        self.client = client
        self._clock_ms = clock_ms
        self._scripts: dict[str, Any] = {}

    def pin(self, run: str, once: Once | None) -> None:
        """Binds a key to its request for a day. Raises `KeyReused` where it is bound to another.

        A process that dies between this and the change has changed nothing; the same request may be sent again.
        """
        if once is None:
            return
        with translate(self.client):
            while not self.client.set(keys.pinned(once.key), _pin_of(run, once), nx=True, ex=ONCE_LIFE_S):
                if self._is_pinned(run, once):
                    return

    def _is_pinned(self, run: str, once: Once) -> bool:
        found = self.client.get(keys.pinned(once.key))
        if found not in (None, _pin_of(run, once)):
            raise reused()
        return found is not None

    def read_once(self, run: str, once: Once | None) -> dict[str, bytes] | None:
        if once is None:
            return None
        with translate(self.client):
            if not self._is_pinned(run, once):
                return None
        word, *answer = self.call("runs.read_once", run, once.fingerprint, once=once)
        return first_answer(word, answer)

    def call(
        self, command: str, run: str, *arguments: Argument, number: str = "", holder: Holder = NOBODY, once: Once | None = None
    ) -> list[Any]:
        """What a command (`<group>.<name>` of the scripts) answers; the word that it begins with as text."""
        with translate(self.client):
            word, *answer = self._send(self.client, command, run_keys(run, once), number, *holder, *arguments)
        return [bytes(word).decode(), *answer]

    def read_all(self, command: str, read: Callable[[str, list[Any]], T], names: Sequence[str] | None = None) -> list[T]:
        """What a command answers of each run, or of each of some, all asked in one round trip."""
        names, found = self.names() if names is None else names, []
        with translate(self.client), self.client.pipeline(transaction=False) as pipe:
            for name in names:
                self._send(pipe, command, run_keys(name), "", *NOBODY)
            answers = pipe.execute()
        for name, (word, *answer) in zip(names, answers, strict=True):
            try:
                if word == b"ok":
                    found.append(read(name, answer))
            except WireError as error:
                log.warning("run_unreadable", run=name, reason=str(error))
        return found

    def _send(self, client: redis.Redis, command: str, names: list[str], *arguments: Argument) -> Any:
        group, _, name = command.partition(".")
        script = self._scripts.get(group)
        if script is None:
            script = self._scripts.setdefault(group, self.client.register_script(scripts.source(group)))
        now: Argument = "" if self._clock_ms is None else self._clock_ms()
        return script(keys=names, args=[name, now, *arguments], client=client)

    def commit(self, command: str, lease: Lease, *arguments: Argument) -> list[Any]:
        run, number = split_job_id(lease.job.job_id)
        holder = (lease.attempt, lease.owner, lease_ms(lease.lease_s))
        answer = self.call(command, run, *arguments, number=number, holder=holder)
        if answer[0] == "lost":
            game = f", or never held game {answer[1].decode()}" if len(answer) > 1 else ""
            raise LeaseLost(f"{lease.owner} lost job {lease.job.job_id}, attempt {lease.attempt}{game}; nothing was committed")
        return answer

    def names(self) -> list[str]:
        """The names of all runs, in order."""
        with translate(self.client):
            names: Any = self.client.smembers(keys.RUNS)
        return sorted(name.decode() for name in names)

    def no_run(self, name: str) -> NotFound:
        return NotFound(f"no run {name!r}; there are: {', '.join(self.names()) or 'none'}")

    def directive(self, command: str, lease: Lease, *arguments: Argument) -> Directive:
        return Directive(self.commit(command, lease, *arguments)[1].decode())


def run_keys(run: str, once: Once | None = None) -> list[str]:
    """What scripts about a run declare."""
    return [keys.run_prefix(run), *([keys.once(run, once.key)] if once else [])]


def first_answer(word: str, answer: Sequence[Any]) -> dict[str, bytes] | None:
    """What was created under a key before, where the script says so."""
    if word == "reused":
        raise reused()
    return fields_of(answer[0]) if word == "replayed" else None


def _pin_of(run: str, once: Once) -> bytes:
    return f"{run} {once.fingerprint}".encode()
