"""The machines of a cluster one by one: what each is to do, what each is asked, what is to happen where it does something else. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from azq.config import merge
from azq.config.host import TLS_SCHEME
from azq.errors import ConfigError
from azq.host.join.member import Beat, MemberOrder, MemberReport
from azq.parts.cluster.description import Cluster, FirstRun, as_variables

HERE = "127.0.0.1"
NOT_OURS = ("store", "metrics")  # a provider's
START_S = 60.0
STAGES = (("selfplay", "eval", "gateway"), ("learner", "rank"), ("inference",), ("daemon",), ("broker",))
BEATING = ("selfplay", "eval", "inference", "learner", "gateway")  # roles whose processes tell by heartbeat that they live

Seen = MemberReport | str  # what a member answered, or why it did not


@dataclass(frozen=True, slots=True)
class Member:
    """One machine in one of its groups."""

    name: str
    host: str  # as it is reached; empty: this machine
    roles: tuple[str, ...]
    folder: str
    home: str
    concurrency: int = 0
    rank: int | None = None
    kind: str = ""
    per_hour: float | None = None
    learner_host: str = ""  # of a rank, and of rank 0: that one's address, where it is not the brokers'

    @property
    def address(self) -> str:
        return self.host.rpartition("@")[2] or HERE

    @property
    def stage(self) -> int:
        """When it is stopped: after those who need it."""
        return max(stage for stage, roles in enumerate(STAGES) if set(roles) & set(self.roles))


def members_of(cluster: Cluster, home: str = "") -> list[Member]:
    """Who keeps the brokers first, then who has the daemon. `home`: of this machine, where all of them are its processes.

    Raises `ConfigError` for a group without hosts, and for a cluster that has no machine for its brokers or several.
    """
    result = [member for name in cluster.machines for member in _of_group(cluster, name, home)]
    brokers = [member.name for member in result if "broker" in member.roles]
    if len(brokers) != 1:
        who = ", ".join(brokers) or "none"
        raise ConfigError(f"cluster {cluster.name}: one machine keeps all brokers (broker.data_shards says how many), and there are: {who}")
    result.sort(key=lambda member: ("broker" not in member.roles, "daemon" not in member.roles))
    ranks = [member.name for member in result if "rank" in member.roles]
    if not ranks:
        return result
    numbers = {name: number for number, name in enumerate(ranks, 1)} | {other.name: 0 for other in result if "learner" in other.roles}
    away = next((other.address for other in result[1:] if "learner" in other.roles and other.host), "")  # of jobs no host is known yet
    return [replace(member, rank=numbers[member.name], learner_host=away) if member.name in numbers else member for member in result]


def _of_group(cluster: Cluster, name: str, home: str) -> Iterator[Member]:
    group = cluster.machines[name]
    roles = tuple(role for role in group.roles if role not in NOT_OURS and not (role == "rank" and "learner" in group.roles))
    if cluster.kinds[group.kind].service:
        if roles:
            raise ConfigError(f"machines.{name}: azq starts no {group.kind}; give the role {roles[0]!r} to a machine")
        return
    if not (group.hosts or home):
        raise ConfigError(f"machines.{name} names no hosts; write hosts = [...], or let all be processes of this machine with --local")
    price = cluster.kinds[group.kind].per_hour
    place = f"{home}/.clusters/{cluster.name}" if home else f"{cluster.folder}/clusters/{cluster.name}"
    for number, host in enumerate(("",) * group.count if home else group.hosts, 1):
        own = f"{name}-{number}" if group.count > 1 else name
        yield Member(own, host, roles, f"{place}/{own}", home or f"{cluster.folder}/runs", group.concurrency, None, group.kind, price)


def url_of(cluster: Cluster, first: Member, place: int = 0) -> str:
    """Where the others reach the brokers."""
    return f"{TLS_SCHEME}://{first.address}:{cluster.port + place}/0"


def start_order(cluster: Cluster, member: Member, first: Member, token: str = "") -> MemberOrder:
    """What starts a member."""
    join = [url_of(cluster, first), "--roles", ",".join(member.roles)]
    join += [word for run in cluster.wanted_runs() if {"learner", "rank"} & set(member.roles) for word in ("--run", run.name)]
    join += ["--rank", str(member.rank)] if member.rank is not None else []
    join += ["--learner-host", member.learner_host] if member.learner_host else []
    join += ["--concurrency", str(member.concurrency)] if member.concurrency else []
    if "daemon" in member.roles and member != first:
        join += ["--data", url_of(cluster, first, 1)]  # which no daemon tells yet
    return MemberOrder("start", member.folder, variables(cluster, member), join, token=token, within_s=START_S)


def admit_order(cluster: Cluster, first: Member, guests: Iterable[Member]) -> MemberOrder:
    """What lets members in."""
    public = {"AZQ_BROKER__PUBLIC_CONTROL_URL": url_of(cluster, first)}
    return MemberOrder(
        "admit", first.folder, variables(cluster, first) | public, guests={other.name: list(other.roles) for other in guests}
    )


def variables(cluster: Cluster, member: Member) -> dict[str, str]:
    """The settings of a member's processes, as variables: what it costs and what ends it, and what the file sets for all."""
    machine = {"kind": member.kind or None, "per_hour": member.per_hour, "hours": cluster.budget.hours}
    own = {"machine": machine, "budget": budget_of(cluster) if "daemon" in member.roles else {}}
    sections = {
        name: {key: value for key, value in values.items() if value not in (None, {})}
        for name, values in merge(own, cluster.settings).items()
    }
    return {"AZQ_HOME": member.home, **as_variables(sections)}


