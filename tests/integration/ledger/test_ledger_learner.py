"""What the ledger promises of a run's one learner."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from ledger_worlds import record
from msgspec.structs import replace

from azq.errors import NotFound, StateConflict
from azq.ledger.holder import process_space
from azq.ledger.types import RunState
from azq.wire import keys


def test_a_second_learner_commits_nothing_until_the_first_is_silent(world):
    first = world.ledger.take_learner("r", "alpha:1:1:boot", 10)
    with pytest.raises(StateConflict, match="pid 1 on alpha"):
        world.ledger.take_learner("r", "beta:2:2:boot", 10)
    world.pass_s(8)
    world.ledger.renew_learner(first)
    world.pass_s(8)
    with pytest.raises(StateConflict, match="pid 1 on alpha"):
        world.ledger.take_learner("r", "beta:2:2:boot", 10)
    world.pass_s(3)
    assert world.ledger.take_learner("r", "beta:2:2:boot", 10).token == first.token + 1


def test_a_learner_that_was_cut_off_commits_nothing_when_it_is_back(world):
    old = world.ledger.take_learner("r", "alpha:1:1:boot", 10)
    world.ledger.record_inserted("r", 0, 3, lease=old)
    world.pass_s(11)
    new = world.ledger.take_learner("r", "beta:2:2:boot", 10)
    world.ledger.end_learner(new)
    commits = (
        lambda: world.ledger.renew_learner(old),
        lambda: world.ledger.end_learner(old),
        lambda: world.ledger.record_inserted("r", 7, 7, lease=old),
        lambda: world.ledger.record_inserted("r", 7, 7),
        lambda: world.ledger.announce_weights("r", b"w", old),
    )
    for commit in commits:
        with pytest.raises(StateConflict, match="pid 2 on beta"):
            commit()
    assert world.ledger.counts("r").duplicates_dropped == 3
    assert world.bus.length(keys.weights("r")) == 0
    world.ledger.announce_weights("r", b"w", new)
    assert world.bus.length(keys.weights("r")) == 1


def test_a_place_that_ran_out_stays_its_holders_until_another_takes_it(world):
    lease = world.ledger.take_learner("r", "alpha:1:1:boot", 10)
    world.pass_s(60)
    world.ledger.record_inserted("r", 0, 1, lease=lease)
    world.ledger.renew_learner(lease)
    with pytest.raises(StateConflict):
        world.ledger.take_learner("r", "beta:2:2:boot", 10)


def test_a_place_given_free_is_taken_at_once(world):
    lease = world.ledger.take_learner("r", "alpha:1:1:boot", 10)
    world.ledger.end_learner(lease)
    assert world.ledger.take_learner("r", "beta:2:2:boot", 10).token == 2
    with pytest.raises(NotFound):
        world.ledger.take_learner("nobody", "beta:2:2:boot", 10)


def test_a_dead_holder_of_this_host_loses_its_place_at_once(world):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    world.ledger.take_learner("r", f"alpha:{os.getpid()}:0:{process_space()}", 10)
    with pytest.raises(StateConflict):
        world.ledger.take_learner("r", "beta:2:2:boot", 10)
    world.pass_s(11)
    world.ledger.take_learner("r", f"alpha:{ended.pid}:0:{process_space()}", 10)
    assert world.ledger.take_learner("r", "beta:2:2:boot", 10).token == 3


def test_a_learner_of_a_deleted_run_commits_nothing_to_the_next_of_its_name(world):
    old = world.ledger.take_learner("r", "alpha:1:1:boot", 10)
    world.pass_s(11)
    world.ledger.set_run_state("r", RunState.PAUSED)
    world.ledger.delete_run("r")
    world.ledger.create_run(replace(record("r"), created_ms=1_000_000))
    commits = (
        lambda: world.ledger.renew_learner(old),
        lambda: world.ledger.record_inserted("r", 7, 7, lease=old),
        lambda: world.ledger.announce_weights("r", b"w", old),
        lambda: world.ledger.restore("r", 7, 7, [], old),
    )
    for _ in range(2):
        for commit in commits:
            with pytest.raises(StateConflict, match="another learner"):
                commit()
        world.ledger.take_learner("r", "beta:2:2:boot", 10)
    assert world.ledger.counts("r").opened == 0


def test_a_control_plane_that_forgot_its_last_moments_does_not_end_the_living_learner(world):
    first = world.ledger.take_learner("r", "alpha:1:1:boot", 10)
    world.ledger.end_learner(first)
    second = world.ledger.take_learner("r", "beta:2:2:boot", 10)
    forget(world, "alpha:1:1:boot", 1)
    world.ledger.record_inserted("r", 0, 1, lease=second)
    world.ledger.renew_learner(second)
    with pytest.raises(StateConflict, match="pid 2 on beta"):
        world.ledger.record_inserted("r", 0, 2, lease=first)
    forget(world, "gamma:3:3:boot", 2)  # another took the number that was forgotten
    with pytest.raises(StateConflict, match="pid 3 on gamma"):
        world.ledger.record_inserted("r", 0, 2, lease=second)


def test_a_renewal_makes_the_group_of_readers_again_without_memory(world):
    lease = world.ledger.take_learner("r", "alpha:1:1:boot", 10)
    world.ledger.client.delete(keys.samples("r"))  # as a broker that was restored from a copy
    world.ledger.client.xadd(keys.samples("r"), {"f": b"sample"})
    world.ledger.renew_learner(lease)
    assert [group["name"] for group in world.ledger.client.xinfo_groups(keys.samples("r"))] == [b"learner"]


def forget(world: Any, holder: str, token: int) -> None:
    """Sets the learner's place back to an earlier one, as a broker does that lost its last writes."""
    world.ledger.client.hset(keys.learner_lease("r"), mapping={"holder": holder, "token": token, "until_ms": 0})
