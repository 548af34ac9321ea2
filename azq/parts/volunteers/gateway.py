"""A gateway's event loop: tabs on one side, leases on the other, each run's sessions between them. Nothing here blocks the loop.

Calls of ledger, contributors, judge and store run in threads and are awaited.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.websockets import WebSocket

from azq import __version__, logs
from azq.config import GatewayConfig, RunSections
from azq.errors import AzqError, BrokerError, ConfigError, WireError
from azq.ledger.records import sections_of
from azq.ledger.types import Lease, RunState, RunView
from azq.parts.volunteers.handouts import GatewayCounts, keys_of
from azq.parts.volunteers.hub import MATCH_GAMES, MOST_GAMES, Backing, Link, RunHub, make_hub, quality_wished
from azq.parts.volunteers.leases import Leases
from azq.parts.volunteers.sessions import TabPatience
from azq.wire.kinds import Kind
from azq.wire.tabs import (
    MATCHES,
    Bye,
    EvalResult,
    FromTab,
    GamesComplete,
    Hello,
    ModelUpdate,
    PlayGames,
    Refused,
    TabProgress,
    TabStanding,
    Welcome,
    WorkerReady,
    from_tab,
)

FOLLOW_S = 1.0  # between two readings of runs, weights and silent tabs
STORE_ROUNDS, FORGET_ROUNDS = 10, 3_600
HELLO_S = 10.0
GAMES_AT_ONCE = 8  # of each of a tab's workers
UNREADABLE = 8  # frames after which a tab has to go
THREADS = 16
PATIENCE = TabPatience(silent_s=30.0, late_s=90.0, batch_s=30.0)
TABS_OF_ADDRESS = 64  # at most, or a thirtieth of all where that is more

T = TypeVar("T")
log = logs.get(__name__)


class Gateway:
    """Tabs, runs and leases of a gateway; all but `stopping` belongs to its event loop."""

    def __init__(
        self, config: GatewayConfig, backing: Backing, clock: Callable[[], float] = time.monotonic, patience: TabPatience | None = None
    ) -> None:
        self.config = config
        self.hubs: dict[str, RunHub] = {}
        self.links: dict[int, Link] = {}
        self.counts = GatewayCounts()
        self.turned_s = clock()
        self.plays_matches = False  # whether a tab would
        self.stopping = threading.Event()
        self._backing = backing
        self._patience = patience or PATIENCE
        self._clock = clock
        self._numbers = itertools.count(1)
        self._addresses: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(THREADS, "gateway")
        self._leases = Leases(backing, self.stopping, clock, self._in_thread, self._deliver, self._patience.late_s)

    # -- tabs

    async def talk(self, socket: WebSocket) -> None:
        """Serves a tab from its first message to its last."""
        await socket.accept()
        reader: asyncio.Task[None] = asyncio.current_task()  # type: ignore[assignment]
        link = Link(next(self._numbers), socket, reader)
        if self.stopping.is_set() or self._is_full(link.address):
            link.send(Refused("the gateway has as many tabs as it can take", "try again later"))
            await link.close()
            return
        self.links[link.number] = link
        self._addresses[link.address] += 1
        try:
            if await self._greet(link):
                await self._listen(link)
        except asyncio.CancelledError:
            if not link.cut_off:
                raise
        finally:
            self._disconnect(link)
            await link.close()

    def _is_full(self, address: str) -> bool:
        return len(self.links) >= self.config.max_tabs or self._addresses[address] >= max(TABS_OF_ADDRESS, self.config.max_tabs // 30)

    def _disconnect(self, link: Link) -> None:
        del self.links[link.number]
        self._addresses[link.address] -= 1
        if link.hub is not None:
            link.hub.sessions.leave(link.number, self._clock(), for_good=link.leaving)
            link.hub.notifier.ring()

    async def _greet(self, link: Link) -> bool:
        """Whether the tab named itself and may stay."""
        try:
            hello = await asyncio.wait_for(self._read(link), HELLO_S)
        except TimeoutError:
            hello = None
        if not isinstance(hello, Hello):
            link.send(Refused("a tab begins with Hello", "load the page again", final=True))
            return False
        try:
            welcome = self._backing.contributors.welcome
            volunteer = await self._in_thread(welcome, hello.token, hello.invite, link.address, hello.device, hello.name)
        except BrokerError as error:
            log.warning("broker_lost", reason=str(error))
            volunteer = Refused("the gateway cannot read its contributors just now", "try again later")
        if isinstance(volunteer, Refused):
            link.send(volunteer)
            return False
        link.volunteer, link.wished = volunteer, hello.run
        hands = volunteer.hands, volunteer.address_hands
        for key, games in zip(keys_of(volunteer.contributor, link.address), hands, strict=False):
            self.counts.hand_outs.learn(key, games)
        self._seat(link)
        if volunteer.problem:
            link.send(Refused(volunteer.problem, "choose another name"))
        with suppress(BrokerError):
            (figures,) = (await self._in_thread(self._backing.contributors.figures, (volunteer.contributor,))).values()
            link.send(TabStanding({name: float(value) for name, value in figures.items()} | msgspec.structs.asdict(volunteer.hands)))
        return True

    async def _listen(self, link: Link) -> None:
        while not link.leaving and (message := await self._read(link)) is not None:
            self._receive(link, message)

    async def _read(self, link: Link) -> FromTab | None:
        """The next message of a tab; None where it is gone or sent too many unreadable frames."""
        while (frame := await link.receive()) is not None:
            await link.pace(self._clock())
            try:
                return from_tab(frame)
            except WireError as error:
                link.unreadable += 1
                link.send(Refused(str(error), "load the page again", final=link.unreadable >= UNREADABLE))
                if link.unreadable >= UNREADABLE:
                    return None
        return None

    def _receive(self, link: Link, message: FromTab) -> None:
        now_s, hub = self._clock(), link.hub
        match message:
            case Hello():
                link.send(Refused("a tab says Hello once", "connect again to be another"))
            case Bye():
                link.leaving = True
            case WorkerReady():
                link.ready = message
                if hub is not None:
                    self._serve(link, hub)
            case TabProgress():
                self.counts.games["simulations"] += max(0, message.simulations - link.simulations)
                link.simulations = message.simulations
                if hub is not None:
                    hub.sessions.hear(link.number, message.playing, now_s)
            case GamesComplete(games) | EvalResult(games):
                if hub is None:
                    return  # it brings them again when it is welcomed to a run
                for game in games:
                    hub.sessions.bring(link.number, game, now_s)
        if hub is not None:
            hub.notifier.ring()

    def _seat(self, link: Link) -> None:
        """Gives a tab a run to play for: its former one, else the emptiest of those with games to hand out, else of all."""
        assert link.volunteer is not None
        open_hubs = [hub for hub in self.hubs.values() if hub.open_lease] or list(self.hubs.values())
        emptiest = min(open_hubs, key=lambda hub: len(hub.sessions.tabs), default=None)
        link.hub = hub = self.hubs.get(link.wished, emptiest)
        volunteer = link.volunteer
        link.send(Welcome(volunteer.contributor, volunteer.token, volunteer.name, hub.record.run if hub else "", __version__))
        if hub is not None:
            link.versions.clear()
            hub.sessions.enter(link.number, volunteer.contributor, self._clock(), link.address)
            self._serve(link, hub)

    def _serve(self, link: Link, hub: RunHub) -> None:
        """Sends a tab new weights, and games where it has room."""
        network = hub.network
        if network is None:
            return
        if not link.versions or link.versions[-1] != network.version:
            link.send(network)
            link.versions.append(network.version)
        if link.ready is None:
            return
        wanted = link.ready.games or link.ready.workers * GAMES_AT_ONCE
        hub.sessions.tabs[link.number].room = min(wanted, MOST_GAMES)
        plays_matches = MATCHES in link.ready.features and Kind.EVAL in hub.sections.volunteers.kinds
        hub.sessions.tabs[link.number].match_room = link.ready.workers * MATCH_GAMES if plays_matches else 0
        for terms in hub.sessions.dropped_terms(set(link.ready.versions).intersection(link.versions)):
            if handed := hub.sessions.hand(link.number, self._clock(), terms=terms, again=True):
                link.send(hub.play(handed, terms))
        terms = hub.terms(link.ready.version, quality_wished(link.ready))
        if terms.version in link.versions and (handed := hub.sessions.hand(link.number, self._clock(), terms=terms)):
            link.send(hub.play(handed, terms))
        for job, match_lease in hub.matches.items():
            if match_lease.networks and (handed := hub.sessions.hand(link.number, self._clock(), job)):
                link.send(match_lease.match.message(hub.record.run, match_lease.networks, handed))

    def _deliver(self, hub: RunHub) -> None:
        """Sends tabs the answers about their games, and games that wait."""
        for number, answer in hub.sessions.take_answers():
            if (link := self.links.get(number)) is not None:
                link.send(answer)
        for number in tuple(hub.sessions.tabs) if hub.sessions.waiting else ():
            if (link := self.links.get(number)) is not None:
                self._serve(link, hub)

    # -- leases

    def begin(self, lease: Lease, view: RunView, sections: RunSections, ended: Callable[[], None]) -> None:
        """Takes a lease on; `ended` is called once it hands out no more games."""
        hub, leases = self._hub_of(view, sections), self._leases
        match = lease.job.kind == Kind.EVAL
        self._start(leases.referee(hub, lease, ended) if match else leases.keep(hub, lease, sections, ended))

    def _hub_of(self, view: RunView, sections: RunSections) -> RunHub:
        name = view.record.run
        if name not in self.hubs:
            self.hubs[name] = make_hub(view.record, sections, self._backing.secret, self._patience, self.counts)
            self._start(self._leases.judge(self.hubs[name]))
        return self.hubs[name]

    # -- runs

    async def turn(self) -> None:
        """Marks that the event loop turns until the gateway stops, whatever `follow` waits for."""
        while not self.stopping.is_set():
            self.turned_s = self._clock()
            await asyncio.sleep(FOLLOW_S)

    async def follow(self) -> None:
        """Follows runs and their weights until the gateway stops."""
        for number in itertools.count():
            if self.stopping.is_set():
                break
            try:
                await self._follow()
                await self._store_counts(number)
            except (BrokerError, ConfigError) as error:
                log.warning("follow_failed", reason=str(error))
            await asyncio.sleep(FOLLOW_S)

    async def _store_counts(self, rounds: int) -> None:
        """In some rounds: stores what contributors did with games, and forgets devices without a game that counts."""
        if rounds % STORE_ROUNDS == 0 and (fresh := self.counts.hand_outs.take_fresh()):
            await self._in_thread(self._backing.contributors.add_hand_outs, fresh)
        if rounds % FORGET_ROUNDS == STORE_ROUNDS:
            present = {link.volunteer.contributor for link in self.links.values() if link.volunteer}
            await self._in_thread(self._backing.contributors.forget, present)

    async def _follow(self) -> None:
        wanting = await self._in_thread(self._wanting)
        for view, sections, network in wanting:
            hub = self._hub_of(view, sections)
            hub.network = network or hub.network
        for name in self.hubs.keys() - {view.record.run for view, _, _ in wanting}:
            self._close(self.hubs.pop(name))
        now_s = self._clock()
        for hub in self.hubs.values():
            hub.sessions.expire(now_s)
            hub.notifier.ring()
            for number in tuple(hub.sessions.tabs):
                self._serve(self.links[number], hub)
            self._deliver(hub)
        self.plays_matches = any(tab.match_room for hub in self.hubs.values() for tab in hub.sessions.tabs.values())
        for link in tuple(self.links.values()):
            if link.volunteer is not None and link.hub is None and self.hubs:
                self._seat(link)

    def _wanting(self) -> list[tuple[RunView, RunSections, ModelUpdate | None]]:
        """In a thread: the running runs that want tabs to play, with their newest networks."""
        wanting = []
        for view in () if self._backing.contributors.closed() else self._backing.ledger.runs():
            try:
                sections = sections_of(view.record)
                if view.state is RunState.RUNNING and sections.volunteers.kinds:
                    wanting.append((view, sections, self._backing.networks.find(view.record, sections)))
            except BrokerError:
                raise
            except AzqError as error:
                log.warning("run_left_out", run=view.record.run, reason=str(error))
        return wanting

    def _close(self, hub: RunHub) -> None:
        """Ends the hub of a run that ended, rests, or wants no tabs any more; its tabs wait for another run."""
        hub.open = False
        hub.notifier.ring()
        for number in tuple(hub.sessions.tabs):
            link = self.links[number]
            link.send(PlayGames(hub.record.run, "", {}, stop=True))
            link.hub = None
            hub.sessions.leave(number, self._clock(), for_good=True)
        hub.sessions.end()

    # -- life

    async def stop(self) -> None:
        """Gives all games back."""
        self.stopping.set()
        for hub in self.hubs.values():
            hub.open = False
            hub.notifier.ring()
        self.hubs.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(BrokerError):
            await self._store_counts(0)
        self._threads.shutdown(wait=False)
        self._leases.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *arguments))
