"""Up, status and down of a cluster whose machines are doubles: order, repair, what is noted, what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from azq.errors import ConfigError, HostError, NotFound, StateConflict
from azq.host.join.member import Beat, MemberOrder, MemberReport, RunSeen
from azq.parts.cluster.conduct import Conductor
from azq.parts.cluster.description import Budget, cluster_of
from azq.parts.cluster.members import Member, Seen

BEATING = ("selfplay", "inference", "learner")


class Machines:
    """Every machine of a cluster: what works there, and who cannot be reached."""

    def __init__(self) -> None:
        self.works: dict[str, tuple[str, Member]] = {}
        self.away: set[str] = set()
        self.refusing: set[str] = set()
        self.runs: dict[str, str] = {}
        self.done: list[tuple[str, ...]] = []

    def ask(self, member: Member, order: MemberOrder) -> MemberReport:
        if member.name in self.away:
            raise HostError("no route to host")
        if order.what != "look":
            self.done.append((order.what, member.name, *order.arguments[:3]))
        match order.what:
            case "start":
                if member.name in self.refusing:
                    raise HostError("no disk")
                assert bool(order.token) == (member.name != "first")
                self.works[member.name] = (order.digest(), member)
            case "stop":
                self.works.pop(member.name, None)
            case "run":
                _, deed, name, *_ = order.arguments
                self.runs[name] = {"create": "running", "resume": "running", "pause": "paused"}[deed]
            case "admit":
                return MemberReport("h", tokens={name: f"machine-{name}.secret." for name in order.guests})
        return self._told(member)

    def _told(self, member: Member) -> MemberReport:
        digest = self.works.get(member.name, ("", member))[0]
        found = MemberReport(member.name, works=bool(digest), digest=digest)
        if digest and "broker" in member.roles:
            there = [each for _, each in self.works.values()]
            found.beats = [Beat(role, each.name) for each in there for role in each.roles if role in BEATING]
            found.beats += [Beat("daemon", "") for each in there if "daemon" in each.roles]
            found.runs = {name: RunSeen(state) for name, state in self.runs.items()}
        return found

    def ask_all(self, orders: dict[str, tuple[Member, MemberOrder]], hear: Any = lambda name, seen: None) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for name, (member, order) in orders.items():
            try:
                found[name] = self.ask(member, order)
            except HostError as error:
                found[name] = str(error)
            hear(name, found[name])
        return found


MACHINES: dict[str, Any] = {
    "first": {"kind": "box", "roles": ["broker", "daemon"], "hosts": ["a"]},
    "train": {"kind": "box", "roles": ["learner", "inference"], "hosts": ["b"]},
    "play": {"kind": "box", "count": 2, "roles": ["selfplay"], "hosts": ["c", "d"]},
}


@pytest.fixture(name="machines")
def _machines() -> Machines:
    return Machines()


def conductor(folder: Path, machines: Machines, wanted: dict[str, Any] = MACHINES, said: list[str] | None = None) -> Conductor:
    data = {"cluster": {"name": "c"}, "kinds": {"box": {"per_hour": 0.0}}, "machines": wanted, "run": {"game": "hex"}}
    found = Conductor(cluster_of(data, "here"), folder / "c.toml", (said if said is not None else []).append)
    found._reach = machines  # type: ignore[assignment]
    return found


def test_up_starts_the_first_then_the_run_then_all_others_and_down_undoes_it_in_reverse(tmp_path: Path, machines: Machines) -> None:
    assert conductor(tmp_path, machines).up(5.0) == {}
    assert [deed[:2] for deed in machines.done] == [
        ("start", "first"),
        ("run", "first"),
        ("admit", "first"),
        ("start", "train"),
        ("start", "play-1"),
        ("start", "play-2"),
    ]
    note = tmp_path / ".c.cluster.json"
    assert note.stat().st_mode & 0o777 == 0o600
    assert "secret" not in note.read_text()
    machines.done.clear()
    assert conductor(tmp_path, machines).up(5.0) == {}
    assert machines.done == []
    assert conductor(tmp_path, machines).status()["whole"]
    assert conductor(tmp_path, machines).down() == {}
    assert machines.done[0] == ("run", "first", "runs", "pause", "hex")
    assert [name for _, name, *_ in machines.done[1:]] == ["play-1", "play-2", "train", "first"]
    assert (machines.works, note.exists()) == ({}, False)
    with pytest.raises(NotFound, match="not up"):
        conductor(tmp_path, machines).down()


def test_up_again_mends_what_is_missing_and_resumes_what_rests(tmp_path: Path, machines: Machines) -> None:
    conductor(tmp_path, machines).up(5.0)
    del machines.works["play-1"]
    machines.runs["hex"] = "paused"
    machines.done.clear()
    assert conductor(tmp_path, machines).status()["missing"] == {"play-1": ["does not work"]}
    assert conductor(tmp_path, machines).up(5.0) == {}
    assert machines.done == [("run", "first", "runs", "resume", "hex"), ("admit", "first"), ("start", "play-1")]


def test_nothing_is_started_that_money_should_end_and_that_has_no_price(tmp_path: Path, machines: Machines) -> None:
    unpriced = conductor(tmp_path, machines)
    kinds = {"box": unpriced.cluster.kinds["box"].model_copy(update={"per_hour": None})}
    unpriced.cluster = unpriced.cluster.model_copy(update={"kinds": kinds, "budget": Budget(money=5.0)})
    with pytest.raises(ConfigError, match="no price of 'box'"):
        unpriced.up(5.0)
    assert machines.done == []
    unpriced.cluster = unpriced.cluster.model_copy(update={"budget": Budget(hours=5.0)})
    assert unpriced.up(5.0) == {}


def test_up_refuses_what_check_refuses(tmp_path: Path, machines: Machines) -> None:
    paid = conductor(tmp_path, machines)
    paid.cluster = paid.cluster.model_copy(update={"kinds": {"box": paid.cluster.kinds["box"].model_copy(update={"per_hour": 1.0})}})
    idle = conductor(tmp_path, machines, {name: group for name, group in MACHINES.items() if name != "play"})
    for wrong, said in ((paid, "run hex: nothing ends it, and an hour costs 4.00"), (idle, "machines: no machine makes games")):
        with pytest.raises(ConfigError, match=f"cluster c: {said}"):
            wrong.up(5.0)
    assert machines.done == []


def test_a_machine_that_never_joins_is_named_and_still_found_by_down(tmp_path: Path, machines: Machines) -> None:
    machines.away, machines.refusing = {"play-1"}, {"play-2"}
    lack = conductor(tmp_path, machines).up(5.0)
    assert lack == {"play-1": ["not started: no route to host"], "play-2": ["not started: no disk"]}
    assert conductor(tmp_path, machines).down() == {"play-1": "no route to host"}
    assert list(conductor(tmp_path, machines).noted()) == ["play-1"]
    machines.away = set()
    assert conductor(tmp_path, machines).down() == {}


def test_without_its_first_machine_nothing_is_started(tmp_path: Path, machines: Machines) -> None:
    machines.away = {"first"}
    with pytest.raises(HostError, match="first: no route to host; nothing can be started without it"):
        conductor(tmp_path, machines).up(5.0)
    assert machines.done == []


def test_down_stops_what_the_file_no_longer_names(tmp_path: Path, machines: Machines) -> None:
    conductor(tmp_path, machines).up(5.0)
    fewer = {name: group for name, group in MACHINES.items() if name != "play"}
    assert conductor(tmp_path, machines, fewer).status()["strays"] == ["play-1", "play-2"]
    conductor(tmp_path, machines, fewer).down()
    assert machines.works == {}


def test_one_command_at_a_time_and_a_damaged_note_is_named(tmp_path: Path, machines: Machines) -> None:
    with (
        conductor(tmp_path, machines).alone(),
        pytest.raises(StateConflict, match="works on this cluster"),
        conductor(tmp_path, machines).alone(),
    ):
        pass
    (tmp_path / ".c.cluster.json").write_text("[]")
    with pytest.raises(ConfigError, match="mend or delete"):
        conductor(tmp_path, machines).down()
