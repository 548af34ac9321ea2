"""The slice engine over the real core and the in-memory ledger: nothing lost, nothing twice, whatever fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pytest
from actor_doubles import RUN, Table, after, sections
from numpy.typing import NDArray

from azq.actor import Arenas, Stop
from azq.actor import selfplay as engine
from azq.errors import BrokerUnavailable, EvaluationRefused, EvaluatorFailure, LeaseLost
from azq.ledger.types import RunState
from azq.search.evaluator import Evaluation, UniformEvaluator
from azq.wire import arrays, keys
from azq.wire.arrays import size_of, unpack_record
from azq.wire.messages import LATEST, GameRecord


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_slice_finishes_games_refills_its_slots_and_gives_the_rest_back(table: Table) -> None:
    end = table.play(should_stop=after(800))
    assert end.stop is Stop.ASKED
    assert end.progress.games == len(table.events) > 16
    assert table.all_in_the_pool()
    assert table.ledger.jobs(RUN) == []
    for event in table.events:
        plies = len(event.record.actions) // 2
        assert 5 <= plies <= 9
        assert unpack_record(event.record, 9, 1)["policies"].shape == (plies, 9)
        assert sum(event.returns) == 0
    assert end.progress.searched["simulations"] >= 12 * 5 * end.progress.games
    assert end.progress.searched["plies"] >= 5 * end.progress.games


def test_the_ledger_counts_what_every_slice_did(table: Table) -> None:
    first = table.play(should_stop=after(100)).progress
    second = table.play(should_stop=after(70)).progress
    counts = table.ledger.counts(RUN)
    assert (counts.evaluations, counts.requests) == (first.evaluations + second.evaluations, first.requests + second.requests)
    simulations = first.searched["simulations"] + second.searched["simulations"]
    assert 0.9 * simulations < counts.simulations <= simulations, "all but what games searched that are given back"


def test_the_next_slice_adopts_the_open_games_first(table: Table) -> None:
    table.play(should_stop=after(60))
    opened = table.ledger.counts(RUN).opened
    lease = table.lease()
    adopted = table.ledger.adopt(lease, 8)
    assert table.ledger.counts(RUN).opened == opened
    assert any(record.actions for record in adopted)


@pytest.mark.parametrize("steps", [40, 77, 163])  # a slice that ends before any ply is searched would never get on
def test_games_that_others_finish_are_the_games_the_first_would_have_finished(table: Table, steps: int) -> None:
    whole = Table()
    whole.play(should_stop=after(900))
    while len(table.events) < 24:
        table.arenas = Arenas()  # each slice in a process of its own
        table.play(should_stop=after(steps))
    expected = {event.record.uid: event.record for event in whole.events}
    common = [event.record for event in table.events if event.record.uid in expected]
    assert len(common) >= 16
    for record in common:
        assert record == expected[record.uid]


class Recording:
    """A uniform evaluator that writes down who was asked when."""

    resent = 0

    def __init__(self) -> None:
        self._uniform = UniformEvaluator(9)
        self.log: list[tuple[str, int]] = []

    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        handle = self._uniform.submit(packed)
        self.log.append(("submit", handle))
        return handle

    def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
        self.log.append(("result", handle))
        return self._uniform.result(handle, timeout_s=timeout_s)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("groups", [2, 3])
def test_while_one_group_is_waited_for_all_others_are_on_their_way(table: Table, groups: int) -> None:
    evaluator = Recording()
    table.play(table.lease(12), evaluator, settings=sections(groups=groups), should_stop=after(100))
    in_flight: list[int] = []
    waits = 0
    for what, handle in evaluator.log:
        if what == "submit":
            in_flight.append(handle)
        else:
            assert len(in_flight) == groups  # nobody is waited for before all others were sent off
            assert in_flight.pop(0) == handle  # and always the one that was sent first
            waits += 1
    assert waits > 50


def test_the_slice_ends_by_the_clock_of_its_job(table: Table) -> None:
    clock = itertools.count(0.0, 0.01)
    end = table.play(table.lease(slice_s=5.0), clock=lambda: next(clock))
    assert end.stop is Stop.SLICE_OVER
    assert table.all_in_the_pool()


def test_a_paused_run_gets_its_games_back(table: Table) -> None:
    lease = table.lease()
    calls = itertools.count()

    def hook(name: str, call: Callable[[], Any]) -> Any:
        if next(calls) == 6:
            table.ledger.set_run_state(RUN, RunState.PAUSED)
        return call()

    table.hook = hook
    assert table.play(lease).stop is Stop.RELEASED
    table.ledger.set_run_state(RUN, RunState.RUNNING)
    assert table.all_in_the_pool()


def test_a_stall_of_the_limiter_gives_the_games_back(table: Table) -> None:
    lease = table.lease()
    table.bus.put(keys.stall(RUN), b"1")
    end = table.play(lease)
    assert end.stop is Stop.STALLED
    assert end.progress.games < 30
    assert table.all_in_the_pool()


def test_a_slice_that_may_wait_for_the_limiter_goes_on_with_its_games(table: Table) -> None:
    lease, waits = table.lease(stall_s=10.0), []
    table.bus.put(keys.stall(RUN), b"1")
    games: list[int] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        games.append(table.ledger.counts(RUN).finished)
        assert not table.ledger.job(lease.job.job_id).ended_ms
        if len(waits) == 5:
            table.bus.delete(keys.stall(RUN))

    end = table.play(lease, wait=wait, should_stop=lambda: len(waits) == 5 and table.ledger.counts(RUN).finished > games[-1] + 100)
    assert end.stop is Stop.ASKED, "it went on"
    assert len(set(games)) == 1, "nothing is played meanwhile"
    assert table.journals[:1] != [0], "and what was is written down"
    assert table.all_in_the_pool()


def test_a_slice_waits_so_long_in_all_for_the_limiter_and_no_longer(table: Table) -> None:
    now, lease = [0.0], table.lease(stall_s=2.0)

    def wait(seconds: float) -> None:
        now[0] += seconds

    table.bus.put(keys.stall(RUN), b"1")
    assert table.play(lease, wait=wait, clock=lambda: now[0]).stop is Stop.STALLED
    assert now[0] == 2.0
    assert table.all_in_the_pool()


@pytest.mark.parametrize("where", ["adopt", "journal", "replace_games", "release", "renew"])
def test_a_lost_lease_drops_everything_at_once(table: Table, where: str) -> None:
    lost = False
    later: list[str] = []

    def hook(name: str, call: Callable[[], Any]) -> Any:
        nonlocal lost
        if lost:
            later.append(name)
        if name == where and (name != "renew" or table.journals):
            lost = True
            raise LeaseLost("job toe:1 was taken over by attempt 2")
        return call()

    table.hook = hook
    clock = itertools.count(0.0, 0.05)
    end = table.play(evaluator=Silent(60) if where == "renew" else None, should_stop=after(500), clock=lambda: next(clock))
    assert end.stop is Stop.LEASE_LOST
    assert "taken over" in end.detail
    assert later == []
    assert table.balanced()
    table.hook = lambda name, call: call()
    assert table.play(should_stop=after(300)).progress.games > 0  # the arenas serve the next lease


class Silent:
    """Answers so many requests, then never again."""

    resent = 0

    def __init__(self, answers: int) -> None:
        self._uniform = UniformEvaluator(9)
        self._answers = answers

    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        return self._uniform.submit(packed)

    def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
        self._answers -= 1
        return self._uniform.result(handle, timeout_s=timeout_s) if self._answers >= 0 else None

    def close(self) -> None:
        pass


def test_without_evaluations_the_lease_is_kept_until_patience_ends(table: Table) -> None:
    clock = itertools.count(0.0, 0.05)
    renewed = []

    def hook(name: str, call: Callable[[], Any]) -> Any:
        if name == "renew":
            renewed.append(name)
        return call()

    table.hook = hook
    end = table.play(evaluator=Silent(20), clock=lambda: next(clock), patience_s=12.0, settings=sections(journal_s=1.0))
    assert end.stop is Stop.STARVED
    assert len(renewed) >= 8  # about one each second of waiting
    assert table.all_in_the_pool()


def test_a_named_failure_is_asked_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ASK_AGAIN_S", 0.0)

    class Failing(Recording):
        def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
            evaluation = super().result(handle, timeout_s=timeout_s)
            if len(self.log) % 5 == 0:
                raise EvaluatorFailure("inference worker: weights of version 3 are missing")
            return evaluation

    end = table.play(evaluator=Failing(), should_stop=after(900))
    assert end.progress.games > 8
    assert table.all_in_the_pool()


def test_evaluations_of_the_wrong_shape_are_not_applied(table: Table) -> None:
    clock = itertools.count(0.0, 0.05)
    end = table.play(evaluator=UniformEvaluator(7), clock=lambda: next(clock), patience_s=5.0)
    assert end.stop is Stop.STARVED
    assert end.progress.evaluations == 0


def test_a_short_broker_outage_is_waited_out(table: Table) -> None:
    failures = iter([True] * 6)

    def hook(name: str, call: Callable[[], Any]) -> Any:
        if len(table.events) >= 4 and next(failures, False):
            raise BrokerUnavailable("nobody answers at the control plane")
        return call()

    table.hook = hook
    assert table.play(should_stop=after(800)).stop is Stop.ASKED
    assert table.all_in_the_pool()
    assert len(table.events) > 16


def test_an_outage_longer_than_the_lease_costs_no_game(table: Table) -> None:
    clock = itertools.count(0.0, 0.05)

    def hook(name: str, call: Callable[[], Any]) -> Any:
        if len(table.events) >= 4:
            raise BrokerUnavailable("nobody answers at the control plane")
        return call()

    table.hook = hook
    end = table.play(clock=lambda: next(clock))
    assert end.stop is Stop.BROKER_LOST
    assert table.balanced()


def test_a_finish_whose_answer_was_lost_counts_once(table: Table) -> None:
    lost = iter([True])

    def hook(name: str, call: Callable[[], Any]) -> Any:
        answer = call()
        if name == "replace_games" and next(lost, False):
            raise BrokerUnavailable("the connection broke before the answer")
        return answer

    table.hook = hook
    assert table.play(should_stop=after(800)).stop is Stop.LEASE_LOST
    assert table.balanced()


def test_a_record_that_does_not_replay_is_abandoned_by_name_and_the_others_play_on(table: Table) -> None:
    lease = table.lease()
    table.ledger.adopt(lease, 8)
    wrong = np.array([4, 4], np.uint16)
    bad = GameRecord(3, wrong.tobytes(), bytes(2 * 9 * 2), bytes(2 * 4), bytes(2 * 2), bytes(2 * 4))
    torn = GameRecord(5, b"\x01", b"", b"", b"", b"")
    table.ledger.release(lease, [bad, torn])
    end = table.play(should_stop=after(600))
    assert end.progress.abandoned == 2
    assert table.ledger.counts(RUN).abandoned == 2
    assert not {3, 5} & {event.record.uid for event in table.events}
    assert table.all_in_the_pool()


def test_a_bug_in_the_middle_leaves_no_half_used_arena(table: Table) -> None:
    class Broken(Silent):
        def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        table.play(evaluator=Broken(0))
    assert table.arenas.memory_bytes == 0


def test_progress_is_told_while_playing(table: Table) -> None:
    clock = itertools.count(0.0, 0.05)
    told = []
    table.play(clock=lambda: next(clock), report=lambda progress: told.append(progress.evaluations), should_stop=after(300))
    assert len(told) > 3
    assert told == sorted(told)


def test_leaves_that_nobody_will_evaluate_fail_the_job_with_the_reason(table: Table) -> None:
    class Refusing(UniformEvaluator):
        def result(self, handle: int, *, timeout_s: float) -> Evaluation:
            raise EvaluationRefused("inference worker: 9 leaves killed their inference worker")

    evaluator = Refusing(9)
    with pytest.raises(EvaluationRefused, match="killed their inference worker"):
        table.play(evaluator=evaluator)
    assert evaluator._next <= 2, "they are not asked for again"


def test_a_game_whose_record_outgrows_a_message_is_abandoned_by_name_and_the_others_play_on(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    plies, bytes_a_ply = 6, 2 + 9 * 2 + 4 + 2 + 4
    monkeypatch.setattr(arrays, "MAX_FRAME_BYTES", arrays.BESIDES_BYTES + plies * bytes_a_ply)
    end = table.play(should_stop=after(4000))
    counts = table.ledger.counts(RUN)
    assert counts.abandoned == end.progress.abandoned > 0
    assert counts.finished > 0
    assert end.progress.open_games == counts.open
    assert all(size_of(event.record) <= plies * bytes_a_ply for event in table.events)
    assert all("outgrew a message" in reason for reason in table.ledger.abandoned(RUN).values())
    assert table.all_in_the_pool()


def test_groups_are_journaled_by_turns(table: Table) -> None:
    table.play(should_stop=after(200), settings=sections(groups=2))
    assert len(table.journals) > 4
    assert max(table.journals[:-1]) <= 4  # of 8 games; the last hands all of them back


def test_too_long_games_found_at_the_end_of_a_slice_do_not_hold_up_the_others(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAX_FRAME_BYTES", arrays.BESIDES_BYTES)
    table.play(should_stop=after(60), settings=sections(journal_s=5.0))
    counts = table.ledger.counts(RUN)
    assert counts.abandoned > 0
    assert counts.finished == 0
    assert table.balanced()
    assert not table.ledger.jobs(RUN)


class Slow(Recording):
    """An evaluator that takes a millisecond a leaf, by a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
        evaluation = super().result(handle, timeout_s=timeout_s)
        self.now_s += len(evaluation.values) / 1000 if evaluation else 0.0
        return evaluation


@pytest.mark.parametrize(("within_ms", "fewest", "most"), [(0.0, 250, 256), (25.0, 32, 64)])
def test_where_evaluations_are_slow_fewer_games_are_played_at_once(table: Table, within_ms: float, fewest: int, most: int) -> None:
    slow = Slow()
    held: list[int] = []
    settings = sections(games_in_flight=256, groups=2, answer_within_ms=within_ms)
    table.play(
        table.lease(games=256, slice_s=1e9),
        slow,
        settings=settings,
        should_stop=after(600),
        clock=lambda: slow.now_s,
        report=lambda progress: held.append(progress.open_games),
    )
    assert table.balanced()
    assert fewest <= median(held) <= most
