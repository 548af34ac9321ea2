"""The processes of a simulated azq, each as its main runs it: two daemons, workers, two learners of which one learns, one who loads weights
for evaluations, an operator.

What is doubled: the network behind search (equal priors after a wait), the Celery worker around a task, training and devices (weights are
numbers).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import torch
from celery.exceptions import Ignore

from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import ArenaConfig, NetworkConfig, RunConfig, RunSections, SearchConfig, SelfPlayConfig
from azq.config.host import HostSections
from azq.errors import BrokerError, JobFailed, NotFound, SegmentError, StateConflict, StoreError
from azq.games import Game, GameFiles
from azq.inference.serve.loading import LoadingThread
from azq.inference.serve.roster import Roster
from azq.inference.serve.served import RunLoader, ServedRun
from azq.inference.serve.stats import Stats
from azq.inference.weights import ResidentModels, WeightCatalog, fetch_from
from azq.learner.data.intake import BATCH, Intake, game_key
from azq.learner.data.intake_loop import IDLE_S, IntakeLoop
from azq.learner.publish import Publisher
from azq.ledger import Ledger
from azq.ledger.holder import held_place, lock_folder
from azq.ledger.records import record_of
from azq.ledger.types import RunState, RunView
from azq.nets import WeightsMeta
from azq.nets.weights import describe, state_to_bytes
from azq.parts.sim.books import BookedLedger, Books
from azq.parts.sim.disk import SimulatedDisk
from azq.parts.sim.network import Delivery, SimulatedNetwork
from azq.parts.sim.world import Actor, World
from azq.phases import Phases
from azq.process.heartbeat import Presence
from azq.replay.segments import SegmentLog
from azq.replay.window import Window
from azq.search.evaluator import Evaluation, Evaluator, UniformEvaluator
from azq.status.observe import Beats, Observer, read_promotions, read_weights
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.connect import agree_on_schema
from azq.wire.kinds import Kind, queue_name
from azq.wire.messages import PromotionEvent, RunRecord
from daemon.decide.promotion import resolve
from daemon.serve.act import Hands
from daemon.serve.health import Health
from daemon.serve.loop import TICK_S, DaemonLock, Loop, broker_ms
from workers.children import Board, ChildHeartbeat
from workers.context import Context
from workers.selfplay import run as play

if TYPE_CHECKING:
    from azq.config import Config
    from azq.inference.device.model import Model
    from azq.inference.device.tuning import Tuned
    from azq.nets import NetSpec

RUN = "sim"
SEGMENTS, WEIGHTS = "segments", "weights"  # in the run's folder
GAMES = 3  # in flight of a job
SLICE_S = 10.0
EVALUATION_S = 0.15  # mean
PACES = (1, 1, 7, 7)  # times as long as in azq are pauses in which nothing happens, drawn each time: of daemons, of idle learners
ROLL_BYTES = 6000  # of a segment, so that some are closed
SOON_ENDED = 12  # games until a run has reached its goal, at most
MOST_WAITING = 24  # games for the learner, so that self-play stalls now and then
GAMES_A_VERSION = 8  # of the weights
LIFE_MS = 1000  # from a run's creation to that of the next of its name
LATE_S = 15.0  # that learners may start after all others
WINDOW = 64  # samples
SECTIONS = RunSections(
    run=RunConfig(game="tic_tac_toe", seed=5),
    search=SearchConfig(num_simulations=2, reuse_subtree=False),
    selfplay=SelfPlayConfig(
        evaluator="uniform",
        games_in_flight=GAMES,
        groups=1,
        slice_s=SLICE_S,
        journal_s=2.0,
        cache_entries=0,
        max_waiting_games=MOST_WAITING,
    ),
    arena=ArenaConfig(every_s=0.0, promotion="games"),
)
GAME = GameFiles().load(SECTIONS.run.game, {})


@dataclass
class Site:
    """What the processes of one simulation share."""

    world: World
    network: SimulatedNetwork
    delivery: Delivery
    folders: Path  # in which is the run's, another one each time that it is made
    installed: ExitStack
    disks: list[SimulatedDisk] = field(default_factory=list)
    books: Books = field(default_factory=Books)
    life: int = 0  # how often the run was made
    folder: Path = field(init=False)
    segments: Path = field(init=False)
    weights: Path = field(init=False)
    config: HostSections = field(default_factory=HostSections)  # not those of this host
    wanted: RunState = RunState.RUNNING
    meddles: bool = True  # the operator pauses and cancels
    deletes: bool = False  # the operator deletes the run and makes it again

    def furnish(self) -> None:
        """For a new run: an empty folder and empty books."""
        self.life, self.books = self.life + 1, Books()
        self.folder = self.folders / str(self.life)
        self.weights, self.segments = self.folder / WEIGHTS, self.folder / SEGMENTS
        for place in (self.weights, self.segments):
            place.mkdir(parents=True)
            self.disks.append(SimulatedDisk(self.world, place))
            self.installed.enter_context(self.disks[-1].installed())

    def repair(self) -> None:
        """Puts damaged segments back, as their error wants it."""
        for disk in self.disks:
            disk.repair()

    def fill_disks(self, full: bool) -> None:
        for disk in self.disks:
            disk.full = full


def _rest(world: World, seconds: float) -> bool:
    return world.pause(seconds * world.rng.choice(PACES))


def daemon(site: Site, actor: Actor) -> None:
    """As `daemon.main`, without its REST interface: waits for the lock, then ticks."""
    world, client = site.world, site.network.client
    bus, ledger = RedisBus(client), Ledger(client)
    lock = DaemonLock(client, f"{actor.owner}::", clock=world.monotonic)

    def enter() -> None:
        lock.wait(partial(_rest, world))
        agree_on_schema(client, upgrade=True)

    loop = Loop(
        config=site.config.daemon,
        observer=Observer(ledger, bus, Beats(bus, clock=world.monotonic), clock=world.monotonic),
        hands=Hands(ledger, bus, site.delivery.publish),
        bus=bus,
        hold=lock.hold,
        clock_ms=lambda: broker_ms(client),
        has_positions=lambda _: False,
        health=Health(),
        life_s=site.config.worker.heartbeat_life_s,
        enter=enter,
        measure=dict,
    )
    while True:
        loop.tick()
        _rest(world, TICK_S)


def worker_main(site: Site, _: Actor, worker: str) -> None:
    """The main process of a worker: its heartbeats."""
    queue = queue_name(Kind.SELFPLAY, "cpu")
    presence = Presence("selfplay", life_s=site.config.worker.heartbeat_life_s, worker=worker, measure=dict, queues=(queue,), tags=("cpu",))
    bus = RedisBus(site.network.client)
    while True:
        with suppress(BrokerError):
            presence.beat(bus)
        site.world.pause(site.config.worker.heartbeat_s)


class SimulatedContext(Context):
    """What a pool child keeps, with the simulation's clock, broker and books."""

    def __init__(self, site: Site, actor: Actor) -> None:
        super().__init__(cast("Config", site.config), ChildHeartbeat(Board(1), 0, clock=site.world.monotonic))
        self.owner = actor.owner
        self.clock, self.wait = site.world.monotonic, site.world.pause
        self.phases = Phases(clock=self.clock, cpu_clock=self.clock)
        self._site = site
        client = site.network.client
        ledger = BookedLedger(client)
        ledger.now = lambda: (site.books, site.network.broker.keys)
        vars(self).update(control=client, ledger=ledger)

    def evaluator(self, record: RunRecord, sections: RunSections, game: Game) -> Evaluator:
        return _SlowEvaluator(self._site.world, game.num_distinct_actions(), game.value_size())


