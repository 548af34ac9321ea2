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
        word, *answer = self.call(scripts.runs.READ_ONCE, run, "", once.fingerprint, once=once)
        return first_answer(word, answer)

    def call(self, body: str, run: str, number: str, *arguments: str | bytes | float, once: Once | None = None) -> list[Any]:
        with translate(self.client):
            word, *answer = self._script(body)(keys=run_keys(run, once), args=[self._now(), number, *arguments])
        return [bytes(word).decode(), *answer]

    def read_all(self, body: str, read: Callable[[str, list[Any]], T], names: Sequence[str] | None = None) -> list[T]:
        """What a script answers of each run, or of each of some, all asked in one round trip."""
        names, found = self.names() if names is None else names, []
        with translate(self.client), self.client.pipeline(transaction=False) as pipe:
            for name in names:
                self._script(body)(keys=run_keys(name), args=[self._now(), ""], client=pipe)
            answers = pipe.execute()
        for name, (word, *answer) in zip(names, answers, strict=True):
            try:
                if word == b"ok":
                    found.append(read(name, answer))
            except WireError as error:
                log.warning("run_unreadable", run=name, reason=str(error))
        return found

    def _script(self, body: str) -> Any:
        script = self._scripts.get(body)
        if script is None:
            script = self._scripts.setdefault(body, self.client.register_script(scripts.source(body)))
        return script

    def _now(self) -> str | int:
        return "" if self._clock_ms is None else self._clock_ms()

    def commit(self, body: str, lease: Lease, *arguments: str | bytes | float) -> list[Any]:
        run, number = split_job_id(lease.job.job_id)
        answer = self.call(body, run, number, lease.attempt, lease.owner, lease_ms(lease.lease_s), *arguments)
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

    def directive(self, body: str, lease: Lease, *arguments: str | bytes | float) -> Directive:
        return Directive(self.commit(body, lease, *arguments)[1].decode())


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
