"""Who is a member of a cluster, what each is asked, and what follows from what they answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from azq.errors import ConfigError
from azq.host.join.member import Beat, MemberReport, RunSeen
from azq.parts.cluster.description import Cluster, cluster_of
from azq.parts.cluster.members import Member, Seen, actions, admit_order, creation, lacking, members_of, start_order, variables, waves

MACHINES: dict[str, Any] = {
    "players": {"kind": "box", "count": 2, "roles": ["selfplay"], "hosts": ["ada@10.0.0.3", "10.0.0.4"], "concurrency": 3},
    "helpers": {"kind": "box", "count": 2, "roles": ["rank", "inference"], "hosts": ["10.0.0.2", "10.0.0.4"]},
    "first": {"kind": "box", "roles": ["broker", "daemon", "learner"], "hosts": ["root@10.0.0.1"]},
    "bucket": {"kind": "s3", "roles": ["store"]},
}
RUN = {"game": "tic_tac_toe", "settings": ["search.num_simulations=16"]}


def cluster(machines: dict[str, Any] = MACHINES, **parts: Any) -> Cluster:
    kinds = {"box": {"per_hour": 0.0, "vcpus": 2}}
    return cluster_of({"cluster": {"name": "c", "folder": "/x"}, "kinds": kinds, "machines": machines, "run": RUN, **parts}, "here")


def told(member: Member, **what: Any) -> MemberReport:
    """A member's answer, as it works."""
    digest = start_order(cluster(), member, members_of(cluster())[0]).digest()
    return MemberReport(**{"host": member.address, "works": True, "digest": digest, **what})


def whole() -> dict[str, Seen]:
    """What all answer where nothing is missing."""
    members = members_of(cluster())
    seen: dict[str, Seen] = {member.name: told(member) for member in members}
    beats = [Beat(role, member.address) for member in members for role in member.roles if role not in ("broker", "daemon", "rank")]
    seen["first"] = told(members[0], beats=[*beats, Beat("daemon", "")], runs={"tic_tac_toe": RunSeen("running")})
    return seen


def test_members_have_places_and_the_one_with_the_brokers_comes_first() -> None:
    members = members_of(cluster())
    assert [(member.name, member.address, member.rank) for member in members] == [
        ("first", "10.0.0.1", 0),
        ("players-1", "10.0.0.3", None),
        ("players-2", "10.0.0.4", None),
        ("helpers-1", "10.0.0.2", 1),
        ("helpers-2", "10.0.0.4", 2),
    ]
    assert len({member.folder for member in members}) == 5
    assert {member.home for member in members} == {"/x/runs"}
    assert [{member.name for member in wave} for wave in waves(members)] == [
        {"players-1", "players-2"},
        {"helpers-1", "helpers-2"},
        {"first"},
    ]


def test_all_are_processes_of_this_machine_where_that_is_wanted() -> None:
    members = members_of(cluster(), "/home")
    assert {member.address for member in members} == {"127.0.0.1"}
    assert {member.home for member in members} == {"/home"}
    assert members[0].folder == "/home/.clusters/c/first"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"first": {**MACHINES["first"], "hosts": []}}, "first names no hosts"),
        ({"first": {**MACHINES["first"], "roles": ["daemon", "learner"]}}, "there are: none"),
        ({"more": {"kind": "box", "roles": ["broker"], "hosts": ["h"]}}, "there are: first, more"),
        ({"more": {"kind": "cache.r6g.2xlarge", "roles": ["broker"]}}, "azq starts no cache"),
    ],
)
def test_what_nobody_could_start_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        members_of(cluster({**MACHINES, **change}))


def test_what_is_asked_has_no_secret_in_its_words() -> None:
    found = cluster(settings={"daemon": {"port": 0, "token": "hunter2-operate"}})
    first, player, *_ = members_of(found)
    helper = members_of(found)[-1]
    order = start_order(found, player, first, "machine-x.secret.")
    assert order.join == ["rediss://10.0.0.1:6379/0", "--roles", "selfplay", "--concurrency", "3"]
    assert order.settings == {
        "AZQ_HOME": "/x/runs",
        "AZQ_DAEMON__PORT": "0",
        "AZQ_DAEMON__TOKEN": "hunter2-operate",
        "AZQ_MACHINE__KIND": "box",
        "AZQ_MACHINE__PER_HOUR": "0.0",
    }
    assert order.digest() == start_order(found, player, first, "machine-x.another.").digest()
    assert "--rank 2" in " ".join(start_order(found, helper, first).join)
    assert "--run tic_tac_toe" in " ".join(start_order(found, helper, first).join)
    assert admit_order(found, first, [helper]).guests == {"helpers-2": ["rank", "inference"]}


def test_a_daemon_elsewhere_is_told_where_the_data_plane_is() -> None:
    machines = {
        **MACHINES,
        "first": {**MACHINES["first"], "roles": ["broker"]},
        "ops": {"kind": "box", "roles": ["daemon"], "hosts": ["o"]},
    }
    first, second, *_ = members_of(cluster(machines))
    assert second.name == "ops"
    assert start_order(cluster(machines), second, first).join[-2:] == ["--data", "rediss://10.0.0.1:6380/0"]


