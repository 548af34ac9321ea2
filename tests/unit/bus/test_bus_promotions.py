"""Which version serves, as the events of a run say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_broker import MemoryBus

from azq.bus.promotions import Promotions, before, best, candidate, judged, needed, pinned, served, serving
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import LATEST, Deed, PromotionEvent

SHORT: dict[str, Deed] = {"+": "promoted", "<": "rolled_back", "p": "pinned", "u": "unpinned", "?": "candidate", "-": "rejected"}


def events(course: str) -> list[PromotionEvent]:
    """As `+1 ?2 -2`."""
    return [PromotionEvent(int(word[1:]), SHORT[word[0]], "", "", number) for number, word in enumerate(course.split(), start=1)]


@pytest.mark.parametrize(
    ("course", "serves", "tried"),
    [
        ("", LATEST, 0),
        ("+1", 1, 0),
        ("+1 ?3", 1, 3),
        ("+1 ?3 -3 ?4", 1, 4),
        ("+1 ?3 +3", 3, 0),
        ("+1 +3 <1", 1, 0),
        ("+1 ?5 p2", 2, 5),
        ("+1 ?5 p2 u2", 1, 5),
        ("+1 p2 +5", 2, 0),  # promoted at the moment in which it was pinned: the pin stands
        ("+1 p2 +5 u2", 5, 0),
        ("p7", 7, 0),
        ("p7 u7", LATEST, 0),
        ("p7 p3", 3, 0),
        ("+1 ?5 p5 u5", 1, 5),  # a pin decides nothing about a candidate
        ("+1 ?5 +9", 9, 0),  # by hand a newer one became the best: nobody asks any more
    ],
)
def test_what_serves_and_what_is_tried(course: str, serves: int, tried: int) -> None:
    assert (serving(events(course)), candidate(events(course))) == (serves, tried)


def test_going_back_again_goes_further_back() -> None:
    assert [before([1, 5, 9], 9), before([1, 5, 9, 5], 5), before([1, 5, 9, 5, 1], 1)] == [5, 1, 0]
    assert before([], 3) == before([1, 2], 3) == 0


def test_weights_that_may_serve_again_are_needed() -> None:
    assert needed(events("+1 +4 +6 ?8 p2")) == {2, 4, 6, 8}
    assert needed([]) == set()


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(sorted(SHORT)))))
def test_what_serves_is_needed_and_was_named(course: list[tuple[int, str]]) -> None:
    told = events(" ".join(f"{sign}{version}" for version, sign in course))
    assert {serving(told), best(told), pinned(told), candidate(told)} <= needed(told) | {0}
    assert serving(told) == (pinned(told) or (served(told) or [0])[-1])
    assert judged(told) >= max(best(told), candidate(told))


def test_a_reader_knows_since_when() -> None:
    bus = MemoryBus()
    reader = Promotions(bus, "r")
    for event in events("+1 ?3 ?4"):
        bus.publish(keys.promotions("r"), encode(event))
    bus.publish(keys.promotions("r"), b"no message")
    assert reader.refresh()
    assert not reader.refresh()
    assert (reader.version, reader.at_ms, len(reader.events)) == (1, 1, 3)
