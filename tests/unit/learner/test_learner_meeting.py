"""Ranks that meet: where they listen, and how long they wait for each other."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
import torch.distributed as dist
from rank_processes import in_ranks

from azq.learner.ranks import group as group_module
from azq.learner.ranks.group import LATELY, START_S, RankGroup, listen_towards
from azq.learner.ranks.rules import LOOPBACK
from azq.learner.rounds import RoundTiming

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
    def body(group: RankGroup) -> str:
        if group.place:
            time.sleep(1.0)  # kernels are loaded
        group.meet()
        group.trained()
        if group.place:
            time.sleep(10.0)
            return "was late"
        begun = time.monotonic()
        with pytest.raises(RuntimeError):
            group.meet()
        return "waited" if time.monotonic() - begun < 8.0 else "waited too long"

    assert in_ranks(2, body, timeout_s=0.5)[:1] == ["waited"]


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
