"""A gateway's event loop: tabs on one side, leases on the other, each run's sessions between them. Nothing here blocks the loop.

What talks to the ledger, to contributors' records, to the judge or to the store runs in threads and is awaited.
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
from azq.parts.volunteers.backing import Backing
from azq.parts.volunteers.handing import GatewayCounts, keys_of
from azq.parts.volunteers.leases import Leases
from azq.parts.volunteers.rooms import MATCH_GAMES, MOST_GAMES, Link, Room, make_room, quality_wished
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

LOOK_S = 1.0  # between two looks at runs and their weights, and for whom is silent
NOTE_LOOKS, FORGET_LOOKS = 10, 3_600
HELLO_S = 10.0
GAMES_AT_ONCE = 8  # of one of a tab's workers
UNREADABLE = 8  # frames after which a tab has to go
THREADS = 16

T = TypeVar("T")
log = logs.get(__name__)


class Gateway:
    """Tabs, runs and leases of one gateway; all but `stopping` belongs to its event loop."""

    def __init__(self, config: GatewayConfig, backing: Backing, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self.rooms: dict[str, Room] = {}
        self.links: dict[int, Link] = {}
        self._all = GatewayCounts()
        self.counts = self._all.games  # games by what became of them, simulations
        self.turned_s = clock()
        self.plays_matches = False  # whether there is a tab that would
        self.stopping = threading.Event()
        self._backing = backing
        self._patience = TabPatience(config.silent_after_s, config.late_after_s, config.batch_after_s)
        self._clock = clock
        self._numbers = itertools.count(1)
        self._addresses: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(THREADS, "gateway")
        self._leases = Leases(backing, self.stopping, clock, self._in_thread, self._deliver, config.late_after_s)

    # -- tabs

    async def talk(self, socket: WebSocket) -> None:
        """One tab from its first word to its last."""
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
            self._part(link)
            await link.close()

    def _is_full(self, address: str) -> bool:
        return len(self.links) >= self.config.max_tabs or self._addresses[address] >= self.config.max_tabs_each

    def _part(self, link: Link) -> None:
        del self.links[link.number]
        self._addresses[link.address] -= 1
        if link.room is not None:
            link.room.sessions.leave(link.number, self._clock(), for_good=link.said_bye)
            link.room.bell.ring()

    async def _greet(self, link: Link) -> bool:
        """Whether the tab said who it is and may stay."""
        try:
            said = await asyncio.wait_for(self._read(link), HELLO_S)
        except TimeoutError:
            said = None
        if not isinstance(said, Hello):
            link.send(Refused("a tab begins with Hello", "load the page again", final=True))
            return False
        try:
            guest = await self._in_thread(self._backing.guests.welcome, said.token, said.invite, link.address, said.device, said.name)
        except BrokerError as error:
            log.warning("broker_lost", reason=str(error))
            guest = Refused("the gateway cannot look up who you are just now", "try again later")
        if isinstance(guest, Refused):
            link.send(guest)
            return False
        link.guest, link.wished = guest, said.run
        for key, hands in zip(keys_of(guest.contributor, link.address), (guest.hands, guest.address_hands), strict=False):
            self._all.handing.learn(key, hands)
        self._seat(link)
        if guest.problem:
            link.send(Refused(guest.problem, "choose another name"))
        with suppress(BrokerError):
            (figures,) = (await self._in_thread(self._backing.guests.figures, (guest.contributor,))).values()
            link.send(TabStanding({name: float(value) for name, value in figures.items()} | msgspec.structs.asdict(guest.hands)))
        return True

    async def _listen(self, link: Link) -> None:
        while not link.said_bye and (said := await self._read(link)) is not None:
            self._hear(link, said)

    async def _read(self, link: Link) -> FromTab | None:
        """The next message of a tab; None where it is gone, or sends what nobody can read."""
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

    def _hear(self, link: Link, said: FromTab) -> None:
        now_s, room = self._clock(), link.room
        match said:
            case Hello():
                link.send(Refused("a tab says Hello once", "connect again to be another"))
            case Bye():
                link.said_bye = True
            case WorkerReady():
                link.ready = said
                if room is not None:
                    self._serve(link, room)
            case TabProgress():
                self.counts["simulations"] += max(0, said.simulations - link.simulations)
                link.simulations = said.simulations
                if room is not None:
                    room.sessions.hear(link.number, said.playing, now_s)
            case GamesComplete(games) | EvalResult(games):
                if room is None:
                    return  # it brings them again when it is welcomed to a run
                for game in games:
                    room.sessions.bring(link.number, game, now_s)
        if room is not None:
            room.bell.ring()

    def _seat(self, link: Link) -> None:
        """Gives a tab a run to play for: the one that it knows, else the emptiest of those that have games to give, else of all."""
        assert link.guest is not None
        open_rooms = [room for room in self.rooms.values() if room.open_lease] or list(self.rooms.values())
        emptiest = min(open_rooms, key=lambda room: len(room.sessions.tabs), default=None)
        link.room = room = self.rooms.get(link.wished, emptiest)
        who = link.guest
        link.send(Welcome(who.contributor, who.token, who.name, room.record.run if room else "", __version__))
        if room is not None:
            link.told.clear()
            room.sessions.enter(link.number, who.contributor, self._clock(), link.address)
            self._serve(link, room)

    def _serve(self, link: Link, room: Room) -> None:
        """Tells a tab of new weights, and hands it games where it has room."""
        network = room.network
        if network is None:
            return
        if not link.told or link.told[-1] != network.version:
            link.send(network)
            link.told.append(network.version)
        if link.ready is None:
            return
        wanted = link.ready.games or link.ready.workers * GAMES_AT_ONCE
        room.sessions.tabs[link.number].room = min(wanted, MOST_GAMES)
        plays_matches = MATCHES in link.ready.features and Kind.EVAL in room.sections.volunteers.kinds
        room.sessions.tabs[link.number].match_room = link.ready.workers * MATCH_GAMES if plays_matches else 0
        terms = room.terms(link.ready.version, quality_wished(link.ready))
        if terms.version in link.told and (handed := room.sessions.hand(link.number, self._clock(), terms=terms)):
            link.send(room.play(handed, terms))
        for job, kept in room.matches.items():
            if kept.networks and (handed := room.sessions.hand(link.number, self._clock(), job)):
                link.send(kept.match.told(room.record.run, kept.networks, handed))

    def _deliver(self, room: Room) -> None:
        """Tells tabs what became of their games, and hands out what waits."""
        for number, answer in room.sessions.take_answers():
            if (link := self.links.get(number)) is not None:
                link.send(answer)
        for number in tuple(room.sessions.tabs) if room.sessions.waiting else ():
            if (link := self.links.get(number)) is not None:
                self._serve(link, room)

    # -- leases

    def begin(self, lease: Lease, view: RunView, sections: RunSections, ended: Callable[[], None]) -> None:
        """Takes a lease on; `ended` is called once it hands out no more games."""
        room, leases = self._room_of(view, sections), self._leases
        match = lease.job.kind == Kind.EVAL
        self._start(leases.referee(room, lease, ended) if match else leases.keep(room, lease, sections, ended))

    def _room_of(self, view: RunView, sections: RunSections) -> Room:
        name = view.record.run
        if name not in self.rooms:
            self.rooms[name] = make_room(view.record, sections, self._backing.secret, self._patience, self._all)
            self._start(self._leases.judge(self.rooms[name]))
        return self.rooms[name]

    # -- runs

    async def turn(self) -> None:
        """Marks that the event loop turns until the gateway stops, whatever a look waits for."""
        while not self.stopping.is_set():
            self.turned_s = self._clock()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Follows runs and their weights until the gateway stops."""
        for number in itertools.count():
            if self.stopping.is_set():
                break
            try:
                await self._look()
                await self._keep_books(number)
            except (BrokerError, ConfigError) as error:
                log.warning("look_failed", reason=str(error))
            await asyncio.sleep(LOOK_S)

    async def _keep_books(self, looks: int) -> None:
        """Now and then: what contributors did with games is kept, and devices of whom no game counts are forgotten."""
        if looks % NOTE_LOOKS == 0 and (fresh := self._all.handing.take_fresh()):
            await self._in_thread(self._backing.guests.note, fresh)
        if looks % FORGET_LOOKS == NOTE_LOOKS:
            present = {link.guest.contributor for link in self.links.values() if link.guest}
            await self._in_thread(self._backing.guests.forget, present)

    async def _look(self) -> None:
        found = await self._in_thread(self._wanting)
        for view, sections, network in found:
            room = self._room_of(view, sections)
            room.network = network or room.network
        for name in self.rooms.keys() - {view.record.run for view, _, _ in found}:
            self._close(self.rooms.pop(name))
        now_s = self._clock()
        for room in self.rooms.values():
            room.sessions.expire(now_s)
            room.bell.ring()
            for number in tuple(room.sessions.tabs):
                self._serve(self.links[number], room)
            self._deliver(room)
        self.plays_matches = any(tab.match_room for room in self.rooms.values() for tab in room.sessions.tabs.values())
        for link in tuple(self.links.values()):
            if link.guest is not None and link.room is None and self.rooms:
                self._seat(link)

    def _wanting(self) -> list[tuple[RunView, RunSections, ModelUpdate | None]]:
        """In a thread: the running runs that want tabs to play, with their newest networks."""
        found = []
        for view in () if self._backing.guests.closed() else self._backing.ledger.runs():
            try:
                sections = sections_of(view.record)
                if view.state is RunState.RUNNING and sections.volunteers.kinds:
                    found.append((view, sections, self._backing.networks.find(view.record, sections)))
            except BrokerError:
                raise
            except AzqError as error:
                log.warning("run_left_out", run=view.record.run, reason=str(error))
        return found

    def _close(self, room: Room) -> None:
        """A run that ended, rests, or wants no tabs any more: those that played for it wait for another."""
        room.open = False
        room.bell.ring()
        for number in tuple(room.sessions.tabs):
            link = self.links[number]
            link.send(PlayGames(room.record.run, "", {}, stop=True))
            link.room = None
            room.sessions.leave(number, self._clock(), for_good=True)
        room.sessions.end()

    # -- life

    async def stop(self) -> None:
        """Gives all games back."""
        self.stopping.set()
        for room in self.rooms.values():
            room.open = False
            room.bell.ring()
        self.rooms.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(BrokerError):
            await self._keep_books(0)
        self._threads.shutdown(wait=False)
        self._leases.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *arguments))
