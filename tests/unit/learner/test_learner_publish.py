from __future__ import annotations

import hashlib

from memory_broker import MemoryBus

from azq.learner.publish import KEPT_IN_BROKER, Publisher
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import PromotionEvent


class Blobs:
    """A store in memory whose addresses begin with a scheme."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        self.held: dict[str, bytes] = {}

    def put(self, data: bytes) -> tuple[str, str]:
        sha256 = hashlib.sha256(data).hexdigest()
        self.held[f"{self._scheme}{sha256}"] = data
        return sha256, f"{self._scheme}{sha256}"

    def get(self, uri: str, sha256: str) -> bytes:
        return self.held[uri]

    def delete(self, uri: str) -> None:
        del self.held[uri]


def publish(scheme: str, versions: int) -> Blobs:
    blobs = Blobs(scheme)
    publisher = Publisher(MemoryBus(), blobs, "run")
    for version in range(1, versions + 1):
        publisher.publish(str(version).encode(), version, step=version)
    return blobs


def test_the_broker_keeps_the_newest_weights_only() -> None:
    blobs = publish("redis:", KEPT_IN_BROKER + 5)
    assert sorted(map(int, blobs.held.values())) == list(range(6, KEPT_IN_BROKER + 6))


def test_other_places_keep_all() -> None:
    assert len(publish("file:", KEPT_IN_BROKER + 5).held) == KEPT_IN_BROKER + 5


def test_weights_that_are_still_in_use_under_a_newer_version_stay() -> None:
    blobs = Blobs("redis:")
    publisher = Publisher(MemoryBus(), blobs, "run")
    for version in range(1, KEPT_IN_BROKER + 5):
        publisher.publish(b"the same", version, step=version)
    assert list(blobs.held.values()) == [b"the same"]


def test_what_promotions_need_stays_until_they_do_not() -> None:
    blobs, bus = Blobs("redis:"), MemoryBus()
    publisher = Publisher(bus, blobs, "run")
    bus.publish(keys.promotions("run"), encode(PromotionEvent(3, "pinned", "", "", 0)))
    for version in range(1, KEPT_IN_BROKER + 10):
        publisher.publish(str(version).encode(), version, step=version)
    assert sorted(map(int, blobs.held.values()))[:2] == [3, 10]
    bus.publish(keys.promotions("run"), encode(PromotionEvent(3, "unpinned", "", "", 0)))
    publisher.publish(b"100", 100, step=100)
    assert sorted(map(int, blobs.held.values()))[:2] == [11, 12]
