"""`azq doctor`: all that a fleet's work rests on, and with `--speed` what a run's speed hangs on; each with what to change."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import redis

from azq import games
from azq.bus.redis import RedisBus
from azq.bus.server_program import find_server
from azq.clock import now_ms
from azq.config import Config, RunSections
from azq.config.access import check_binding, check_tls, with_own_token
from azq.console.profile import RoleProfile, as_text, concerns, looks, profile_of
from azq.console.show import ASK_TIMEOUT_S, only_run
from azq.errors import AzqError, BrokerAbsent, ConfigError
from azq.findings import Change, Finding
from azq.host import brokers
from azq.host.devices import Machine, Wishes, detect, plan, vanished
from azq.host.join import checks
from azq.host.rundir import check_folder
from azq.host.users import NO_USERS, knows_roles
from azq.ledger import Ledger
from azq.ledger.records import sections_of
from azq.ledger.types import RunState, RunView
from azq.process.proc import usable_cores
from azq.status.conditions import CrashLoop, crash_loops, mendings, read_deaths
from azq.status.observe import Watch, read_workers
from azq.status.summary import RunStatus
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Heartbeat
from azq.wire.shards import data_names

LEAST_FREE_BYTES = 5e9  # as the alert on the learner's disk
NEEDED = (Kind.SELFPLAY, "inference", "learner")  # roles without which a run makes no progress


def examine(config: Config) -> Iterator[Finding]:
    """One answer after the other; none raises. Starts nothing and changes nothing."""
    yield from _guarded("game", lambda: [_game(config)])
    yield from _guarded("home", lambda: [_home(config.home)])
    yield from _guarded("rest", lambda: [_rest(config)])
    yield from judge_devices(config, detect())
    if not config.broker.control_url:
        folder = config.home.absolute() / brokers.BROKER_FOLDER / "control"
        yield from _guarded("server", lambda: [Finding("server", "ok", f"{find_server(folder)} is what `azq up` starts")])
    try:
        resolved = brokers.resolve(config)
        with contextlib.closing(connect(resolved.broker.control_url, timeout_s=ASK_TIMEOUT_S)) as control:
            yield from _fleet(resolved, control)
    except AzqError as error:
        if config.broker.control_url or not isinstance(error, (ConfigError, BrokerAbsent)):
            yield Finding("control", "fail", str(error))
        else:
            why = "none was ever started" if isinstance(error, ConfigError) else str(error).partition(";")[0]
            yield Finding("brokers", "warn", f"none runs for {config.home.absolute()} ({why}): `azq up` starts them")


def _fleet(config: Config, control: redis.Redis) -> Iterator[Finding]:
    yield from _guarded("control", lambda: checks.check_broker(control, "control"))
    planes = config.broker.data_planes
    for name, url in zip(data_names(len(planes)), planes, strict=True):
        yield from _guarded(name, partial(_data_plane, url, name))
    yield from _guarded("users", lambda: [_users(config)])
    yield from _guarded("clock", lambda: [checks.check_clock(control)])
    yield from _guarded("daemon", lambda: [checks.check_fleet(checks.read_fleet(control))])
    yield from _guarded("workers", lambda: _workers(RedisBus(control), Ledger(control)))
    yield from _guarded("ledger", lambda: _ledgers(RedisBus(control), Ledger(control)))
    yield from _guarded("weights", lambda: [_weights(config, control)])


def _ledgers(bus: RedisBus, ledger: Ledger) -> list[Finding]:
    return [Finding("ledger", "warn", f"run {run}: {text}") for run in ledger.names() for text in mendings(bus, run, now_ms())]


def _workers(bus: RedisBus, ledger: Ledger) -> list[Finding]:
    return judge_workers(read_workers(bus), ledger.runs(), crash_loops(read_deaths(bus), now_ms()))


def judge_workers(workers: Sequence[Heartbeat], runs: Sequence[RunView], loops: Sequence[CrashLoop] = ()) -> list[Finding]:
    """Live processes, crash loops, and the roles that running runs lack."""
    roles = Counter(beat.role for beat in workers)
    living = ", ".join(f"{count} {role}" for role, count in sorted(roles.items())) or "none"
    lacking = [
        f"{view.record.run} has no live {role}"
        for view in runs
        if view.state is RunState.RUNNING
        for role in NEEDED
        if not any(beat.role == role and beat.run in ("", view.record.run) for beat in workers)
        and not any(role in loop.name and loop.run in ("", view.record.run) for loop in loops)
    ]
    dying = [Finding("workers", "fail", str(loop)) for loop in loops]
    if lacking:
        return [*dying, Finding("workers", "warn", f"{living}; {'; '.join(lacking)}: start it (`azq up`, `azq worker`, systemctl)")]
    return dying or [Finding("workers", "ok", f"{living}; runs: {len(runs)}")]


def judge_devices(config: Config, machine: Machine) -> list[Finding]:
    """What devices do in an `azq up` with these settings, and which cannot be used, are gone, or are asked for and not there."""
    result = plan(machine, Wishes.of(config))
    checks = [Finding("devices", "warn", f"{gpu}: {why}") for gpu, why in (result.left_out | vanished(config.home, machine)).items()]
    named = {device for device in (*result.inference, *result.training) if device.startswith("cuda")}
    missing = named - {gpu.device for gpu in machine.gpus if gpu.device not in result.left_out}
    checks += [Finding("devices", "fail", f"{device} is asked for and not there; set auto or cpu") for device in sorted(missing)]
    return checks or [Finding("devices", "ok", str(result))]


def _guarded(name: str, check: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    try:
        return check()
    except AzqError as error:
        return [Finding(name, "fail", str(error))]


def _game(config: Config) -> Finding:
    game = games.load(config.run.game, **config.run.params)
    return Finding("game", "ok", f"{game.name}: {game.num_players()} players, {game.num_distinct_actions()} actions")


def _home(home: Path) -> Finding:
    there = home.absolute()
    while not there.exists():
        there = there.parent
    check_folder(there)
    free = shutil.disk_usage(there).free
    text = f"{home.absolute()} can be written to, {free / 1e9:.1f} GB free"
    return Finding("home", "ok", text) if free >= LEAST_FREE_BYTES else Finding("home", "warn", f"{text}: make room, segments grow there")


def _rest(config: Config) -> Finding:
    check_binding(config.daemon)
    with_own_token(config)  # says where the home's own token is open to others
    check_tls(config.daemon)
    return Finding("rest", "ok", f"daemon.host {config.daemon.host}, port {config.daemon.port or 'any'}")


def _users(config: Config) -> Finding:
    own = "each role and each machine that joined has its own user and rights"
    return Finding("users", "ok", own) if knows_roles(config) else Finding("users", "warn", NO_USERS)


def _data_plane(url: str, name: str) -> list[Finding]:
    with contextlib.closing(connect(url, timeout_s=ASK_TIMEOUT_S)) as client:
        return checks.check_broker(client, name)


def _weights(config: Config, control: redis.Redis) -> Finding:
    result = checks.check_store(control, config.store, config.home)
    return result if result.severity == "ok" else Finding("weights", "ok", "none yet")  # what it warns of concerns other machines


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
WORK: Mapping[Part, str] = {"search": "search", "network": "forward passes", "queue": "moving requests and games", "learner": "training"}


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
        return sum(row.wall_share for profile in self.profiles if profile.role == role for row in profile.rows if row.phase in phases)

    @property
    def used(self) -> Mapping[Part, float]:
        """Cores that each part of the work takes."""
        values: dict[Part, float] = {"search": 0.0, "network": 0.0, "queue": 0.0, "learner": 0.0}
        for profile in self.profiles:
            for row in profile.rows:
                if part := OF_PART[profile.role].get(row.phase):
                    values[part] += row.cpu_cores
        return values

    @property
    def asks(self) -> bool:
        """Whether self-play asks inference workers: to wait for them costs it nothing, while a process with its own network pays for it."""
        waits = [(profile, row) for profile in self.profiles if profile.role == "selfplay" for row in profile.rows if row.phase == "wait"]
        served = any(profile.role == "inference" for profile in self.profiles)
        return served and all(row.cpu_cores < OWN * row.wall_share * profile.processes for profile, row in waits)

    @property
    def spare(self) -> bool:
        """Whether this machine has cores left for more processes or threads."""
        return self.cores is not None and sum(profile.cpu_cores for profile in self.profiles) <= self.cores - 1


def bottleneck(facts: SpeedFacts) -> Finding:
    """The first that holds: a limiter that waits by its settings, full cores, a learner that is behind; else what self-play does."""
    return _limiter_waits(facts) or _full_cores(facts) or _learner_behind(facts) or _short_of_games(facts)


def _limiter_waits(facts: SpeedFacts) -> Finding | None:
    learner, samples = facts.sections.learner, facts.status.samples
    if samples < learner.min_window:
        evidence = f"nothing is trained before {learner.min_window:,} samples are there; {samples:,} are"
        return Finding(
            "limiter", "fail", evidence, Change("learner.min_window", learner.min_window, max(learner.batch_size, learner.min_window // 4))
        )
    if facts.stalled >= HELD and facts.waiting >= HELD:
        evidence = (
            f"it holds self-play back at {facts.stalled:.0%} of the looks and the learner at {facts.waiting:.0%}: they wait for each other"
        )
        return Finding("limiter", "fail", evidence, _times("learner.limiter_slack", learner.limiter_slack, 4))
    return None


def _full_cores(facts: SpeedFacts) -> Finding | None:
    """Where the cores are full, the part that takes most of them."""
    used = facts.used
    taken = sum(profile.cpu_cores for profile in facts.profiles)
    if facts.cores is None or taken < FULL * facts.cores:
        return None
    most = max(used, key=lambda part: used[part])
    evidence = f"{taken:.1f} of {facts.cores} cores are at work, {used[most]:.1f} of them with {WORK[most]}"
    return Finding(most, "fail", evidence, _cheaper(most, facts))


def _learner_behind(facts: SpeedFacts) -> Finding | None:
    """Where self-play is ahead, or the learner never waits."""
    busy = 1.0 - facts.share("learner", "idle")
    if facts.stalled < HELD and (busy < BUSY or facts.waiting >= HELD):
        return None
    held = f"the learner works {busy:.0%} of its time"
    if facts.stalled >= HELD:
        held = f"self-play is held back at {facts.stalled:.0%} of the looks"
    phases = {
        row.phase: row.wall_share for profile in facts.profiles if profile.role == "learner" for row in profile.rows if row.phase != "idle"
    }
    longest = max(phases, key=lambda phase: phases[phase], default="other")
    return Finding("learner", "fail", f"{held}, {phases.get(longest, 0.0):.0%} of it with {longest}", _faster_learner(longest, facts))


def _short_of_games(facts: SpeedFacts) -> Finding:
    """The learner waits for games: what self-play does meanwhile."""
    search, wait = facts.share("selfplay", "search", "encode"), facts.share("selfplay", "wait")
    moving = facts.share("selfplay", "transport", "ledger")
    spends = f"searches {search:.0%} of its time, waits for evaluations {wait:.0%}, moves data {moving:.0%}"
    evidence = f"the learner waits for games; self-play {spends}"
    selfplay = facts.sections.selfplay
    if moving > max(search, wait):
        return Finding("queue", "fail", evidence, _times("selfplay.journal_s", selfplay.journal_s, 2))
    if search >= wait:
        processes = sum(profile.processes for profile in facts.profiles if profile.role == "selfplay")
        more = Change("worker.concurrency", processes, processes + 1) if facts.spare else _cheaper("search", facts)
        return Finding("search", "fail", evidence, more)
    works = facts.share("inference", "forward", "copy", "weights")
    if facts.asks and works < WORKS:
        evidence += f", while inference workers evaluate {works:.0%} of theirs, {facts.status.mean_batch:.0f} leaves at once"
        return Finding("queue", "fail", evidence, _more_at_once(facts))
    return Finding("network", "fail", evidence, _cheaper("network", facts))


def _more_at_once(facts: SpeedFacts) -> Change:
    """What has more requests on their way, where evaluations wait on the road."""
    selfplay = facts.sections.selfplay
    if selfplay.answer_within_ms:
        return _times("selfplay.answer_within_ms", selfplay.answer_within_ms, 2)
    return _times("selfplay.games_in_flight", selfplay.games_in_flight, 2)


def _faster_learner(phase: str, facts: SpeedFacts) -> Change:
    learner = facts.sections.learner
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
    bottleneck: Finding
    facts: SpeedFacts

    def values(self) -> dict[str, Any]:
        """For machines."""
        facts, slowest = self.facts, self.bottleneck
        shares = {"selfplay_stalled": facts.stalled, "learner_waiting": facts.waiting, "cores": facts.cores, "cores_used": dict(facts.used)}
        return {
            "run": self.run,
            "seconds": self.seconds,
            "bottleneck": {"part": slowest.rule, "evidence": slowest.evidence, "setting": asdict(slowest)["setting"]},
            **shares,
            "profile": [asdict(profile) for profile in facts.profiles],
        }

    def text(self) -> list[str]:
        """For people: the verdict, then where the time went."""
        return [
            f"{self.bottleneck.rule}: {self.bottleneck.evidence}; {self.bottleneck.setting}",
            f"run {self.run} watched for {self.seconds:.0f} s:",
            as_text(self.facts.profiles),
        ]


def examine_speed(config: Config, named: str | None, seconds: float) -> SpeedReport:
    """Watches a run at work, the only one where none is named. Raises `NotFound` where no process works for it."""
    settings, client = brokers.open_control(config)
    with contextlib.closing(client):
        watch, ledger = Watch(client), Ledger(client)
        run = named or only_run(ledger)
        sections = sections_of(ledger.run(run).record)
        seen = looks(lambda: (read_workers(watch.bus), watch.summary(run)), seconds)
    beats, statuses = zip(*seen, strict=True)
    hosts = {beat.host for sample in beats for beat in sample if concerns(beat, run)}
    facts = SpeedFacts(
        profile_of(beats, run),
        sum(status.selfplay_stalled for status in statuses) / len(statuses),
        sum(status.learner_waiting for status in statuses) / len(statuses),
        statuses[-1],
        sections,
        usable_cores() if hosts == {socket.gethostname()} else None,
        settings.inference.precision,
    )
    return SpeedReport(run, seconds, bottleneck(facts), facts)
