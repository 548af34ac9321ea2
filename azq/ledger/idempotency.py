"""Requests that must have their effect once: how they are named, and what the double of the ledger remembers of them."""

from __future__ import annotations

import hashlib

from azq.errors import KeyReused
from azq.ledger.types import ONCE_LIFE_S, JobView, Once, RunView


def once_of(place: str, key: str, body: bytes) -> Once:
    """A request to `place` under an idempotency key."""
    return Once(hashlib.sha256(f"{place}\n{key}".encode()).hexdigest(), hashlib.sha256(body).hexdigest())


def reused() -> KeyReused:
    """The error for a key that was sent with another body."""
    return KeyReused("this Idempotency-Key was sent before with another body; nothing was changed; take a new key for a new request")


class FirstAnswers:
    """Which key is bound to which request, and what that created, for a day. Not safe to share: the ledger holds its lock."""

    def __init__(self) -> None:
        self._bound: dict[str, tuple[Once, str, int]] = {}  # key -> request, run, when it is forgotten
        self._answers: dict[str, JobView | RunView] = {}

    def recall(self, once: Once | None, run: str, now_ms: int) -> JobView | RunView | None:
        """What was created; None where nothing was. Raises `KeyReused`."""
        if once is None or once.key not in self._bound:
            return None
        first, named, until_ms = self._bound[once.key]
        if now_ms >= until_ms:
            del self._bound[once.key]
            self._answers.pop(once.key, None)
            return None
        if (first, named) != (once, run):
            raise reused()
        return self._answers.get(once.key)

    def bind(self, once: Once | None, run: str, now_ms: int) -> JobView | RunView | None:
        """What was created under this key, which from now on belongs to this request. Raises `KeyReused`."""
        answer = self.recall(once, run, now_ms)
        if once is not None:
            self._bound.setdefault(once.key, (once, run, now_ms + 1000 * ONCE_LIFE_S))
        return answer

    def remember(self, once: Once | None, answer: JobView | RunView) -> None:
        """Keeps what was created."""
        if once is not None:
            self._answers[once.key] = answer
