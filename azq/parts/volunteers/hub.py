"""A run at a gateway: its tabs and games, its leases, the messages that tabs get; and a connected tab."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from dataclasses import dataclass, field
from functools import partial

import redis
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from azq.actor.lease import HeldLease
from azq.config import RunSections, SearchConfig
from azq.errors import AzqError
from azq.games import Game
from azq.games.files import GameFiles
from azq.ledger import Ledger
from azq.ledger.types import Lease
from azq.parts.volunteers.contributor_store import ContributorStore, Volunteer
from azq.parts.volunteers.handouts import GatewayCounts, Terms, Tickets
from azq.parts.volunteers.matches import TabMatch, in_hand
from azq.parts.volunteers.models import Networks
from azq.parts.volunteers.sessions import Sessions, TabPatience
from azq.parts.volunteers.verifier import Judge
from azq.process.webserver import client_of
from azq.wire import keys
from azq.wire.arrays import legal_bytes
from azq.wire.connect import translate
from azq.wire.messages import GameRecord, RunRecord, SampleEvent
from azq.wire.tabs import MAX_TAB_BYTES, FromGateway, ModelUpdate, PlayGames, WorkerReady, encode_tab

OUTBOX_FRAMES = 256  # that a tab has not yet taken; one that falls back further is disconnected
PAUSE_S = 0.05
FRAMES_PER_S = 50.0  # of a tab; more are read more slowly
NEWEST = 500  # finished games that visitors may open
MOST_GAMES = 512  # that a tab plays at once
QUALITIES = (25, 50, 75, 100)  # percent of the simulations that are ordered, from which a tab may choose
LEAST_QUALITY = 50  # that it gets
MATCH_GAMES = 4  # of matches that each worker of a tab gets at once: few, so that many tabs have a share
VERSIONS_BEHIND = 8  # weights versions that a tab may play with, the newest ones it got


@dataclass(frozen=True, slots=True)
class Backing:
    """What a gateway works with."""

    ledger: Ledger
    contributors: ContributorStore
    judge: Judge
    networks: Networks
    secret: bytes


class Notifier:
    """Wakes all that wait; a count of its rings shows one that came before the wait."""

    def __init__(self) -> None:
        self.rings = 0
        self._event = asyncio.Event()

    def ring(self) -> None:
        self.rings += 1
        self._event.set()

    async def after(self, rings: int, within_s: float) -> None:
        """Waits until it has rung more often, a moment at least: what comes meanwhile is done together."""
        await asyncio.sleep(PAUSE_S)
        if self.rings == rings:
            self._event.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), within_s)


@dataclass(eq=False)
class TabLease:
    """A lease that the gateway holds; its games are searched by `search`."""

    lease: Lease
    held: HeldLease
    search: SearchConfig
    closing: bool = False  # hands out no more games than it has
    renew_s: float = 0.0  # when it is renewed next


@dataclass(eq=False, kw_only=True)
class MatchLease(TabLease):
    """A lease on a match; `networks` are the messages about its players' networks, none before tabs can load them."""

    match: TabMatch
    networks: tuple[ModelUpdate, ...] = ()


