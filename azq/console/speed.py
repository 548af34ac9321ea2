"""`azq doctor --speed`: what a run's speed hangs on, search, network, queue, learner or limiter, and the one setting to change."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from azq.config import Config, RunSections
from azq.console.profile import EVERY_S, Look, RoleProfile, as_text, concerns, profile_of
from azq.console.show import only_run
from azq.errors import NotFound
from azq.host import brokers
from azq.ledger import Ledger
from azq.ledger.records import sections_of
from azq.process.proc import usable_cores
from azq.status.observe import Watch, read_workers
from azq.status.summary import RunStatus
from azq.status.why.rules import Change

FULL = 0.85  # of the cores: then what takes most of them holds up all else
BUSY = 0.85  # of its time: a learner that hardly ever waits
HELD = 0.3  # of the looks: a side that the limiter holds back as often
WORKS = 0.5  # of their time: inference workers that are not idle
OWN = 0.5  # of the CPU that a wait could have had: then it is none

Part = Literal["search", "network", "queue", "learner", "limiter"]
#: whose work a phase is, by role; what is not named here waits for others, or is too little to matter
OF_PART: Mapping[str, Mapping[str, Part]] = {
    "selfplay": {"search": "search", "encode": "search", "wait": "network", "transport": "queue", "ledger": "queue"},  # see `asks`
    "inference": {"forward": "network", "copy": "network", "weights": "network", "collect": "queue", "reply": "queue"},
    "learner": dict.fromkeys(
        ("load", "forward", "loss", "backward", "update", "sync", "intake", "publish", "checkpoint", "other"), "learner"
    ),
}
NAMES: Mapping[Part, str] = {"search": "search", "network": "forward passes", "queue": "moving requests and games", "learner": "training"}


@dataclass(frozen=True, slots=True)
class SpeedFacts:
    """A run at work, watched for a while."""

    profiles: Sequence[RoleProfile]
    stalled: float  # share of the looks at which the limiter held self-play back
    waiting: float  # and the learner
    status: RunStatus
    sections: RunSections
    cores: int | None  # of this machine, where all of the run's processes are; None: they are elsewhere
    precision: str = "auto"  # of forward passes

    def share(self, role: str, *phases: str) -> float:
        """Of a role's time, spent in these phases."""
        return sum(row.wall_share for each in self.profiles if each.role == role for row in each.rows if row.phase in phases)

    @property
    def used(self) -> Mapping[Part, float]:
        """Cores that each part of the work takes."""
        found: dict[Part, float] = {"search": 0.0, "network": 0.0, "queue": 0.0, "learner": 0.0}
        for each in self.profiles:
            for row in each.rows:
                if part := OF_PART[each.role].get(row.phase):
                    found[part] += row.cpu_cores
        return found

    @property
    def asks(self) -> bool:
        """Whether self-play asks inference workers: to wait for them costs it nothing, while whoever evaluates for himself pays for it."""
        waits = [(each, row) for each in self.profiles if each.role == "selfplay" for row in each.rows if row.phase == "wait"]
        served = any(each.role == "inference" for each in self.profiles)
        return served and all(row.cpu_cores < OWN * row.wall_share * each.processes for each, row in waits)

    @property
    def spare(self) -> bool:
        """Whether this machine has cores left for more processes or threads."""
        return self.cores is not None and sum(each.cpu_cores for each in self.profiles) <= self.cores - 1


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What more of would make the run faster."""

    part: Part
    evidence: str
    setting: Change

    def __str__(self) -> str:
        return f"{self.part}: {self.evidence}; {self.setting}"


def bottleneck(facts: SpeedFacts) -> Bottleneck:
    """The first that holds: a limiter that waits by its settings, full cores, a learner that is behind; else what self-play does."""
    return _limiter(facts) or _cores(facts) or _learner(facts) or _selfplay(facts)


def _limiter(facts: SpeedFacts) -> Bottleneck | None:
    learner, samples = facts.sections.learner, facts.status.samples
    if samples < learner.min_window:
        evidence = f"nothing is trained before {learner.min_window:,} samples are there; {samples:,} are"
        return Bottleneck(
            "limiter", evidence, Change("learner.min_window", learner.min_window, max(learner.batch_size, learner.min_window // 4))
        )
    if facts.stalled >= HELD and facts.waiting >= HELD:
        evidence = (
            f"it holds self-play back at {facts.stalled:.0%} of the looks and the learner at {facts.waiting:.0%}: they wait for each other"
        )
        return Bottleneck("limiter", evidence, _times("learner.limiter_slack", learner.limiter_slack, 4))
    return None


def _cores(facts: SpeedFacts) -> Bottleneck | None:
    """Where the cores are full, the part that takes most of them."""
    used = facts.used
    taken = sum(each.cpu_cores for each in facts.profiles)
    if facts.cores is None or taken < FULL * facts.cores:
        return None
    most = max(used, key=lambda part: used[part])
    evidence = f"{taken:.1f} of {facts.cores} cores are at work, {used[most]:.1f} of them with {NAMES[most]}"
    return Bottleneck(most, evidence, _cheaper(most, facts))


def _learner(facts: SpeedFacts) -> Bottleneck | None:
    """Where self-play is ahead, or the learner never waits."""
    busy = 1.0 - facts.share("learner", "idle")
    if facts.stalled < HELD and (busy < BUSY or facts.waiting >= HELD):
        return None
    held = (
        f"self-play is held back at {facts.stalled:.0%} of the looks"
        if facts.stalled >= HELD
        else f"the learner works {busy:.0%} of its time"
    )
    phases = {row.phase: row.wall_share for each in facts.profiles if each.role == "learner" for row in each.rows if row.phase != "idle"}
    longest = max(phases, key=lambda phase: phases[phase], default="other")
    return Bottleneck("learner", f"{held}, {phases.get(longest, 0.0):.0%} of it with {longest}", _faster_learner(longest, facts))


def _selfplay(facts: SpeedFacts) -> Bottleneck:
    """The learner waits for games: what self-play does meanwhile."""
    search, wait = facts.share("selfplay", "search", "encode"), facts.share("selfplay", "wait")
    moving = facts.share("selfplay", "transport", "ledger")
    spends = f"searches {search:.0%} of its time, waits for evaluations {wait:.0%}, moves data {moving:.0%}"
    evidence = f"the learner waits for games; self-play {spends}"
    selfplay = facts.sections.selfplay
    if moving > max(search, wait):
        return Bottleneck("queue", evidence, _times("selfplay.journal_s", selfplay.journal_s, 2))
    if search >= wait:
        processes = sum(each.processes for each in facts.profiles if each.role == "selfplay")
        more = Change("worker.concurrency", processes, processes + 1) if facts.spare else _cheaper("search", facts)
        return Bottleneck("search", evidence, more)
    works = facts.share("inference", "forward", "copy", "weights")
    if facts.asks and works < WORKS:
        evidence += f", while inference workers evaluate {works:.0%} of theirs, {facts.status.mean_batch:.0f} leaves at once"
        return Bottleneck("queue", evidence, _more_at_once(facts))
    return Bottleneck("network", evidence, _cheaper("network", facts))


def _more_at_once(facts: SpeedFacts) -> Change:
    """What has more requests on their way, where evaluations wait on the road."""
    selfplay = facts.sections.selfplay
    if selfplay.answer_within_ms:
        return _times("selfplay.answer_within_ms", selfplay.answer_within_ms, 2)
    return _times("selfplay.games_in_flight", selfplay.games_in_flight, 2)


def _faster_learner(phase: str, facts: SpeedFacts) -> Change:
    learner = facts.sections.learner
    if phase == "load":
        return Change("learner.prefetch_batches", learner.prefetch_batches, learner.prefetch_batches + 2)
    if phase == "sync":
        return _times("learner.sync_every", learner.sync_every, 8)
    if phase == "publish":
        return _times("learner.publish_every_s", learner.publish_every_s, 2)
    if phase == "checkpoint":
        return _times("learner.checkpoint_every_s", learner.checkpoint_every_s, 2)
    if facts.spare and learner.threads and facts.cores:
        return Change("learner.threads", learner.threads, facts.cores)
    return _cheaper("learner", facts)


def _cheaper(part: Part, facts: SpeedFacts) -> Change:
    """What makes a part cost less, where more of it is not to be had."""
    sections = facts.sections
    if part == "search":
        return Change("search.num_simulations", sections.search.num_simulations, max(sections.search.num_simulations // 2, 8))
    if part == "network":
        if facts.precision == "float32":
            return Change("inference.precision", facts.precision, "auto")
        if not sections.selfplay.cache_entries:
            return Change("selfplay.cache_entries", 0, 524_288)
        return Change("network.channels", sections.network.channels, max(8, sections.network.channels * 2 // 3 // 8 * 8))
    if part == "learner":
        return Change("learner.samples_per_insert", sections.learner.samples_per_insert, sections.learner.samples_per_insert / 2)
    return _more_at_once(facts)


def _times(key: str, now: Any, factor: int) -> Change:
    return Change(key, now, now * factor)


@dataclass(frozen=True, slots=True)
class SpeedReport:
    """What was found, and what it rests on."""

    run: str
    seconds: float
    bottleneck: Bottleneck
    facts: SpeedFacts

    def values(self) -> dict[str, Any]:
        """For machines."""
        facts = self.facts
        shares = {"selfplay_stalled": facts.stalled, "learner_waiting": facts.waiting, "cores": facts.cores, "cores_used": dict(facts.used)}
        return {
            "run": self.run,
            "seconds": self.seconds,
            "bottleneck": asdict(self.bottleneck),
            **shares,
            "profile": [asdict(each) for each in facts.profiles],
        }

    def text(self) -> list[str]:
        """For people: the verdict, then where the time went."""
        return [str(self.bottleneck), f"run {self.run} watched for {self.seconds:.0f} s:", as_text(self.facts.profiles)]


def examine_speed(config: Config, named: str | None, seconds: float, wait: Callable[[float], object] | None = None) -> SpeedReport:
    """Watches a run at work, the only one where none is named. Raises `NotFound` where nobody works for it."""
    settings, client = brokers.open_control(config)
    with contextlib.closing(client):
        watch, ledger, pause = Watch(client), Ledger(client), wait or threading.Event().wait
        run = named or only_run(ledger)
        sections = sections_of(ledger.run(run).record)
        looks: list[Look] = []
        seen: list[RunStatus] = []
        for number in range(max(1, round(seconds / EVERY_S))):
            if number:
                pause(EVERY_S)
            looks.append(read_workers(watch.bus))
            seen.append(watch.summary(run))
    found = profile_of(looks, run)
    if not found:
        raise NotFound(f"no live process works for run {run!r}; `azq status` lists the runs, `azq up --run {run}` starts one")
    hosts = {beat.host for look in looks for beat in look if concerns(beat, run)}
    facts = SpeedFacts(
        found,
        sum(each.selfplay_stalled for each in seen) / len(seen),
        sum(each.learner_waiting for each in seen) / len(seen),
        seen[-1],
        sections,
        usable_cores() if hosts == {socket.gethostname()} else None,
        settings.inference.precision,
    )
    return SpeedReport(run, seconds, bottleneck(facts), facts)
