"""The daemon without its REST interface: the lock that lets one act, the tick that looks, decides, acts and says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import redis

from azq import logs
from azq import queue as jobs
from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import BudgetConfig, Config, DaemonConfig, RunConfig
from azq.errors import DO_NOT_RESTART, AzqError, BrokerError, StateConflict
from azq.ledger import Ledger
from azq.ledger.holder import holder_name, spoken, take_place, wait_for_place
from azq.ledger.types import RunState
from azq.process.heartbeat import Measure, Presence
from azq.process.proc import usage
from azq.ratings import positions
from azq.status.brokers import fleet_of
from azq.status.conditions import DeathLog, crash_loops, publish_death
from azq.status.history import Recorder
from azq.status.observe import Beats, Observer
from azq.status.spending import Accountant
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.connect import translate
from azq.wire.messages import Fleet, Heartbeat
from daemon.decide import actions as do
from daemon.decide.guard import guard
from daemon.decide.notices import Lives, Notice, deaths, ends, lives
from daemon.decide.reconcile import reconcile
from daemon.serve.act import Hands, act
from daemon.serve.health import Health

TICK_S = 0.5
MEND_EVERY = 4  # ticks
HISTORY_EVERY_S = 5.0  # between two points of the charts
LIFE_S = 4.0  # longer than a few ticks

# KEYS[1] the lock; ARGV[1] holder, ARGV[2] life in ms, ARGV[3] a holder that is dead. Returns the holder after the call.
_HOLD = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and holder ~= ARGV[3] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""

# KEYS[1] the lock; ARGV[1] holder. Deletes it if it is still ours.
_LET_GO = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

log = logs.get(__name__)


class DaemonLock:
    """The right to act on a control plane: a key with a life, renewed in each tick. A holder whose death can be seen loses it at once."""

    def __init__(
        self, client: redis.Redis, holder: str | None = None, *, life_s: float = LIFE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._clock = clock
        self._holder = holder or holder_name()
        self.life_s = life_s

    def hold(self) -> None:
        """Takes the lock or renews it; `StateConflict` names another holder."""
        with translate(self._client):
            holder = take_place(self._take, self._holder)
        if holder != self._holder:
            raise StateConflict(f"another daemon ({spoken(holder)}) serves this control plane; stop it, or set another broker.control_url")

    def _take(self, dead: str) -> str:
        return bytes(self._client.eval(_HOLD, 1, keys.DAEMON, self._holder, str(int(self.life_s * 1000)), dead)).decode()

    def wait(self, pause: Callable[[float], bool]) -> None:
        """Takes the lock, waiting as long as a dead holder may still have it; `pause(seconds)` says True to give up waiting."""
        wait_for_place(self.hold, self.life_s, pause, self._clock)

    def let_go(self) -> None:
        """Gives the lock back, if it is still ours."""
        with translate(self._client):
            self._client.eval(_LET_GO, 1, keys.DAEMON, self._holder)


def nothing(*_: object) -> None:
    """The default of a callback."""


@dataclass(kw_only=True)
class Loop:
    """Everything that one tick needs, and what it remembers for the next. Errors end a tick, never the loop.

    `enter` is done before the first look, again in each tick until it went through.
    """

    config: DaemonConfig
    observer: Observer
    hands: Hands
    bus: Bus
    hold: Callable[[], None]
    clock_ms: Callable[[], int]
    has_positions: Callable[[RunConfig], bool]
    health: Health
    life_s: float
    fleet: Fleet | None = None
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    notify: Callable[[Notice], object] = field(default=nothing)
    enter: Callable[[], None] = field(default=nothing)
    measure: Measure = field(default=usage)

    def __post_init__(self) -> None:
        self._history = Recorder(self.bus, HISTORY_EVERY_S)
        self._accountant = Accountant(self.bus, self.budget)
        self._states: dict[str, RunState] = {}  # of the look before
        self._since_ms = 0  # when it looked first
        self._entered = False
        self._ticks = 0
        self._lives: Lives = {}
        self._deaths = DeathLog(self.bus)
        self._presence = Presence("daemon", life_s=self.life_s, measure=self.measure)

    @property
    def name(self) -> str:
        """Of this process among the fleet's."""
        return self._presence.worker

    def tick(self) -> bool:
        """One tick; True when it went through.

        Raises `StateConflict` when another daemon took the control plane and, until it was entered, what no restart mends.
        """
        try:
            reports = self._look_and_act()
        except StateConflict:
            raise
        except Exception as error:
            if not self._entered and isinstance(error, AzqError) and error.exit_code in DO_NOT_RESTART:
                raise
            self._failed(error)
            return False
        if self.health.pulse.error:
            log.info("recovered", failed_ticks=self.health.pulse.failed_ticks)
        for report in self.health.tick_ok(reports):
            log.warning(report.kind, run=report.run, reason=str(report))
            self.notify(Notice("condition", report.run, str(report), now_ms()))
        return True

    def leave(self) -> None:
        """Takes the heartbeat back."""
        self._presence.leave(self.bus)

    def _look_and_act(self) -> list[do.Condition]:
        if not self._entered:
            self.enter()
            self._entered = True
        self.hold()
        now_ms = self.clock_ms()
        self._since_ms = self._since_ms or now_ms
        self._mend()
        desired, seen = self.observer.observe()
        for notice in ends(self._states, desired.runs, now_ms):
            self.notify(notice)
        self._states = {run.name: run.state for run in desired.runs}
        observed = self._accountant.note(desired, seen, now_ms)
        actions = reconcile(desired, observed, now_ms, self.config, self.has_positions)
        actions += guard(desired, observed, actions, now_ms, self.budget, self._since_ms)
        games = {run.name: run.sections.run.game for run in desired.runs if run.sections}
        act(actions, replace(self.hands, games=games))
        self._tell_end(next((action.reason for action in actions if isinstance(action, do.EndFleet)), ""))
        self._beat(seen.workers)
        self._history.note(desired, observed, now_ms)
        loops = self._look_at_deaths(seen.workers, now_ms)
        return [*loops, *(action for action in actions if isinstance(action, do.Condition))]

    def _mend(self) -> None:
        """Now and then, and at once after a tick that failed, looks for nonsense in the ledgers of runs at work: that may be why."""
        self._ticks += 1
        failed = bool(self.health.pulse.error)
        if not failed and self._ticks % MEND_EVERY:
            return
        runs = None if failed else [name for name, state in self._states.items() if state is RunState.RUNNING]
        for run, wrong in self.hands.ledger.mend(runs).items():
            log.error("ledger_mended", run=run, reason="; ".join(wrong))

    def _look_at_deaths(self, beats: Sequence[Heartbeat], now_ms: int) -> list[do.Condition]:
        """Reports deaths that no supervisor reported; returns the crash loops."""
        reported = self._deaths.read()
        self._lives, unreported = deaths(lives(self._lives, beats, now_ms, 1000 * self.life_s), reported)
        for death in unreported:
            publish_death(self.bus, death)
        loops = crash_loops(reported, now_ms)
        return [do.Condition("crash_loop", loop.run, f"{loop.name}@{loop.host}", str(loop)) for loop in loops]

    def _tell_end(self, reason: str) -> None:
        """What machines hear at the next heartbeat."""
        if self.fleet is not None and self.fleet.over != reason:
            self.fleet = msgspec.structs.replace(self.fleet, over=reason)
            log.warning("machines_end" if reason else "machines_go_on", reason=reason)

    def _beat(self, beats: Sequence[Heartbeat]) -> None:
        self._presence.beat(self.bus)
        if self.fleet is not None:
            hosts = tuple(sorted({beat.host for beat in beats if beat.role == "inference"}))
            fleet = msgspec.structs.replace(self.fleet, sent_ms=now_ms(), inference_hosts=hosts)
            self.bus.put(keys.FLEET, encode(fleet), life_s=self.life_s)

    def _failed(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, BrokerError) else f"{type(error).__name__}: {error}"
        if reason != self.health.pulse.error:  # one line an outage, not one a tick
            log.error("tick_failed", reason=reason)
        self.health.tick_failed(reason)


def build(
    config: Config, client: redis.Redis, lock: DaemonLock, notify: Callable[[Notice], object] = nothing, enter: Callable[[], None] = nothing
) -> Loop:
    """What ticks, over one connection; `notify` receives what is worth a notice."""
    bus, ledger = RedisBus(client), Ledger(client)
    publish = partial(jobs.publish, jobs.make_app(config.broker.control_url))
    return Loop(
        config=config.daemon,
        observer=Observer(ledger, bus, Beats(bus, max_age_s=2 * TICK_S)),
        hands=Hands(ledger, bus, publish),
        bus=bus,
        hold=lock.hold,
        clock_ms=partial(broker_ms, client),
        has_positions=lambda run: positions.available(run.game, run.params, config.home),
        health=Health(),
        life_s=config.worker.heartbeat_life_s,
        fleet=fleet_of(config),
        budget=config.budget,
        notify=notify,
        enter=enter,
    )


def broker_ms(client: redis.Redis) -> int:
    """The broker's clock, which all leases are measured by."""
    with translate(client):
        seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
