"""Evaluation jobs through a real broker, run in this process: results, pinned spec, revocation, stops, bad payloads."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from celery.exceptions import Ignore
from waiting import PATIENCE_S

from azq.arena.match import failed
from azq.bus.redis import RedisBus
from azq.config import ArenaConfig, BrokerConfig, Config, DaemonConfig, RunConfig, RunSections, SelfPlayConfig, WorkerConfig, dump_run
from azq.errors import JobFailed, LeaseLost
from azq.ledger import Ledger
from azq.ledger.ledger import MAX_ATTEMPTS
from azq.ledger.types import JobState, JobView
from azq.ratings.matches import split
from azq.status.observe import Standings, read_standing
from azq.waiting import meanwhile, until
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import GradeResult, GradeSpec, Job, MatchResult, MatchSpec, Message, RunRecord, WeightEvent
from workers import evaluate
from workers.children import Board, ChildHeartbeat
from workers.context import Context

RUN = "four"


class Desk:
    """A run with one worker child's context."""

    def __init__(self, broker: Any, game: str = "connect_four") -> None:
        config = Config(
            broker=BrokerConfig(control_url=broker.control_url, data_url=broker.data_url),
            daemon=DaemonConfig(lease_s=1.0),
            worker=WorkerConfig(engines=("false", "no-such-program")),
        )
        self.context = Context(config, ChildHeartbeat(Board(1), 0))
        self.client = connect(broker.control_url)
        self.bus = RedisBus(self.client)
        self.ledger = Ledger(self.client)
        sections = RunSections(run=RunConfig(game=game), selfplay=SelfPlayConfig(evaluator="uniform"), arena=ArenaConfig())
        self.ledger.create_run(RunRecord(RUN, msgspec.json.encode(dump_run(sections)), {}, "", 0))
        self.bus.publish(keys.weights(RUN), encode(WeightEvent(RUN, 7, "0" * 64, "", 1, 0)))

    def job(self, payload: bytes | Message) -> JobView:
        data = payload if isinstance(payload, bytes) else encode(payload)
        view = self.ledger.enqueue(Job("", RUN, Kind.EVAL, "cpu", payload=data))
        self.ledger.mark_published(view.job.job_id, 1)
        return view

    def run(self, view: JobView) -> MatchResult | GradeResult:
        return evaluate.run(self.context, view.job.job_id, view.attempt)

    def failed_match(self, view: JobView) -> MatchResult:
        """The newest result of a match that fails, and its job with the same reason."""
        with pytest.raises(JobFailed) as caught:
            self.run(view)
        result = decode(self.bus.after(keys.results(RUN), "0")[-1].frame, MatchResult)
        ended = self.ledger.job(view.job.job_id)
        assert (ended.state, ended.attempt) == (JobState.FAILED, 1)  # what failed is not asked again
        assert str(caught.value) == ended.error == result.error
        return result


