"""Matches by tabs at a real gateway: one result each, whoever plays which game, dies, lies or keeps what he has lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway_doubles import Hall, heard
from match_tabs import play_match, uniform
from simulated_tab import PATH
from waiting import PATIENCE_S, until
from websockets.sync.client import ClientConnection, connect
from worker_doubles import RUN

from azq.ledger.types import JobState
from azq.status.observe import Standings, read_standing
from azq.wire.messages import MatchResult
from azq.wire.tabs import (
    MATCHES,
    Accepted,
    EvalGames,
    EvalResult,
    Hello,
    ModelUpdate,
    PlayGames,
    Refused,
    WorkerReady,
    encode_tab,
    is_match,
)

GAMES = 12


@pytest.fixture
def hall(broker: Any, tmp_path: Path) -> Iterator[Hall]:
    hall = Hall(broker, tmp_path, {"silent_s": 1.0, "late_s": 30.0})
    hall.open(matches=True)
    yield hall
    hall.close()


def ended(hall: Hall) -> MatchResult:
    """The one result there is, or comes to be."""
    until(lambda: hall.results(), "result of the match")
    (result,) = hall.results()
    return result


@contextmanager
def came_in(hall: Hall, features: tuple[str, ...] = (MATCHES,)) -> Iterator[ClientConnection]:
    """A tab that does nothing by itself."""
    with connect(f"ws://127.0.0.1:{hall.port}{PATH}", compression=None) as socket:
        socket.send(encode_tab(Hello("1")))
        heard(socket, ModelUpdate)
        socket.send(encode_tab(WorkerReady("wasm", 1, "", features, games=1)))
        yield socket


def test_tabs_play_a_match_beside_self_play_and_the_standing_has_it(hall: Hall) -> None:
    hall.start_gateway()
    assert ("eval.browser",) not in {beat.queues for beat in hall.beats()}
    tabs = [hall.live(hall.tab()) for _ in range(2)]
    until(lambda: ("eval.browser",) in {beat.queues for beat in hall.beats()}, "tabs that play matches")
    job = hall.ask_match()
    result = ended(hall)
    assert (result.first, result.second, result.games, result.spec.games, result.error) == ("weights:1", "weights:2", GAMES, GAMES, "")
    until(lambda: hall.ledger.job(job).state is JobState.DONE, "end of the job")
    until(lambda: sum(sum(map(is_match, tab.accepted)) for tab in tabs) == GAMES, "thanks for each game")
    count = sum(len(tab.accepted) for tab in tabs)
    until(lambda: sum(len(tab.accepted) for tab in tabs) > count + 10, "more games of self-play")
    standing = read_standing(hall.bus, RUN, Standings())
    assert {rating.player for rating in standing.ratings} == {"weights:1", "weights:2"}
    hall.settle()
    assert hall.balanced()
    assert not any(is_match(event.record.uid) for event in hall.samples()), "nothing of a match is learned from"
    assert not [reason for tab in tabs for _, reason in tab.refused]


@pytest.mark.slow
def test_who_keeps_what_he_lost_changes_nothing(hall: Hall) -> None:
    """Every game is one of its own, so another brings back the same."""
    hall.start_gateway()
    with came_in(hall) as eve:
        hall.ask_match()
        kept: EvalGames = heard(eve, EvalGames)
        whole = {game.uid: game.actions for game in play_match(kept, uniform(kept))}
        eve.send(encode_tab(EvalResult(tuple(game for game in play_match(kept, uniform(kept)) if game.uid % 2))))
        hall.live(hall.tab(slots=1))
        result = ended(hall)
        assert result.games == GAMES
        lost = [game for game in play_match(kept, uniform(kept)) if not game.uid % 2]
        eve.send(encode_tab(EvalResult(tuple(lost))))
        assert heard(eve, Refused).uids
    assert len(whole) == 4


def test_a_match_survives_its_gateway_with_the_games_that_tabs_have(hall: Hall) -> None:
    first = hall.start_gateway()
    with came_in(hall) as asleep:
        job = hall.ask_match()
        held = heard(asleep, EvalGames).games
        tab = hall.live(hall.tab(slots=1))
        until(lambda: sum(map(is_match, tab.finished)) == GAMES - len(held), "all other games of the match")
        kept = set(filter(is_match, tab.finished))
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE_S)
    assert not hall.results()
    hall.start_gateway()
    assert ended(hall).games == GAMES
    assert hall.ledger.job(job).attempt == 2
    until(lambda: kept <= set(tab.accepted), "answers for the games of before")
    assert not tab.refused


def test_a_page_that_knows_no_matches_gets_none_and_nobody_is_asked_for_any(hall: Hall) -> None:
    hall.start_gateway()
    with came_in(hall, features=()) as old:
        hall.ask_match()
        heard(old, PlayGames)
        with pytest.raises(TimeoutError):
            heard(old, EvalGames, within_s=2.0)
        assert {beat.queues for beat in hall.beats()} == {("selfplay.browser",)}, "nobody is asked for matches"


def test_an_opponent_that_no_tab_is_fails_the_job_at_once_and_accepted_is_said_once_a_result_stands(hall: Hall) -> None:
    hall.start_gateway()
    for second in ("uct:100", "solver"):
        job = hall.ask_match(second=second)
        until(lambda job=job: hall.ledger.job(job).state is JobState.FAILED, "end of the job")
        assert hall.ledger.job(job).error == f"tabs play weights only, not {second}; give such matches another tag than browser"
    before = len(hall.results())
    with came_in(hall) as ann:
        hall.ask_match(games=4)
        asked = heard(ann, EvalGames)
        ann.send(encode_tab(EvalResult(tuple(play_match(asked, uniform(asked))))))
        accepted = heard(ann, Accepted)
        assert set(accepted.uids) == {game.uid for game in asked.games}
        assert accepted.totals == {"games": 4, "samples": 0}
        assert len(hall.results()) == before + 1


@pytest.mark.slow
def test_what_nobody_plays_goes_back_to_the_queue(broker: Any, tmp_path: Path) -> None:
    hall = Hall(broker, tmp_path, {"late_s": 3.0})
    hall.open(matches=True)
    try:
        hall.start_gateway()
        job = hall.ask_match()
        until(lambda: hall.ledger.job(job).attempt > 1, "another attempt")
        until(lambda: "tabs brought 0 of 12 games" in hall.log(), "the reason")
        hall.live(hall.tab())
        assert ended(hall).games == GAMES
    finally:
        hall.close()