class _SlowEvaluator(UniformEvaluator):
    """Equal priors, after a while."""

    def __init__(self, world: World, num_actions: int, value_size: int) -> None:
        super().__init__(num_actions, value_size)
        self._world = world

    def result(self, handle: int, *, timeout_s: float) -> Evaluation:
        self._world.pause(self._world.rng.expovariate(1.0) * EVALUATION_S)
        return super().result(handle, timeout_s=timeout_s)


def worker(site: Site, actor: Actor) -> None:
    """A pool child: takes messages, runs the task, acknowledges late."""
    context = SimulatedContext(site, actor)
    while True:
        if (message := site.delivery.take()) is None:
            site.world.pause(0.5)
            continue
        with suppress(Ignore, JobFailed):
            play(context, message.job_id, message.attempt)
        site.delivery.acknowledge(message)


def learner(site: Site, actor: Actor) -> None:
    """As `workers.learner` and the learner's loop, without training: holds folder and place, takes games in."""
    world, client = site.world, site.network.client
    bus, ledger = RedisBus(client), Ledger(client)
    while site.deletes:  # the operator stopped it
        world.pause(1.0)
    agree_on_schema(client)
    record = ledger.run(RUN).record
    folder = Path(record.directory)
    with ExitStack() as stack:
        stack.enter_context(lock_folder(folder))
        lease = stack.enter_context(held_place(ledger, RUN, world.pause, f"{actor.owner}::", world.monotonic))
        try:
            segments = SegmentLog(folder / SEGMENTS, game_key(SECTIONS), roll_bytes=ROLL_BYTES, created_ms=record.created_ms)
        except SegmentError:
            site.repair()
            raise
        intake = Intake(
            RUN,
            GAME,
            bus=bus,
            ledger=ledger,
            segments=segments,
            window=Window(GAME, WINDOW),
            consumer=actor.owner,
            lease=lease,
            phases=Phases(clock=world.monotonic, cpu_clock=world.monotonic),
        )
        loop = IntakeLoop(intake, world.monotonic)
        weights = folder / WEIGHTS
        store = open_store("file", directory=weights)
        publisher = Publisher(bus, store, RUN, announce=partial(ledger.announce_weights, RUN, lease=lease))
        publisher.version = max((describe(path).version for path in weights.glob("*.safetensors")), default=0)  # as a checkpoint says
        while True:
            if loop.turn() < BATCH:
                _rest(world, IDLE_S)
            if segments.games >= GAMES_A_VERSION * (publisher.version + 1):
                with suppress(BrokerError, StoreError):
                    _publish(publisher)