@pytest.fixture
def desk(broker: Any, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(broker)
    yield desk
    desk.client.close()


def test_a_match_is_played_committed_and_readable_by_all(desk: Desk) -> None:
    spec = MatchSpec("latest", "random", 6, 16, 4, 3)
    result = desk.run(view := desk.job(spec))
    (entry,) = desk.bus.after(keys.results(RUN), "0")
    stored = decode(entry.frame, MatchResult)
    assert stored == result
    assert (stored.spec, stored.first, stored.second) == (spec, "weights:7", "random")
    assert stored.wins + stored.draws + stored.losses == 6
    assert desk.ledger.job(view.job.job_id).state is JobState.DONE


@pytest.mark.parametrize("opponent", ["gtp:false", "gtp:no-such-program", "gtp:not-named-by-the-operator"])
def test_an_engine_that_fails_costs_its_match_and_is_reported_at_once(broker: Any, opponent: str) -> None:
    desk = Desk(broker, "othello")
    view = desk.job(MatchSpec("random", opponent, 4, 8, 0, 3))
    result = desk.failed_match(view)
    assert (result.wins, result.draws, result.losses) == (0, 0, 0)
    assert opponent in result.error
    assert ("worker.engines" in result.error) == ("operator" in opponent)
    assert desk.run(desk.job(MatchSpec("random", "uct:10", 2, 8, 0, 3))).error == ""  # type: ignore[union-attr]


def test_weights_that_come_with_azq_are_an_opponent_like_others(broker: Any) -> None:
    desk = Desk(broker, "tic_tac_toe")
    result = desk.run(desk.job(MatchSpec("random", "azq:tic_tac_toe", 10, 16, 0, 3)))
    assert isinstance(result, MatchResult)
    assert (result.second, result.error) == ("azq:tic_tac_toe", "")
    assert result.score < 0.3


@pytest.mark.parametrize(("opponent", "named"), [("azq:tic_tac_toe", "the run plays connect_four"), ("azq:chess", "no weights of 'chess'")])
def test_those_of_another_game_or_of_none_cost_their_match(desk: Desk, opponent: str, named: str) -> None:
    assert named in desk.failed_match(desk.job(MatchSpec("random", opponent, 4, 8, 0, 3))).error


def test_a_match_in_parts_is_the_whole_one_though_the_worker_of_a_part_was_lost(desk: Desk) -> None:
    spec = MatchSpec("uct:30", "random", 60, 16, 4, 3)
    whole = desk.run(desk.job(spec))
    views = [desk.job(part) for part in split(spec, 20)]
    lost = desk.ledger.claim(views[1].job.job_id, 1, "gone:1", 0.001)
    assert lost is not None
    until(lambda: desk.ledger.expire(RUN, 4) or None, "its lease does not run out", PATIENCE_S)
    for view in reversed(views):
        assert desk.run(desk.ledger.job(view.job.job_id)) is not None
    with pytest.raises(LeaseLost):
        desk.ledger.complete(lost, encode(failed(spec, "too late")))
    [merged, alone] = read_standing(desk.bus, RUN, Standings()).matches
    assert isinstance(whole, MatchResult)
    for name in ("games", "wins", "draws", "losses", "share", "points", "points_se"):
        assert getattr(merged, name) == pytest.approx(getattr(whole, name)) == pytest.approx(getattr(alone, name)), name
    assert (merged.workers, merged.progress, len(merged.parts)) == ({desk.context.owner: 60}, "", 3)


@pytest.mark.skipif(importlib.util.find_spec("gnubg_nn") is None, reason="gnubg-nn is not installed: pip install 'azq[gnubg]'")
def test_gnubg_by_name_is_an_opponent_of_parts_too(broker: Any) -> None:
    desk = Desk(broker, "backgammon")
    for part in split(MatchSpec("random", "gnubg:0", 8, 8, 0, 3), 4):
        desk.run(desk.job(part))
    [match] = read_standing(desk.bus, RUN, Standings()).matches
    assert (match.first, match.second, match.games, match.error) == ("random", "gnubg:0", 8, "")
    assert match.points < -1, "whoever plays at random loses gammons to gnubg"
    desk.client.close()


def test_a_grading_counts_errors_by_class(desk: Desk) -> None:
    result = desk.run(desk.job(GradeSpec(5, 60, 16, 1)))
    assert isinstance(result, GradeResult)
    assert [result.marks.count(mark) for mark in (0, 1, 2)] == [540, 60 - result.errors, result.errors]
    assert (result.weight_version, result.positions, result.num_simulations) == (5, 60, 16)
    assert 0 < result.errors < 60
    assert result.errors == sum(errors for errors, _ in result.by_class.values())
    assert {count for _, count in result.by_class.values()} == {10}


@pytest.mark.parametrize("payload", [b"", b"\xc1", encode(MatchSpec("stockfish", "random", 2, 8, 0, 0))])
def test_a_spec_that_makes_no_sense_fails_by_name_and_is_given_up(desk: Desk, payload: bytes) -> None:
    view = desk.job(payload)
    for _ in range(MAX_ATTEMPTS):
        with pytest.raises(JobFailed) as caught:
            desk.run(view)
        view = desk.ledger.job(view.job.job_id)
        assert str(caught.value) == view.error, "the ledger has it first"
    assert view.state is JobState.FAILED
    assert view.error
    assert "\n" not in view.error


def test_a_long_match_keeps_its_lease_and_a_revoked_one_ends(desk: Desk) -> None:
    view = desk.job(MatchSpec("uct:20000", "uct:20000", 200, 16, 2, 3))
    ends: list[str] = []

    def run() -> None:
        with pytest.raises(Ignore) as caught:
            desk.run(view)
        ends.append(str(caught.value))

    thread = threading.Thread(target=run)
    thread.start()
    pause = threading.Event()
    for _ in range(30):
        pause.wait(0.05)
        assert desk.ledger.expire(RUN, 4) == []
    assert desk.ledger.job(view.job.job_id).state is JobState.LEASED
    desk.ledger.cancel(view.job.job_id)
    thread.join(PATIENCE_S)
    assert ends == ["the run or the job was stopped"]
    assert desk.ledger.job(view.job.job_id).state in (JobState.CANCELLED, JobState.DONE)
    assert desk.bus.after(keys.results(RUN), "0") == []


def test_a_stopped_worker_leaves_the_match_to_others_without_blame(desk: Desk) -> None:
    view = desk.job(MatchSpec("uct:20000", "uct:20000", 200, 16, 2, 3))
    for attempt in range(1, MAX_ATTEMPTS + 2):
        board = desk.context.board = Board(1)

        def stop_once_it_plays(_: threading.Event, board: Board = board) -> None:
            until(lambda: desk.ledger.job(view.job.job_id).state is JobState.LEASED, "the job is not claimed", PATIENCE_S)
            board.stop()

        with meanwhile("stop", stop_once_it_plays), pytest.raises(JobFailed, match="stopped"):
            evaluate.run(desk.context, view.job.job_id, attempt)
        left = desk.ledger.job(view.job.job_id)
        assert (left.state, left.attempt) == (JobState.QUEUED, attempt + 1)
    assert "stopped" in left.error


def test_a_stopping_worker_claims_nothing(desk: Desk) -> None:
    desk.context.board.stop()
    view = desk.job(GradeSpec(5, 6, 8, 1))
    with pytest.raises(Ignore, match="stopping"):
        desk.run(view)
    assert desk.ledger.job(view.job.job_id).state is JobState.QUEUED