@dataclass(eq=False)
class RunHub:
    """A run; `network` is the message about its newest weights, None before there are any."""

    record: RunRecord
    sections: RunSections
    sessions: Sessions
    network: ModelUpdate | None = None
    leases: list[TabLease] = field(default_factory=list)
    matches: dict[str, MatchLease] = field(default_factory=dict)  # by lease
    newest: deque[SampleEvent] = field(default_factory=partial(deque, maxlen=NEWEST))  # that tabs finished
    notifier: Notifier = field(default_factory=Notifier)
    open: bool = True  # until the run ends, rests, or wants no tabs any more

    @property
    def open_lease(self) -> TabLease | None:
        """The lease that takes more games."""
        return next((lease for lease in self.leases if not lease.closing), None)

    @property
    def search(self) -> SearchConfig:
        """What games are searched by, but for a tab's budget."""
        return self.leases[-1].search if self.leases else tab_search(self.sections)

    def terms(self, version: int, quality: int = 100) -> Terms:
        """The terms of a tab that plays with this version and wants so many percent of the simulations."""
        return Terms(version, max(1, self.search.num_simulations * max(quality, LEAST_QUALITY) // 100))

    def play(self, handed: list[tuple[GameRecord, bytes]], terms: Terms) -> PlayGames:
        """The message with which a tab gets games."""
        settings = self.search.model_dump(exclude={"schedule"})
        settings |= {"num_simulations": terms.budget, "random_opening_plies": self.sections.selfplay.random_opening_plies}
        games = in_hand(handed, self.sessions.tickets.luck)
        return PlayGames(self.record.run, str(self.sections.run.seed), settings, games, version=terms.version)


def make_hub(record: RunRecord, sections: RunSections, secret: bytes, patience: TabPatience, counts: GatewayCounts) -> RunHub:
    """A run's hub without tabs."""
    tickets = Tickets(secret, f"{record.run} {record.created_ms}".encode())
    longest = MAX_TAB_BYTES
    with contextlib.suppress(AzqError):  # tabs get no games of a run whose rules they do not have
        longest = longest_bytes(GameFiles().load(sections.run.game, sections.run.params))
    return RunHub(record, sections, Sessions(tickets, patience, counts, longest))


def longest_bytes(game: Game) -> int:
    """What a finished game can have at most, of a frame's bytes; with chance up to two of its plies come between two of the players'."""
    plies = game.max_game_length() * (3 if game.is_chance() else 1)
    actions = game.num_distinct_actions()
    return min(MAX_TAB_BYTES, plies * (8 + 2 * actions + legal_bytes(actions) + 4 * game.value_size()))


def tab_search(sections: RunSections) -> SearchConfig:
    """The search of tabs: as servers search, but each ply by itself, so that it can be searched again, and its leaves one by one."""
    budget = sections.volunteers.num_simulations or sections.search.num_simulations
    return sections.search.model_copy(update={"reuse_subtree": False, "batch_root": False, "num_simulations": budget})


def quality_wished(ready: WorkerReady) -> int:
    """Percent of the simulations that a tab wants to do, of `QUALITIES`; all without a wish."""
    wishes = (word.removeprefix("quality=") for word in ready.features if word.startswith("quality="))
    return next((int(wish) for wish in wishes if wish.isdecimal() and int(wish) in QUALITIES), 100)


def volunteer_secret(client: redis.Redis) -> bytes:
    """The control plane's secret for tickets and tokens, made at the first call."""
    with translate(client):
        client.set(keys.VOLUNTEER_SECRET, secrets.token_bytes(32), nx=True)
        secret = client.get(keys.VOLUNTEER_SECRET)
    assert isinstance(secret, bytes)
    return secret


class Link:
    """A connected tab; what is sent to it waits in its outbox."""

    def __init__(self, number: int, socket: WebSocket, reader: asyncio.Task[None]) -> None:
        self.number = number
        self.address = client_of(socket.client.host) if socket.client else "unknown"
        self.volunteer: Volunteer | None = None
        self.ready: WorkerReady | None = None
        self.hub: RunHub | None = None
        self.wished = ""  # run that it played for before
        self.versions: deque[int] = deque(maxlen=VERSIONS_BEHIND)  # of the run's weights that it has, the newest last
        self.unreadable = 0
        self.simulations = 0  # so far, by its own count
        self.leaving = False  # for good
        self._socket = socket
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue(OUTBOX_FRAMES)
        self._paced_s = 0.0
        self.cut_off = False
        self._reader = reader
        self._writer = asyncio.create_task(self._write())

    def send(self, message: FromGateway) -> None:
        """Queues a message; cuts off a tab that takes none."""
        try:
            self._outbox.put_nowait(encode_tab(message))
        except asyncio.QueueFull:
            self.cut_off = True
            self._reader.cancel()

    async def receive(self) -> bytes | None:
        """The next frame, None where there is no more; text as its bytes, which are no message."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        return message.get("bytes") or str(message.get("text") or "").encode()

    async def pace(self, now_s: float) -> None:
        """Waits where the tab sends faster than honest ones do, a second's worth of frames aside."""
        self._paced_s = max(now_s, self._paced_s) + 1.0 / FRAMES_PER_S
        await asyncio.sleep(max(0.0, self._paced_s - now_s - 1.0))

    async def close(self) -> None:
        """Sends what waits, for a moment, and ends the connection."""
        with contextlib.suppress(asyncio.QueueFull):
            self._outbox.put_nowait(None)
        await asyncio.wait({self._writer}, timeout=2.0)
        self._writer.cancel()
        with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
            if self._socket.application_state is WebSocketState.CONNECTED:
                await self._socket.close()

    async def _write(self) -> None:
        with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):  # the tab is gone, which its reader learns too
            while (frame := await self._outbox.get()) is not None:
                await self._socket.send_bytes(frame)
