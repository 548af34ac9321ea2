"""Faults by their mean time between failures: the same ones from the same seed, whom they befall, and who there is."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.parts.lab.drill.chaos import KINDS, SIGNALLED, ChaosPlan, ScheduledFault, schedule, target
from azq.parts.lab.drill.scenarios import FAULTS
from azq.process.kin import role_of

SEEDS = st.integers(0, 1 << 32)


@given(SEEDS, st.floats(0.1, 100.0))
def test_the_seed_says_everything(seed: int, mtbf_s: float) -> None:
    first, again = (list(islice(schedule(seed, mtbf_s), 50)) for _ in range(2))
    assert first == again
    assert [fault.at_s for fault in first] == sorted(fault.at_s for fault in first)
    for fault in first:
        assert fault.role in KINDS[fault.kind].roles
        shortest, longest = KINDS[fault.kind].lasts_s
        assert shortest <= fault.lasts_s <= longest


def test_gaps_have_the_mean_that_was_asked_for_and_every_pair_comes_as_often() -> None:
    found = list(islice(schedule(7, 3.0), 20_000))
    assert 2.9 < found[-1].at_s / len(found) < 3.1
    counted = Counter((fault.kind, fault.role) for fault in found)
    pairs = [(kind, role) for kind, found in KINDS.items() for role in found.roles]
    assert counted.keys() == set(pairs)
    assert min(counted.values()) > 0.7 * len(found) / len(pairs)


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_a_strike_falls_on_whom_it_names_or_the_next_of_its_kind_that_is_there(kind: str, data: st.DataObject) -> None:
    role = data.draw(st.sampled_from(KINDS[kind].roles))
    alive = data.draw(st.lists(st.sampled_from(SIGNALLED), unique=True))
    found = target(ScheduledFault(0.0, kind, role, 0.0), alive)
    there = [one for one in KINDS[kind].roles if one in alive or one not in SIGNALLED]
    assert found == (role if role in there else found)
    assert (found in there) if there else (found is None)


def test_chaos_ends_with_its_faults_or_its_time() -> None:
    assert len(list(ChaosPlan(1.0, faults=30).schedule())) == 30
    timed = list(ChaosPlan(1.0, lasts_s=20.0).schedule())
    assert timed[-1].at_s <= 20.0 < next(islice(schedule(0, 1.0), len(timed), None)).at_s
    assert list(ChaosPlan(1.0, faults=30, lasts_s=5.0).schedule()) == list(ChaosPlan(1.0, lasts_s=5.0).schedule())


def test_kinds_are_signals_or_faults_that_drills_know() -> None:
    assert KINDS.keys() - FAULTS.keys() == {"segv", "freeze", "cut", "memory"}
    assert "cut" in KINDS


@pytest.mark.parametrize(
    ("command", "folder", "role"),
    [
        ("valkey-server unixsocket:/x", ".broker/control", "broker-control"),
        ("/bin/valkey-server x.conf", ".broker/data", "broker-data"),
        ("python -m azq daemon", "", "daemon"),
        ("python -m azq inference --device cpu", "", "inference"),
        ("python -m azq worker --queues selfplay.cpu", "", "selfplay"),
        ("python -m azq worker --queues eval.cpu", "", None),
        ("python -m azq learner --run drill", "", "learner"),
        ("celery", "", None),
    ],
)
def test_processes_are_known_by_their_command_or_their_folder(command: str, folder: str, role: str | None) -> None:
    assert role_of(command.split(), Path("home") / folder) == role
