"""Addresses never show secrets; every failure of a client becomes one of two errors."""

from __future__ import annotations

import errno
import threading
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from azq.errors import BrokerAbsent, BrokerRefused, BrokerUnavailable
from azq.waiting import Waits
from azq.wire import connect
from azq.wire.connect import address, address_of, open_client, socket_timeout_s, translate

passwords = st.text(min_size=8, max_size=20, alphabet=st.characters(codec="utf-8", exclude_characters="redisunxhotlca/:.0123456789"))


@given(passwords)
def test_addresses_hide_user_and_password(password):
    secret = quote(password, safe="")
    for url in (f"redis://user:{secret}@host:6379/0", f"unix://:{secret}@/run/azq.sock", f"{secret}@host", secret, f"redis://{secret}@"):
        shown = address(url)
        assert secret not in shown
        assert password not in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:pw@host:6379/0", "redis://host:6379/0"),
        ("unix://:pw@/run/azq.sock", "unix:///run/azq.sock"),
        ("redis://:pw@host:port/0", "(unreadable URL)"),
        ("host", "(URL without a scheme)"),
    ],
)
def test_addresses_name_the_place(url, shown):
    assert address(url) == shown


def test_a_client_says_where_it_connects():
    assert address_of(open_client("unix://:pw@/run/azq.sock")) == "unix:///run/azq.sock"
    assert address_of(open_client("redis://:pw@host:6380/2")) == "redis://host:6380/2"


@pytest.mark.parametrize(
    ("cause", "becomes", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), BrokerAbsent, "no broker at.*No such file.*start it"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), BrokerAbsent, "no broker at.*refused"),
        (ConnectionResetError(errno.ECONNRESET, "reset by peer"), BrokerUnavailable, "turned.*away.*reset"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), BrokerUnavailable, "turned.*away.*maxclients"),
        (PermissionError(errno.EACCES, "Permission denied"), BrokerUnavailable, "may not connect.*the user who owns it"),
        (OSError(errno.EMFILE, "Too many open files"), BrokerUnavailable, "no descriptor is left.*ulimit -n"),
        (OSError(errno.ENFILE, "Too many open files in system"), BrokerUnavailable, "no descriptor is left.*ulimit -n"),
        (None, BrokerUnavailable, "turned.*away.*max number of clients reached.*maxclients"),
    ],
)
def test_why_there_is_no_connection_is_told_with_its_own_remedy(cause, becomes, words):
    client = open_client("redis://host:6380/2")

    def fail():
        if cause is None:
            raise exceptions.ConnectionError("max number of clients reached")
        try:
            raise cause
        except OSError as error:
            raise exceptions.ConnectionError(str(error))  # noqa: B904  # as redis-py does

    with pytest.raises(BrokerUnavailable, match=words) as caught, translate(client):
        fail()
    assert type(caught.value) is becomes
    if cause is not None:
        with pytest.raises(becomes, match=words), translate(client):
            raise cause


def test_a_blocking_client_is_more_patient():
    assert socket_timeout_s(open_client("redis://host:1", timeout_s=3)) == 3
    assert socket_timeout_s(open_client("redis://host:1", timeout_s=3, blocking=True)) >= 10


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (exceptions.AuthenticationError("WRONGPASS"), BrokerRefused),
        (exceptions.AuthenticationWrongNumberOfArgsError("wrong"), BrokerRefused),
        (exceptions.NoPermissionError("NOPERM this user"), BrokerRefused),
        (exceptions.ResponseError("unknown command 'XAUTOCLAIM'"), BrokerRefused),
        (exceptions.ConnectionError("refused"), BrokerUnavailable),
        (exceptions.TimeoutError("timeout"), BrokerUnavailable),
        (exceptions.BusyLoadingError("loading"), BrokerUnavailable),
        (exceptions.OutOfMemoryError("OOM"), BrokerUnavailable),
        (exceptions.ReadOnlyError("READONLY"), BrokerUnavailable),
        (exceptions.MasterDownError("MASTERDOWN"), BrokerUnavailable),
        (exceptions.ResponseError("BUSY a script runs"), BrokerUnavailable),
        (exceptions.ResponseError("MISCONF cannot persist"), BrokerUnavailable),
        (exceptions.InvalidResponse("x"), BrokerUnavailable),
        (ConnectionResetError("reset"), BrokerUnavailable),
    ],
)
def test_failures_become_one_line_with_the_place(error, becomes):
    client = open_client("redis://:hidden-secret@host:6380/2")
    with pytest.raises(becomes, match="redis://host:6380/2") as caught, translate(client):
        raise error
    assert "hidden-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_asks_a_broker_waits_for_it_and_is_excused(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(connect, "WAITS", waits := Waits(lambda: now[0]))
    with translate(open_client("redis://host:1")):
        now[0] += 2.0
        assert waits.excuse(threading.get_ident())
    with pytest.raises(BrokerUnavailable), translate(open_client("redis://host:1")):
        raise exceptions.TimeoutError
    assert not waits.excuse(threading.get_ident())


def test_mistakes_of_ours_stay_what_they_are():
    with pytest.raises(exceptions.DataError), translate(open_client("redis://host:1")):
        raise exceptions.DataError("Invalid input of type: 'NoneType'")