def _publish(publisher: Publisher) -> None:
    version = publisher.next_version()
    meta = WeightsMeta(SECTIONS.run.game, version, step=version)
    publisher.publish(state_to_bytes({"weights": torch.zeros(1)}, meta), version, step=version)


def inference(site: Site, actor: Actor) -> None:
    """The loading of an inference worker: follows runs, weights and promotions; what it makes current is in the books."""
    client = site.network.client
    bus, ledger = RedisBus(client), Ledger(client)

    def device(network: NetworkConfig) -> Model:
        """Takes weights and evaluates nothing: what serves are their numbers."""
        return cast("Model", SimpleNamespace(network=network, take=lambda *_: None))

    def admit(view: RunView) -> RunLoader:
        run, fetch = view.record.run, fetch_from(open_store("file", directory=Path(view.record.directory) / WEIGHTS))
        models = ResidentModels(device, fetch, game=SECTIONS.run.game)
        served, catalog = ServedRun(run, cast("NetSpec", None), models), WeightCatalog(bus, run, gated=SECTIONS.arena.promotes)
        return RunLoader(served, catalog, lambda model, before: cast("Tuned", before), nullcontext, site.world.monotonic)

    loading = LoadingThread(bus, Roster(ledger, clock_s=site.world.monotonic), admit, Stats())
    while True:
        with suppress(BrokerError):
            loading.poll()
            for served in loading.served.values():
                site.books.serves(actor.name, served.current, RUN, site.network.broker.keys)
        site.world.pause(1.0)


def operator(site: Site, _: Actor) -> None:
    """Creates the run, deletes it where that is due; pauses it, resumes it and cancels jobs now and then; wants what the stage says."""
    world, client = site.world, site.network.client
    ledger, bus = Ledger(client), RedisBus(client)
    while True:
        with suppress(BrokerError, NotFound, StateConflict):
            if not ledger.runs([RUN]):
                if site.deletes:
                    site.furnish()
                    site.deletes = False
                ledger.create_run(record_of(RUN, SECTIONS, site.folder, LIFE_MS * site.life))
            if site.deletes:
                _delete(site, ledger)
            elif not site.meddles:
                _bring_to(site.wanted, ledger)
            elif world.rng.random() < 0.5:
                _meddle(world, ledger, bus)
        world.pause(world.rng.uniform(1.0, 4.0) if site.meddles else 1.0)


def _delete(site: Site, ledger: Ledger) -> None:
    """Pauses it and ends its learners, but for those on hosts that do not answer, then deletes it as soon as nothing works."""
    if ledger.run(RUN).state is RunState.RUNNING:
        ledger.set_run_state(RUN, RunState.PAUSED)
    for actor in site.world.actors:
        if actor.name.startswith("learner") and actor.frozen_until_ns <= site.world.now_ns:
            site.world.kill(actor)
    ledger.delete_run(RUN)


def _bring_to(wanted: RunState, ledger: Ledger) -> None:
    """A run is to finish by itself, for it reaches its goal."""
    if wanted is not RunState.FINISHED:
        if ledger.update_run_until(RUN, {}).state is RunState.FINISHED:
            ledger.set_run_state(RUN, RunState.RUNNING)
        ledger.set_run_state(RUN, wanted)
    elif not ledger.run(RUN).record.until:
        ledger.update_run_until(RUN, {"games": ledger.counts(RUN).finished + SOON_ENDED})


def _meddle(world: World, ledger: Ledger, bus: RedisBus) -> None:
    match world.rng.randint(0, 5):
        case 0:
            ledger.set_run_state(RUN, RunState.PAUSED)
            world.pause(world.rng.expovariate(0.5))
            ledger.set_run_state(RUN, RunState.RUNNING)
        case 1:
            if jobs := ledger.jobs(RUN):
                ledger.cancel(world.rng.choice(jobs).job.job_id)
        case 2:
            if newest := read_weights(bus, RUN):
                past, last = read_promotions(bus, RUN).events, newest[0].version
                deed, version = resolve(RUN, world.rng.choice(("promote", "rollback", "pin", "unpin")), last, past, gated=True, newest=last)
                bus.publish(keys.promotions(RUN), encode(PromotionEvent(version, deed, "", "operator", now_ms())))
        case 3:
            _bring_to(RunState.FINISHED, ledger)
        case _:
            _bring_to(RunState.RUNNING, ledger)


def populate(site: Site, workers: int) -> None:
    """Starts everything."""
    mains: dict[str, Callable[[Site, Actor], None]] = {"operator": operator, "daemon-1": daemon, "daemon-2": daemon}
    mains |= {f"worker-{number}": worker for number in range(1, workers + 1)}
    mains |= {"learner-1": learner, "learner-2": learner, "inference-1": inference}
    late_s = site.world.rng.choice((0.5, LATE_S))
    for name, main in mains.items():
        site.world.spawn(name, partial(main, site), late_s if main is learner else 0.5)
    for number in range(1, workers + 1):
        site.world.spawn(f"pool-{number}", partial(worker_main, site, worker=f"selfplay@host{number}"))
