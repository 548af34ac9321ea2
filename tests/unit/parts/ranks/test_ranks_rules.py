"""The rules of training together: who is in an epoch, who gets how many rows, which place a process has."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rank_processes import in_ranks

from azq.config import LearnerConfig
from azq.errors import ConfigError
from azq.learner.rounds import RoundTiming
from azq.parts.ranks import group as group_module
from azq.parts.ranks.group import LATELY, START_S, RankGroup, listen_towards
from azq.parts.ranks.rules import (
    FORGIVEN_AFTER_S,
    LOOPBACK,
    RankHealth,
    RankPlace,
    invited,
    is_mine,
    next_table,
    place_of,
    shares,
    smoothed,
)
from azq.wire.messages import RankBeat, RankStatus, RankTable

EMPTY = RankTable()
MEETING = "0" * 32


def free(rank: int, name: str) -> RankBeat:
    return RankBeat(rank, name, True, 0)


def busy(rank: int, name: str) -> RankBeat:
    return RankBeat(rank, name, False, 0)


def test_a_table_stays_while_nobody_comes():
    assert next_table(EMPTY, [], broken=False) is EMPTY
    table = RankTable(3, "h", 0, ((1, "a"), (2, "b")), MEETING)
    assert next_table(table, [busy(1, "a"), busy(2, "b")], broken=False) is table
    assert next_table(table, [free(1, "a"), busy(2, "b")], broken=False) is table  # it did not read the newest table yet
    assert next_table(table, [], broken=False) is table  # beats that are late are no death: the group itself tells


def test_who_comes_joins_the_next_epoch():
    table = next_table(EMPTY, [free(2, "b")], broken=False)
    assert (table.epoch, table.members, table.meeting) == (1, ((2, "b"),), "")
    table = next_table(table, [free(1, "a"), busy(2, "b")], broken=False)
    assert (table.epoch, table.members) == (2, ((1, "a"), (2, "b")))


def test_a_broken_epoch_keeps_only_who_says_that_it_is_free():
    table = RankTable(4, "h", 0, ((1, "a"), (2, "b"), (3, "c")), MEETING)
    beats = [free(1, "a"), busy(2, "b")]  # the last words of the dead, still alive in the control plane
    after = next_table(table, beats, broken=True)
    assert (after.epoch, after.members) == (5, ((1, "a"),))
    alone = next_table(table, [busy(2, "b")], broken=True)
    assert (alone.epoch, alone.members) == (5, ())


def test_a_rank_that_was_started_again_takes_the_place_of_its_dead():
    table = RankTable(4, "h", 0, ((1, "a"), (2, "b")), MEETING)
    assert next_table(table, [busy(1, "a"), free(2, "new")], broken=False).members == ((1, "a"), (2, "new"))


def test_an_invitation_is_to_another_meeting_than_the_last_and_by_name():
    table = RankTable(4, "h", 0, ((1, "a"),), MEETING)
    assert invited(table, "a", "")
    assert invited(table, "a", "another")
    assert not invited(table, "a", MEETING)
    assert not invited(table, "b", "")
    assert not invited(RankTable(4, "h", 0, ((1, "a"),)), "a", "")


def test_who_survived_a_rank_0_whose_table_is_gone_joins_the_next_one_all_the_same():
    anew = next_table(EMPTY, [free(1, "a")], broken=False)
    assert anew.epoch == 1  # as it was long ago
    assert invited(replace(anew, meeting="1" * 32), "a", MEETING)


@given(
    st.lists(st.floats(min_value=1.0, max_value=1e7), min_size=1, max_size=12),
    st.integers(min_value=12, max_value=100_000),
    st.floats(min_value=1.0, max_value=4.0),
)
def test_shares_sum_to_the_batch_and_keep_their_bound(speeds, rows, most_ratio):
    given_rows = shares(speeds, rows, most_ratio)
    assert sum(given_rows) == rows
    assert min(given_rows) >= 1
    assert max(given_rows) <= most_ratio * min(given_rows) + 1 + most_ratio
    order = sorted(range(len(speeds)), key=lambda rank: speeds[rank])
    assert all(given_rows[slow] <= given_rows[fast] + 1 for slow, fast in itertools.pairwise(order))


def test_shares_follow_speed_within_the_bound():
    assert shares([100, 100, 100], 96, 2.0) == (32, 32, 32)
    assert shares([300, 200], 100, 2.0) == (60, 40)
    assert shares([1000, 1], 90, 2.0) == (60, 30)
    assert shares([1000, 1], 90, 1.0) == (45, 45)
    assert shares([0, 500], 64, 2.0) == (32, 32)  # not measured yet
    assert shares([1, 1, 1], 3, 1.0) == (1, 1, 1)
    assert shares([5.0], 512, 2.0) == (512,)
    assert shares([0.5, 1.0], 90, 2.0) == (30, 60)
    assert shares([200, 300], 100, 2.0) == (40, 60)


def test_what_is_left_over_goes_where_most_of_a_row_is_missing():
    assert shares([1, 3], 5, 3.0) == (1, 4)  # of 1.25 and 3.75
    assert shares([16, 54], 7, 4.0) == (2, 5)  # of 1.6 and 5.4
    assert shares([1, 1, 1], 5, 1.0) == (2, 2, 1)


def test_each_gets_a_row_at_the_cost_of_whoever_has_most():
    assert shares([1, 10], 4, 10.0) == (1, 3)
    assert shares([1, 1, 98], 6, 100.0) == (1, 1, 4)
    assert shares([1, 1, 1, 97], 6, 100.0) == (1, 1, 1, 3)


def test_one_slow_burst_moves_few_rows():
    assert smoothed((), (100.0, 50.0)) == (100.0, 50.0)
    assert smoothed((100.0, 50.0), (50.0, 50.0)) == pytest.approx((90.0, 50.0))
    assert smoothed((100.0,), (50.0, 60.0)) == (50.0, 60.0)


def test_games_are_split_among_the_ranks_that_are_not_the_learner():
    for ranks in (2, 3, 5):
        for uid in range(1, 40):
            assert is_mine(uid, 0, ranks)
            assert sum(is_mine(uid, rank, ranks) for rank in range(1, ranks)) == 1


def test_a_process_finds_its_place_as_torchrun_says_it():
    assert place_of({}, 4) == RankPlace(0, 4, 0, "127.0.0.1", launched=False)
    assert place_of({"RANK": "0", "WORLD_SIZE": "2"}, 4) == RankPlace(0, 2, 0, "127.0.0.1", launched=True)
    environ = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "first", "MASTER_PORT": "29500"}
    assert place_of(environ, 4) == RankPlace(3, 8, 1, "first", launched=True)
    assert place_of({"RANK": "2"}, 4) == RankPlace(2, 4, 2, "127.0.0.1", launched=True)


@pytest.mark.parametrize("environ", [{"RANK": "x"}, {"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "-1", "WORLD_SIZE": "2"}])
def test_what_is_no_place_is_refused(environ):
    with pytest.raises(ConfigError, match="RANK"):
        place_of(environ, 1)


def test_settings_of_ranks_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="compression"):
        LearnerConfig(sync_every=4, compression="fp16")
    with pytest.raises(ValueError, match="batch_size 2"):
        LearnerConfig(batch_size=2, ranks=3)


def beat(name: str = "h:1", errors: int = 0, reason: str = "") -> RankBeat:
    return RankBeat(1, name, True, 0, RankStatus(1, errors=errors, reason=reason))


def test_a_rank_that_dies_vanishes_or_tells_of_errors_has_as_many():
    health = RankHealth().after(None, 0.0)
    assert (health.errors, health.name) == (0, "")  # it was never there
    health = health.after(beat(), 1.0).after(beat(), 2.0)
    assert (health.errors, health.name) == (0, "h:1")
    health = health.after(beat("h:2"), 3.0)
    assert (health.errors, health.reason, health.failed_s) == (1, "its process ended", 3.0)
    health = health.after(None, 4.0).after(None, 5.0)
    assert (health.errors, health.reason) == (2, "it gives no sign of life")
    health = health.after(beat("h:3", 2, "out of memory"), 6.0).after(beat("h:3", 2, "out of memory"), 7.0)
    assert (health.errors, health.reason, health.failed_s) == (4, "out of memory", 6.0)
    assert health.after(beat("h:3", 3, "again"), 8.0).errors == 5
    assert health.after(beat("h:4", 1, "out of memory"), 8.0).errors == 6  # it died and tells of one


def test_a_rank_is_left_out_above_its_errors_and_forgiven_ten_minutes_after_the_last():
    health = RankHealth()
    for number in range(6):
        assert not health.left_out
        health = health.after(beat(f"h:{number}"), float(number)).after(None, float(number))
    assert (health.errors, health.left_out) == (6, True)
    assert health.after(beat("h:9"), 5.0 + FORGIVEN_AFTER_S).left_out
    again = health.after(beat("h:9"), 5.1 + FORGIVEN_AFTER_S)
    assert (again.errors, again.left_out, again.name) == (0, False, "h:9")


LISTEN, AT_LOOPBACK = "0A", "0100007F"


def listening() -> list[str]:
    """Addresses at which this process listens, as the kernel writes them."""
    mine = {os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()}
    lines = [line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{file}").read_text().splitlines()[1:]]
    return [words[1].partition(":")[0] for words in lines if words[3] == LISTEN and f"socket:[{words[9]}]" in mine]


@pytest.mark.skipif(not os.path.exists("/sys/class/net/lo"), reason="has no such interface")
@pytest.mark.parametrize(("host", "interface"), [(LOOPBACK, "lo"), ("10.0.0.1", "eth7"), ("10.0.0.2", None)])
def test_what_ranks_say_leaves_their_host_by_no_other_interface_than_the_one_to_rank_0(monkeypatch, host, interface):
    monkeypatch.setattr(group_module, "interface_towards", {"10.0.0.1": "eth7", "10.0.0.2": ""}.__getitem__)
    for library in ("GLOO", "NCCL"):  # this machine's name may lead to loopback, and then neither needs to be told
        monkeypatch.setenv(f"{library}_SOCKET_IFNAME", "")  # so that it is put back
        monkeypatch.delenv(f"{library}_SOCKET_IFNAME")
    listen_towards(host)
    assert {os.environ.get(f"{library}_SOCKET_IFNAME") for library in ("GLOO", "NCCL")} == {interface}


def test_members_are_waited_for_until_they_have_trained_once_and_then_for_their_timeout():
    given_up = multiprocessing.get_context("fork").Event()

    def body(group: RankGroup) -> bool:
        group.meet()
        group.trained()
        if group.place:
            return given_up.wait(2 * START_S)  # hangs until rank 0 has lost it
        with pytest.raises(RuntimeError):
            group.meet()
        given_up.set()
        return True

    assert in_ranks(2, body, seconds=START_S - 1.0, timeout_s=0.5) == [True, True]


@pytest.mark.parametrize(("place", "times"), [(0, 1), (1, 10)])
def test_a_member_in_a_long_step_is_waited_for_by_how_long_steps_took(place, times):
    def body(group: RankGroup) -> list[float]:
        found = [group.patience_s]
        for own_s in (300.0, 0.1, 20.0, *[0.1] * LATELY):
            group.meet()
            group.trained([RoundTiming(2, 8, 2 * own_s + 7.0, 7.0), RoundTiming(2, 8, 0.2)])
            found.append(group.patience_s)
        return found

    start_s, first_s, short_s, long_s, *later, last_s = in_ranks(2, body, timeout_s=6.0)[place]
    assert start_s == START_S
    assert (first_s, short_s, long_s, last_s) == (6.0 * times, 6.0 * times, pytest.approx(100.0 * times), 6.0 * times)
    assert set(later) == {long_s}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ranks_of_one_host_listen_on_loopback_alone():
    def body(group: RankGroup) -> tuple[int, list[str]]:
        group.meet()
        return dist.get_world_size(), listening()

    for size, addresses in in_ranks(2, body):
        assert size == 2
        assert set(addresses) == {AT_LOOPBACK}