def test_ranks_are_told_where_a_learner_trains_that_is_not_at_the_brokers() -> None:
    at_home = [start_order(cluster(), member, members_of(cluster())[0]).join for member in members_of(cluster())]
    assert not any("--learner-host" in words for words in at_home)
    machines = {
        **MACHINES,
        "first": {**MACHINES["first"], "roles": ["broker", "daemon"]},
        "trainer": {"kind": "box", "roles": ["learner"], "hosts": ["ada@10.0.0.9"]},
    }
    away = cluster(machines)
    members = members_of(away)
    told = {member.name: " ".join(start_order(away, member, members[0]).join) for member in members}
    assert {name for name, words in told.items() if "--learner-host 10.0.0.9" in words} == {"trainer", "helpers-1", "helpers-2"}
    assert "--rank 0" in told["trainer"]
    assert not any("--learner-host" in " ".join(start_order(away, member, members[0]).join) for member in members_of(away, "/home"))


def test_a_run_gets_as_many_ranks_as_machines_train() -> None:
    found = cluster()
    command = creation(found.wanted_runs()[0], members_of(found))
    assert command[:3] == ["runs", "create", "tic_tac_toe"]
    assert command[-2:] == ["--set", "learner.ranks=3"]
    alone = cluster({name: group for name, group in MACHINES.items() if name != "helpers"})
    assert "learner.ranks=1" not in " ".join(creation(alone.wanted_runs()[0], members_of(alone)))


def test_further_runs_stand_beside_the_first_or_alone() -> None:
    assert [run.name for run in cluster(runs=[{"game": "hex"}]).wanted_runs()] == ["tic_tac_toe", "hex"]
    data = {"cluster": {"name": "c"}, "machines": {"s": {"kind": "s3", "roles": ["store"]}}, "runs": [{"game": "hex", "name": "h"}]}
    assert [run.name for run in cluster_of(data, "here").wanted_runs()] == ["h"]


def test_nothing_is_done_and_nothing_lacks_where_all_is_as_it_should_be() -> None:
    members, seen = members_of(cluster()), whole()
    assert {action.do for action in actions(cluster(), members, seen)} == {"keep"}
    assert lacking(cluster(), members, seen) == {}


@pytest.mark.parametrize(
    ("change", "do", "why"),
    [
        ("no route to host", "reach", "no route"),
        ({"works": False, "digest": ""}, "start", ""),
        ({"digest": "other"}, "restart", "something else"),
        ({"services": {"worker@selfplay.cpu": "given up: no such game"}}, "restart", "no such game"),
        ({"services": {"worker@selfplay.cpu": "is started again"}}, "keep", ""),
    ],
)
def test_what_is_missing_is_started_and_what_differs_anew(change: Any, do: str, why: str) -> None:
    members, seen = members_of(cluster()), whole()
    seen["players-1"] = change if isinstance(change, str) else told(members[1], **change)
    found = {action.member.name: action for action in actions(cluster(), members, seen)}
    assert found["players-1"].do == do
    assert why in found["players-1"].why
    assert {action.do for name, action in found.items() if name != "players-1"} == {"keep"}
    assert (lacking(cluster(), members, seen).keys() == {"players-1"}) == (change != {"digest": "other"})


def test_a_role_without_heartbeat_lacks_and_hosts_of_two_members_need_two() -> None:
    machines = {**MACHINES, "more": {"kind": "box", "roles": ["selfplay"], "hosts": ["10.0.0.3"]}}
    found = cluster(machines)
    members, seen = members_of(found), whole()
    seen["more"] = told(members[-1])
    assert lacking(found, members, seen) == {"more": ["no heartbeat of selfplay"]}
    first = seen["first"]
    assert isinstance(first, MemberReport)
    first.beats = [*(first.beats or []), Beat("selfplay", "10.0.0.3")]
    assert lacking(found, members, seen) == {}
    first.beats = [beat for beat in first.beats if beat.role != "daemon"]
    assert lacking(found, members, seen) == {"first": ["no heartbeat of daemon"]}


def test_brokers_that_say_nothing_and_runs_that_failed_are_told() -> None:
    members, seen = members_of(cluster()), whole()
    first = seen["first"]
    assert isinstance(first, MemberReport)
    seen["first"] = told(members[0], beats=first.beats, runs={"tic_tac_toe": RunSeen("failed")})
    assert lacking(cluster(), members, seen) == {"run tic_tac_toe": ["failed"]}
    seen["first"] = told(members[0], beats=first.beats)
    assert lacking(cluster(), members, seen) == {"run tic_tac_toe": ["is not there"]}
    seen["first"] = told(members[0])
    assert lacking(cluster(), members, seen) == {"first": ["the brokers tell nothing"]}
    assert replace(members[0], name="x").stage == 4


def test_each_machine_knows_what_ends_it_and_the_daemons_what_all_may_cost() -> None:
    own = cluster(budget={"hours": 2, "money": 7.5}, settings={"budget": {"with_runs": True}, "machine": {"hours": 3.0}})
    first, player, *_ = (variables(own, member) for member in members_of(own))
    of_fleet = {name: value for name, value in first.items() if name.startswith("AZQ_BUDGET__")}
    assert of_fleet == {
        "AZQ_BUDGET__HOURS": "2.0",
        "AZQ_BUDGET__MONEY": "7.5",
        "AZQ_BUDGET__SERVICES": '{"bucket": 0.02}',
        "AZQ_BUDGET__CURRENCY": "USD",
        "AZQ_BUDGET__WITH_RUNS": "true",
    }
    assert first["AZQ_MACHINE__HOURS"] == player["AZQ_MACHINE__HOURS"] == "3.0"  # the file's own word wins
    assert {name for name in player if name.startswith("AZQ_BUDGET__")} == {"AZQ_BUDGET__WITH_RUNS"}
    assert variables(cluster(), members_of(cluster())[1]).keys() == {"AZQ_HOME", "AZQ_MACHINE__KIND", "AZQ_MACHINE__PER_HOUR"}
