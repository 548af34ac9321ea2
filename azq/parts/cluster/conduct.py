"""Brings a cluster up, inspects it and takes it down: sends the machines the orders that `members.py` decides."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from azq.errors import ConfigError, HostError, NotFound
from azq.files import locked, publish_file
from azq.host.join.member import MemberOrder, MemberReport
from azq.parts.cluster.checks import refuse
from azq.parts.cluster.description import Cluster, FirstRun
from azq.parts.cluster.members import (
    Member,
    MemberAction,
    Seen,
    actions,
    admit_order,
    creation,
    lacking,
    members_of,
    start_order,
    variables,
    waves,
)
from azq.parts.cluster.reach import Reach

LOOK_S = 1.0
ANSWER_S = 5.0
STOP_S = 150.0  # longer than a learner takes for its last checkpoint
REASON = "azq cluster down"

Echo = Callable[[str], None]


class Conductor:
    """One cluster, from its file and what was noted of it beside the file."""

    def __init__(self, cluster: Cluster, file: Path, echo: Echo, home: str = "") -> None:
        self.cluster = cluster
        self.members = members_of(cluster, home)
        self._first = self.members[0]
        self._chief = next((member for member in self.members if "daemon" in member.roles), self._first)
        self._names = {member.name: member for member in self.members}
        self._note = file.absolute().with_name(f".{file.stem}.cluster.json")
        self._echo = echo
        self._reach = Reach(cluster.ssh)
        self._seen: dict[str, Seen] = {}  # what each answered last

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One command at a time changes a cluster. Raises `StateConflict` naming the other, `ConfigError` where nothing can be noted."""
        try:
            with locked(self._note.with_suffix(".lock"), lambda pid: f"process {pid} works on this cluster; wait for it, or end it"):
                yield
        except OSError as error:
            raise ConfigError(f"{self._note} cannot be written: {error.strerror}; keep the cluster's file where you may write") from None

    # -- up

    def up(self, within_s: float) -> dict[str, list[str]]:
        """Starts what is missing and waits until all of it is there; returns what is not.

        Raises `ConfigError` for what `azq cluster check` refuses, `HostError` where nothing can work.
        """
        refuse(self.cluster)
        plan = actions(self.cluster, self.members, self.inspect())
        todo = [action for action in plan if action.do != "keep"]
        if not (todo or self._waiting_runs() or self.lack()):
            return {}
        self._remember(self.noted() | self._names)
        for action in todo:
            self._echo(f"{action.member.name}: {action}")
        ahead = 1 if self._chief is self._first else 2  # a daemon creates runs and announces where the brokers are
        for action in plan[:ahead]:
            self._must(action)
        self._await_daemon(within_s)
        self._create_runs()
        return self._await_health(within_s, self._start(plan[ahead:]))

    def _must(self, action: MemberAction) -> None:
        """Carries out a action without which nothing else can be done; raises `HostError`."""
        if failed := self._start([action]):
            raise HostError("; ".join(f"{name}: {why}" for name, why in failed.items()) + "; nothing can be started without it")

    def _start(self, plan: Sequence[MemberAction]) -> dict[str, str]:
        """Lets machines in and starts them, all at once; returns why some were not."""
        failed = {action.member.name: action.why for action in plan if action.do == "reach"}
        starts = {action.member.name: action.member for action in plan if action.do in ("start", "restart")}
        self._reach.ask_all({action.member.name: (action.member, stop_order(action.member)) for action in plan if action.do == "restart"})
        guests = [member for member in starts.values() if member is not self._first]
        tokens = self._reach.ask(self._first, admit_order(self.cluster, self._first, guests)).tokens if guests else {}
        orders = {name: (member, start_order(self.cluster, member, self._first, tokens.get(name, ""))) for name, member in starts.items()}

        def hear(name: str, seen: Seen) -> None:
            if isinstance(seen, str):
                failed[name] = seen
            self._echo(f"{name}: {seen if isinstance(seen, str) else ', '.join(starts[name].roles) + ' started'}")

        self._reach.ask_all(orders, hear)
        return failed

    def _run(self, *arguments: str) -> None:
        """A command of azq's where the daemon is. Raises `HostError`."""
        settings = variables(self.cluster, self._chief)
        report = self._reach.ask(self._chief, MemberOrder("run", self._chief.folder, settings, arguments=list(arguments)))
        if report.code:
            raise HostError(f"{self._chief.name}: `azq {' '.join(arguments[:3])}` failed: {report.output.rpartition('azq: ')[2]}")

    def _create_runs(self) -> None:
        """Creates the runs of the file that are not there, and goes on with those that rest because the cluster was down."""
        for wish, there in self._waiting_runs():
            self._run(*(["runs", "resume", wish.name] if there else creation(wish, self.members)))
            self._echo(f"run {wish.name}: {'goes on' if there else 'created'}")

    def _waiting_runs(self) -> list[tuple[FirstRun, bool]]:
        """Runs of the file that are to be created, or resumed, which then is true."""
        seen = self._seen[self._first.name]
        there = seen.runs if isinstance(seen, MemberReport) else {}
        wanted = self.cluster.wanted_runs()
        return [(wish, wish.name in there) for wish in wanted if wish.name not in there or there[wish.name].state == "paused"]

    def _await_daemon(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not _has(self.inspect([self._first])[self._first.name], "daemon"):
            if time.monotonic() > deadline:
                raise HostError(
                    f"{self._chief.name}: no daemon within {within_s:g} s; see its logs in {self._chief.folder}, "
                    "and `azq cluster down` undoes what is there"
                )
            threading.Event().wait(LOOK_S)

    def _await_health(self, within_s: float, failed: Mapping[str, str]) -> dict[str, list[str]]:
        deadline, report = time.monotonic() + within_s, ""
        while True:
            self.inspect()
            lack = self.lack() | {name: [f"not started: {why}"] for name, why in failed.items()}
            if lack.keys() <= failed.keys() or time.monotonic() > deadline:
                return lack
            if (now := "; ".join(f"{name}: {', '.join(what)}" for name, what in lack.items())) != report:
                self._echo(f"waiting: {now}")
                report = now
            threading.Event().wait(LOOK_S)

    # -- status

    def inspect(self, some: Sequence[Member] = ()) -> dict[str, Seen]:
        """What each member answers, or some of them; beside what the others answered before."""
        orders = {}
        for member in some or self.members:
            settings = variables(self.cluster, member) if member is self._first else {}
            orders[member.name] = (member, MemberOrder("look", member.folder, settings, within_s=ANSWER_S))
        self._seen |= self._reach.ask_all(orders)
        return self._seen

    def lack(self) -> dict[str, list[str]]:
        """What was missing at the last look."""
        return lacking(self.cluster, self.members, self._seen)

    def status(self) -> dict[str, Any]:
        """Each machine with its roles, processes and what is missing; runs; and the machines that are noted and no longer in the file."""
        seen, lack = self._seen or self.inspect(), self.lack()
        rows = [_row(member, seen[member.name], lack.get(member.name, [])) for member in self.members]
        first = seen[self._first.name]
        runs = {name: msgspec.structs.asdict(run) for name, run in first.runs.items()} if isinstance(first, MemberReport) else {}
        strays = sorted(self.noted().keys() - self._names.keys())
        return {"cluster": self.cluster.name, "whole": not lack, "machines": rows, "runs": runs, "missing": lack, "strays": strays}

    # -- down

    def down(self) -> dict[str, str]:
        """Drains and stops everything that was ever noted; returns who could not be reached. Raises `NotFound` where nothing was."""
        noted_members = self.noted()
        if not noted_members:
            raise NotFound(f"{self._note} notes no machine: this cluster is not up; `azq cluster up` starts it")
        first = self.inspect([self._first])[self._first.name]
        for name in [name for name, run in first.runs.items() if run.state == "running"] if isinstance(first, MemberReport) else []:
            try:
                self._run("runs", "pause", name, "--reason", REASON)
                self._echo(f"run {name}: paused")
            except HostError as error:  # its games go back all the same
                self._echo(f"run {name}: {error}")
        lost: dict[str, str] = {}
        for wave in waves(list({**self._names, **noted_members}.values())):
            answers = self._reach.ask_all({member.name: (member, stop_order(member)) for member in wave}, self._echo_stop)
            lost |= {name: answer for name, answer in answers.items() if isinstance(answer, str) and name in noted_members}
        self._remember({name: member for name, member in noted_members.items() if name in lost})
        return lost

    def _echo_stop(self, name: str, seen: Seen) -> None:
        self._echo(f"{name}: {f'not reached: {seen}' if isinstance(seen, str) else 'stopped'}")

    # -- what is noted

    def noted(self) -> dict[str, Member]:
        """Every machine that was ever started and not stopped since."""
        try:
            document = json.loads(self._note.read_text("utf-8"))
            return {row["name"]: Member(**{**row, "roles": tuple(row["roles"])}) for row in document["members"]}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{self._note}, which tells what was started, cannot be read: {error}; mend or delete it") from None

    def _remember(self, noted_members: Mapping[str, Member]) -> None:
        """Before a machine is started, so that `down` finds it whatever happens."""
        if noted_members:
            rows = [asdict(member) for member in noted_members.values()]
            publish_file(self._note, json.dumps({"cluster": self.cluster.name, "members": rows}, indent=1).encode(), 0o600)
        else:
            self._note.unlink(missing_ok=True)


def stop_order(member: Member) -> MemberOrder:
    """What drains and stops a member."""
    return MemberOrder("stop", member.folder, within_s=STOP_S)


def _has(seen: Seen, role: str) -> bool:
    return isinstance(seen, MemberReport) and any(beat.role == role for beat in seen.beats or ())


def _row(member: Member, seen: Seen, missing: Sequence[str]) -> dict[str, Any]:
    report = seen if isinstance(seen, MemberReport) else None
    return {
        "name": member.name,
        "host": member.host or "this machine",
        "roles": list(member.roles),
        "works": bool(report and report.works),
        "services": report.services if report else {},
        "missing": list(missing),
    }
