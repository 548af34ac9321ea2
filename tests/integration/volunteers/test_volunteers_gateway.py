"""A real gateway between a real broker and tabs that play with the core: every game counts once, whatever dies or lies."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from gateway_doubles import Hall, heard
from simulated_tab import PATH
from waiting import PATIENCE_S, until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from worker_doubles import RUN

from azq.ledger.types import RunState
from azq.wire.tabs import (
    Bye,
    GamesComplete,
    Handed,
    Hello,
    ModelUpdate,
    PlayGames,
    Refused,
    TabGame,
    WorkerReady,
    encode_tab,
)


@pytest.fixture
def hall(broker: Any, tmp_path: Path) -> Iterator[Hall]:
    hall = Hall(broker, tmp_path)
    hall.open()
    yield hall
    hall.close()


def check_pages(hall: Hall) -> None:
    """Pages have what browsers need, and what is none is not there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{hall.port}/healthz") as answer:
        assert "'wasm-unsafe-eval'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    for path in ("/models/../etc/passwd", f"/models/{'0' * 64}.onnx", "/v1/runs", "/v1/public/games/1000000000", "/web/../pyproject.toml"):
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{hall.port}{path}")
        assert refused.value.code == 404
        refused.value.close()


def test_tabs_make_games_and_each_counts_once(hall: Hall) -> None:
    process = hall.start_gateway()
    tabs = [hall.live(hall.tab(), lambda tab: len(tab.accepted) >= 40) for _ in range(2)]
    until(lambda: all(len(tab.accepted) >= 40 for tab in tabs), "games")
    until(lambda: [beat for beat in hall.beats() if beat.role == "gateway" and beat.rates["games_per_s"] > 0], "heartbeat with rates")
    (beat,) = hall.beats()
    assert (beat.queues, beat.tags, beat.slots, beat.weight_versions) == (("selfplay.browser",), ("browser",), 2, {RUN: 0})
    public = json.loads(hall.get("/v1/public"))
    assert public["totals"]["ever"]["games"] == sum(row["games"] for row in public["leaders"]) >= 80
    assert (public["run"], public["game"], len(public["newest"])) == (RUN, "tic_tac_toe", 20)
    uid = public["newest"][0]["uid"]
    assert len(json.loads(hall.get(f"/v1/public/games/{uid}"))["plies"]) == public["newest"][0]["plies"]
    check_pages(hall)
    hall.settle()
    assert process.returncode == 0
    assert hall.balanced()
    assert not [reason for tab in tabs for _, reason in tab.refused]
    assert "torch" not in hall.log()


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_gateway_that_ends_costs_no_game_that_a_tab_has(hall: Hall, number: signal.Signals) -> None:
    first = hall.start_gateway()
    tabs = [hall.live(hall.tab(slots=8)) for _ in range(2)]
    until(lambda: all(len(tab.accepted) >= 20 for tab in tabs), "games")
    first.send_signal(number)
    first.wait(PATIENCE_S)
    before = [len(tab.accepted) for tab in tabs]
    until(lambda: all(tab.finished for tab in tabs), "games that nobody takes")
    kept = [set(tab.finished) for tab in tabs]
    hall.start_gateway()
    until(lambda: all(len(tab.accepted) >= count + 20 for tab, count in zip(tabs, before, strict=True)), "games after it")
    until(lambda: not any(uids & set(tab.finished) for tab, uids in zip(tabs, kept, strict=True)), "answers for the games of before")
    hall.settle()
    assert hall.balanced()
    counted = [uid for tab in tabs for uid in tab.accepted]
    assert len(counted) == len(set(counted))
    makers = {event.record.uid: event.worker for event in hall.samples()}
    for tab, uids in zip(tabs, kept, strict=True):  # of some the answer may have been lost, and not the game
        assert {makers.get(uid) for uid in uids} == {makers[tab.accepted[0]]}


def test_games_of_a_tab_that_dies_are_played_by_others(broker: Any, tmp_path: Path) -> None:
    hall = Hall(broker, tmp_path, {"silent_s": 0.5})
    hall.open()
    try:
        hall.start_gateway()
        with connect(f"ws://127.0.0.1:{hall.port}{PATH}", compression=None) as socket:
            handed = first_games(socket, 4)
        assert len(handed) == 4
        tab = hall.live(hall.tab())
        until(lambda: {game.uid for game in handed} <= set(tab.accepted), "games of the dead tab")
        hall.settle()
        assert hall.balanced()
    finally:
        hall.close()


