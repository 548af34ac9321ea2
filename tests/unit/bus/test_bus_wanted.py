"""Which runs are wanted, for how long, and how many at once."""

from __future__ import annotations

import pytest
from memory_broker import MemoryBus

from azq.bus.wanted import LIFE_S, MOST, MoveWishes, wanted_runs
from azq.errors import AccessRefused
from azq.wire import keys


class Place:
    """A bus and the daemon's wishes, by one clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.bus = MemoryBus(clock=lambda: self.now_s)
        self.wishes = MoveWishes(lambda: self.now_s)

    def add(self, *runs: str) -> frozenset[str]:
        for run in runs:
            self.wishes.add(self.bus, run)
        return wanted_runs(self.bus)


def test_a_wish_lasts_for_ten_minutes_after_the_last_request() -> None:
    place = Place()
    assert wanted_runs(place.bus) == frozenset()
    assert place.add("a") == {"a"}
    place.now_s += LIFE_S - 1
    assert place.add("b") == {"a", "b"}
    place.now_s += 2
    assert place.add("b") == {"b"}
    assert place.add("a") == {"a", "b"}
    place.now_s += LIFE_S
    assert wanted_runs(place.bus) == frozenset(), "by itself: the daemon may be gone"
    assert place.add("c") == {"c"}


def test_the_runs_that_were_wanted_last_are_served_where_there_are_too_many() -> None:
    place = Place()
    runs = [f"r{number}" for number in range(MOST)]
    assert place.add(*runs) == set(runs)
    assert place.add("r0", "new") == {*runs, "new"} - {"r1"}


def test_what_cannot_be_read_is_no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    place.bus.put(keys.WANTED, b"frame")
    assert wanted_runs(place.bus) == frozenset()

    def refuse(names: object) -> list[bytes | None]:
        raise AccessRefused("no permissions to access a key")

    monkeypatch.setattr(place.bus, "get_each", refuse)
    assert wanted_runs(place.bus) == frozenset()
