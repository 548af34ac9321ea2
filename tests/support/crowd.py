"""Very many tabs in one process: each has a connection of its own, all are searched together."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from simulated_tab import PATH, Play
from websockets.asyncio.client import ClientConnection, connect

from azq.wire import tabs as wire

PROGRESS_S = 10.0


@dataclass
class Crowd:
    """So many tabs that each play one game after the other and bring each `pace_s` after it was handed out."""

    address: str
    tabs: int
    pace_s: float
    accepted: int = 0
    refused: list[str] = field(default_factory=list)
    welcomed: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    _play: Play | None = None
    _owners: dict[int, tuple[ClientConnection, float]] = field(default_factory=dict)  # of games: tab, and when it may be brought
    _told: wire.ModelUpdate | None = None

    async def live(self, over: asyncio.Event) -> None:
        """Connects all, a few at a time, and plays until it is over."""
        sockets: list[ClientConnection] = []
        for start in range(0, self.tabs, 50):
            fresh = [
                connect(f"{self.address}{PATH}", compression=None, proxy=None, ping_interval=None)
                for _ in range(start, min(start + 50, self.tabs))
            ]
            sockets += await asyncio.gather(*fresh)
        tasks = [asyncio.create_task(self._tab(socket)) for socket in sockets]
        tasks.append(asyncio.create_task(self._search()))
        await over.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(socket.close() for socket in sockets), return_exceptions=True)

    async def _tab(self, socket: ClientConnection) -> None:
        await self._say(socket, wire.Hello("1"))
        async for frame in socket:
            assert isinstance(frame, bytes)
            self.received_bytes += len(frame)
            heard: Any = wire.from_gateway(frame)
            if isinstance(heard, wire.ModelUpdate):
                self._told = heard
                await self._say(socket, wire.WorkerReady("simulated", 1, "", games=1, version=heard.version))
            elif isinstance(heard, wire.PlayGames) and self._told:
                self._play = self._play or Play(self._told, heard, 2 * self.tabs)
                self._play.take(heard)
                self._owners |= {game.uid: (socket, time.monotonic() + self.pace_s) for game in heard.games}
            elif isinstance(heard, wire.Accepted):
                self.accepted += len(heard.uids)
            elif isinstance(heard, wire.Refused):
                self.refused.append(heard.reason)
            elif isinstance(heard, wire.Welcome):
                self.welcomed += 1

    async def _search(self) -> None:
        waiting: list[wire.TabGame] = []
        said_s = time.monotonic()
        while True:
            waiting += self._play.step(0) if self._play else []
            now_s = time.monotonic()
            due = [game for game in waiting if self._owners[game.uid][1] <= now_s]
            waiting = [game for game in waiting if self._owners[game.uid][1] > now_s]
            for game in due:
                await self._say(self._owners.pop(game.uid)[0], wire.GamesComplete((game,)))
            if now_s - said_s >= PROGRESS_S:
                said_s = now_s
                for uid, (socket, _) in tuple(self._owners.items()):
                    await self._say(socket, wire.TabProgress(0, 0, 0, 0, (uid,)))
            await asyncio.sleep(0.005)

    async def _say(self, socket: ClientConnection, message: wire.FromTab) -> None:
        frame = wire.encode_tab(message)
        self.sent_bytes += len(frame)
        await socket.send(frame)