def is_closed(socket: Any) -> bool:
    """Whether the gateway ends the connection within a moment."""
    with suppress(ConnectionClosed):
        while socket.recv(5.0):
            pass
    return True


def first_games(socket: Any, count: int, token: str = "") -> tuple[Handed, ...]:
    socket.send(encode_tab(Hello("1", token)))
    heard(socket, ModelUpdate)
    socket.send(encode_tab(WorkerReady("wasm", 1, "", games=count)))
    games: tuple[Handed, ...] = ()
    while len(games) < count:
        games += heard(socket, PlayGames).games
    return games


def gets_a_game(address: str) -> bool:
    """Whether a tab that comes now is let in."""
    with connect(address) as socket, suppress(ConnectionClosed):
        return len(first_games(socket, 1)) == 1
    return False


def test_results_for_others_and_results_that_break_the_rules_are_refused(hall: Hall) -> None:
    hall.start_gateway()
    address = f"ws://127.0.0.1:{hall.port}{PATH}"
    with connect(address, compression=None) as ann, connect(address, compression=None) as bob:
        wrong = (b"", b"\0\0\0\0", b"\0\0", b"\xff\xff", b"\0")
        mine, yours = first_games(ann, len(wrong)), first_games(bob, 1)[0]
        ann.send(encode_tab(GamesComplete((TabGame(yours.uid, yours.ticket, b"\0\0", b"", b"", b"", b""),))))
        assert heard(ann, Refused).uids == (yours.uid,)
        for handed, actions in zip(mine, wrong, strict=True):
            ann.send(encode_tab(GamesComplete((TabGame(handed.uid, handed.ticket, actions, b"", b"", b"", b""),))))
            assert heard(ann, Refused).uids == (handed.uid,)
    hall.settle()
    assert hall.finished() == 0
    assert hall.balanced()


def test_what_no_tab_says_is_refused_and_the_gateway_stays(hall: Hall) -> None:
    process = hall.start_gateway()
    address = f"ws://127.0.0.1:{hall.port}{PATH}"
    for frame in (b"", b"\xc1", "text", b"\0" * (1024 * 1024 + 1), encode_tab(Bye())):
        with connect(address, compression=None) as socket:
            socket.send(frame)
            assert heard(socket, Refused).reason
    with connect(address, compression=None) as socket:
        first_games(socket, 1)
        for _ in range(7):
            socket.send(b"\xc1")
            assert not heard(socket, Refused).final
        socket.send(b"\xc1")
        assert heard(socket, Refused).final
        assert is_closed(socket)
    with connect(address, compression=None) as socket:
        with suppress(ConnectionClosed):
            socket.send(b"\0" * (4 * 1024 * 1024))
        assert is_closed(socket)
    assert process.poll() is None
    assert hall.get("/healthz") == b"ok\n"


def test_there_is_room_for_so_many_tabs(broker: Any, tmp_path: Path) -> None:
    hall = Hall(broker, tmp_path, max_tabs=2)
    hall.open()
    try:
        hall.start_gateway()
        address = f"ws://127.0.0.1:{hall.port}{PATH}"
        with ExitStack() as tabs:
            for host in ("127.0.0.2", "127.0.0.3"):  # an address has room for one of two; who says nothing for long is shown out
                first_games(tabs.enter_context(connect(address, source_address=(host, 0))), 1)
            with connect(address, source_address=("127.0.0.4", 0)) as three:
                assert "as many tabs as it can take" in heard(three, Refused).reason
        until(lambda: gets_a_game(address), "room for another")
    finally:
        hall.close()


def test_a_pause_takes_the_games_back_and_a_resumed_run_hands_them_out_again(hall: Hall) -> None:
    hall.start_gateway()
    tab = hall.live(hall.tab())
    until(lambda: len(tab.accepted) >= 10, "games")
    hall.ledger.set_run_state(RUN, RunState.PAUSED, "")
    until(lambda: hall.ledger.counts(RUN).open == hall.bus_pool(), "games in the pool")
    count = len(tab.accepted)
    hall.ledger.set_run_state(RUN, RunState.RUNNING, "")
    until(lambda: len(tab.accepted) >= count + 10, "games after the pause")
    hall.settle()
    assert hall.balanced()
