"""Who may stay connected: the rule, and a listener with sockets that come and go."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_network
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.process import webserver as module
from azq.process.webserver import (
    BACKLOG,
    FEWEST_CONNECTIONS,
    MOST_CONNECTIONS,
    PAUSE_S,
    RESERVED,
    BoundedListener,
    Phase,
    client_of,
    connection_limit,
    connection_to_drop,
    overdue,
)

MOST_HERE = FEWEST_CONNECTIONS


@dataclass
class One:
    address: str
    phase: Phase = Phase.HEADERS
    since_s: float = 0.0


guests = st.builds(One, st.sampled_from("abcd"), st.sampled_from(Phase), st.floats(0, 100))


@given(st.lists(guests, max_size=60), st.integers(2, 12))
def test_however_they_come_the_room_is_enough_and_nobody_is_cut_short(arriving: list[One], most: int) -> None:
    inside: list[One] = []
    for newcomer in arriving:
        gone = connection_to_drop(inside, newcomer, most, most // 2)
        if gone is not newcomer:
            inside.append(newcomer)
        if gone is not None and gone is not newcomer:
            assert gone.phase is not Phase.ANSWER
            inside.remove(gone)
        assert len(inside) <= most
        assert all(sum(one.address == address for one in inside) <= max(1, most // 2) for address in "abcd")


def test_who_waits_longest_goes_of_its_own_address_first() -> None:
    others = [One("b", since_s=0), One("b", since_s=1)]
    mine = [One("a", Phase.ANSWER, 0), One("a", Phase.BODY, 5), One("a", since_s=7)]
    assert connection_to_drop([*others, *mine], One("a"), 2 * len(mine), len(mine)) is mine[1]
    assert connection_to_drop([*others, *mine], One("c"), len(others) + len(mine), 3) is others[0]
    assert connection_to_drop([*others, *mine], One("c"), len(others) + len(mine) + 1, 3) is None
    newcomer = One("a")
    assert connection_to_drop([One("a", Phase.ANSWER)], newcomer, 2, 1) is newcomer


def test_who_is_answered_may_take_as_long_as_it_takes() -> None:
    late = [One("a", phase, 0) for phase in Phase]
    assert overdue(late, Phase.HEADERS.value) == []
    assert overdue(late, Phase.HEADERS.value + 0.1) == [late[0]]
    assert overdue(late, 1e9) == late[:2]


@pytest.mark.parametrize(
    ("descriptors", "room"), [(-1, MOST_CONNECTIONS), (65536, MOST_CONNECTIONS), (1024, 768), (300, 44), (64, FEWEST_CONNECTIONS)]
)
def test_brokers_keep_their_descriptors(descriptors: int, room: int) -> None:
    assert connection_limit(descriptors) == room
    assert BACKLOG < RESERVED  # as many are accepted before any that was turned away is closed


@pytest.fixture
def listener() -> Iterator[BoundedListener]:
    with BoundedListener(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, most=MOST_HERE) as one:
        one.bind(("127.0.0.1", 0))
        one.listen(MOST_HERE)
        yield one


def test_a_door_counts_those_inside_and_shows_the_oldest_out(listener: BoundedListener) -> None:
    callers = [socket.create_connection(listener.getsockname()) for _ in range(MOST_HERE // 2 + 2)]
    accepted = [listener.accept()[0] for _ in range(MOST_HERE // 2)]
    assert list(listener.connections.values()) == accepted
    accepted.append(listener.accept()[0])
    assert list(listener.connections.values()) == accepted[1:]
    assert callers[0].recv(1) == b""
    assert accepted[0].fileno() >= 0  # its reader has yet to close it
    for visitor in accepted[1:]:
        visitor.enter(Phase.ANSWER)  # type: ignore[attr-defined]
    with pytest.raises(ConnectionAbortedError):
        listener.accept()
    assert callers[-1].recv(1) == b""
    for visitor in accepted:
        visitor.close()
    assert listener.connections == {}
    for caller in callers:
        caller.close()


def test_a_proxys_connections_may_take_all_places() -> None:
    with BoundedListener(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, MOST_HERE, [ip_network("127.0.0.0/8")]) as one:
        one.bind(("127.0.0.1", 0))
        one.listen(MOST_HERE)
        callers = [socket.create_connection(one.getsockname()) for _ in range(MOST_HERE)]
        accepted = [one.accept()[0] for _ in callers]
        assert list(one.connections.values()) == accepted
        for each in (*callers, *accepted):
            each.close()


def test_used_up_descriptors_are_a_pause_and_no_flood(listener: BoundedListener, monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Any = SimpleNamespace(s=100.0)
    clock.monotonic = lambda: clock.s
    monkeypatch.setattr(module, "time", clock)
    used_up = OSError(errno.EMFILE, "Too many open files")
    with monkeypatch.context() as without:
        without.setattr(socket.socket, "accept", lambda _: (_ for _ in ()).throw(used_up))
        with pytest.raises(OSError, match="Too many open files"):
            listener.accept()
    caller = socket.create_connection(listener.getsockname())
    with pytest.raises(BlockingIOError):
        listener.accept()
    clock.s += PAUSE_S
    visitor = listener.accept()[0]
    visitor.close()
    caller.close()


@pytest.mark.parametrize(
    ("address", "holder"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9%eth0", "2001:db8:1:2::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("unknown", "unknown"),
    ],
)
def test_who_has_a_network_is_one(address: str, holder: str) -> None:
    assert client_of(address) == holder