def budget_of(cluster: Cluster) -> dict[str, Any]:
    """What its daemon guards: the section `[budget]` of that host; empty without a budget."""
    kinds = {name: cluster.kinds[group.kind] for name, group in cluster.machines.items()}
    services = {name: cluster.machines[name].count * kind.per_hour for name, kind in kinds.items() if kind.service and kind.per_hour}
    wanted = cluster.budget.model_dump()
    return {**wanted, "services": services, "currency": cluster.currency} if any(wanted.values()) else {}


def creation(wish: FirstRun, members: Sequence[Member]) -> list[str]:
    """The command that creates a run; with ranks on separate machines it gets as many."""
    ranks = 1 + sum("rank" in member.roles for member in members)
    return [*wish.created_by()[1:], *(("--set", f"learner.ranks={ranks}") if ranks > 1 else ())]


@dataclass(frozen=True, slots=True)
class MemberAction:
    """What is to happen with a member, and why."""

    member: Member
    do: Literal["keep", "start", "restart", "reach"]  # reach: nothing can happen before it is reached
    why: str = ""

    def __str__(self) -> str:
        return f"{'not reached' if self.do == 'reach' else self.do}{f': {self.why}' if self.why else ''}"


def actions(cluster: Cluster, members: Sequence[Member], seen: Mapping[str, Seen]) -> list[MemberAction]:
    """What brings a cluster from what is there to what should be."""
    return [_action(member, seen[member.name], start_order(cluster, member, members[0]).digest()) for member in members]


def _action(member: Member, seen: Seen, digest: str) -> MemberAction:
    if isinstance(seen, str):
        return MemberAction(member, "reach", seen)
    if not seen.works:
        return MemberAction(member, "start")
    if seen.digest != digest:
        return MemberAction(member, "restart", "does something else")
    given_up = [f"{name} {state}" for name, state in seen.services.items() if state.startswith("given up")]
    return MemberAction(member, "restart", given_up[0]) if given_up else MemberAction(member, "keep")


def lacking(cluster: Cluster, members: Sequence[Member], seen: Mapping[str, Seen]) -> dict[str, list[str]]:
    """What is missing, by member; and by run, as `run NAME`. Nothing where all is as it should be."""
    first = seen.get(members[0].name)
    beats = first.beats if isinstance(first, MemberReport) and first.works else None
    needed: Counter[tuple[str, str]] = Counter()
    result = {member.name: list(_own_lack(member, seen[member.name])) for member in members}
    for member in members:
        report = seen[member.name]
        if isinstance(report, str) or not report.works:
            continue
        if beats is None:
            result[member.name] += ["the brokers tell nothing"] if member is members[0] else []
            continue
        needed.update((role, report.host) for role in member.roles if role in BEATING)
        result[member.name] += [f"no heartbeat of {what}" for what in _silent(member, report.host, beats, needed)]
    states = {name: run.state for name, run in _runs(first).items()}
    for name in [run.name for run in cluster.wanted_runs()] if beats is not None else []:
        result[f"run {name}"] = [] if name in states and states[name] != "failed" else [states.get(name, "is not there")]
    return {name: what for name, what in result.items() if what}


def _own_lack(member: Member, seen: Seen) -> Iterator[str]:
    if isinstance(seen, str):
        yield f"not reached: {seen}"
    elif not seen.works:
        yield "does not work" + (f": {seen.output.rpartition(' | ')[2]}" if seen.output else "")
    else:
        yield from (f"{name} {state}" for name, state in seen.services.items() if state != "works")


def _silent(member: Member, host: str, beats: Iterable[Beat], needed: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Roles of a member that no process tells of; several members of one host need as many of each."""
    there = Counter((beat.role, beat.host) for beat in beats)
    for role in member.roles:
        if role in BEATING and there[role, host] < needed[role, host]:
            yield role
        if role == "daemon" and not there["daemon", ""]:
            yield role


def _runs(seen: Seen | None) -> Mapping[str, Any]:
    return seen.runs if isinstance(seen, MemberReport) else {}


def waves(members: Sequence[Member]) -> list[list[Member]]:
    """In which order members are stopped: who is needed last."""
    stages = sorted({member.stage for member in members})
    return [[member for member in members if member.stage == stage] for stage in stages]
