"""A browser's tab without a browser: plays what a gateway hands out with the core, every leaf evaluated alike, and brings it back.

It keeps a finished game until it is answered, and comes back as the same contributor after whatever cut it off.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from azq import __version__, logs
from azq.actor.groups import GameGroup
from azq.config import SearchConfig
from azq.games.files import GameFiles
from azq.process.start import die_with_parent
from azq.search.evaluator import UniformEvaluator
from azq.search.search import exploring, leaves_at_once, make_search
from azq.waiting import Backoff
from azq.wire.arrays import pack_record
from azq.wire.codec import decode
from azq.wire.messages import GameRecord
from azq.wire.tabs import (
    GAMES_PER_FRAME,
    Accepted,
    Bye,
    EvalResult,
    FromGateway,
    FromTab,
    GamesComplete,
    Hello,
    ModelUpdate,
    PlayGames,
    Refused,
    TabGame,
    TabProgress,
    Welcome,
    WorkerReady,
    encode_tab,
    from_gateway,
    is_match,
)

PATH = "/v1/volunteers/tab"
PROGRESS_S = 5.0
BACKOFF = Backoff(0.2, 2.0)

log = logs.get(__name__)


class Play:
    """The games of one tab, stepped together; all of one run and one setting of its search."""

    def __init__(self, model: ModelUpdate, request: PlayGames, slots: int) -> None:
        game = GameFiles().load(model.game, model.params)
        search = {name: value for name, value in request.search.items() if name in SearchConfig.model_fields}
        config = exploring(SearchConfig.model_validate(search), random_opening_plies=int(request.search.get("random_opening_plies", 0)))
        self._uniform = UniformEvaluator(game.num_distinct_actions(), game.value_size())
        self._group = GameGroup(make_search(game, config, num_slots=slots, seed=int(request.seed)), game, leaves_at_once(config, game))
        self.tickets: dict[int, bytes] = {}
        self._numbers: dict[int, int] = {}  # of games, by their luck
        self.simulations = 0

    def take(self, request: PlayGames) -> None:
        """Starts the games that were handed out, as far as there are slots."""
        for slot, handed in zip(self._group.room(), request.games, strict=False):
            record = decode(handed.record, GameRecord) if handed.record else GameRecord(handed.uid)
            luck = handed.luck or handed.uid
            self._group.start(slot, msgspec.structs.replace(record, uid=luck))
            self._numbers[luck], self.tickets[handed.uid] = handed.uid, handed.ticket

    def step(self, version: int) -> list[TabGame]:
        """One evaluation of all leaves; the games that ended with it."""
        finished = self._group.finished()
        self._group.clear_finished()
        if self._group.advance():
            answer = self._uniform.result(self._uniform.submit(self._group.request()[0]), timeout_s=0.0)
            assert answer is not None
            self.simulations += self._group.apply(replace(answer, weight_version=version))
        ended = [msgspec.structs.replace(pack_record(record), uid=self._numbers[record.uid]) for record in finished]
        return [brought(record, self.tickets.pop(record.uid)) for record in ended if record.uid in self.tickets]


def brought(record: GameRecord, ticket: bytes) -> TabGame:
    """A finished game as it is handed in."""
    arrays = (record.actions, record.policies, record.root_values, record.simulations, record.weight_versions)
    return TabGame(record.uid, ticket, *arrays, support=record.support)


@dataclass
class SimulatedTab:
    """One tab; `address` is a gateway's, as ws://host:port."""

    address: str
    slots: int = 4
    token: str = ""
    run: str = ""
    features: tuple[str, ...] = ()
    finished: dict[int, TabGame] = field(default_factory=dict)  # not yet answered
    accepted: list[int] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    unwanted: bool = False  # the gateway said so
    _model: ModelUpdate | None = None
    _play: Play | None = None

    def live(self, until: Callable[[SimulatedTab], bool]) -> None:
        """Connects, plays and connects again until `until(tab)` holds or the gateway wants it no more."""
        failures = 0
        while not until(self) and not self.unwanted:
            try:
                with connect(f"{self.address}{PATH}", compression=None, max_size=None, proxy=None) as socket:
                    failures = 0
                    self._talk(socket, until)
            except (OSError, WebSocketException, TimeoutError):
                failures += 1
                again_s = time.monotonic() + BACKOFF.pause_s(failures)
                while time.monotonic() < again_s and not until(self):  # it plays on, as a page does
                    if not self._advance():
                        time.sleep(0.01)

    def _talk(self, socket: ClientConnection, until: Callable[[SimulatedTab], bool]) -> None:
        _say(socket, Hello(__version__, self.token, run=self.run))
        said_s = time.monotonic()
        while not until(self):
            busy = self._play is not None and bool(self._play.tickets)
            while (heard := _hear(socket, 0.0 if busy else 0.2)) is not None:
                self._heed(socket, heard)
                if self.unwanted:
                    return
            bring(socket, self._advance())
            if time.monotonic() - said_s >= PROGRESS_S:
                said_s = time.monotonic()
                self._progress(socket)
        _say(socket, Bye())

    def _advance(self) -> list[TabGame]:
        """A step of the games in play; those that ended with it."""
        if self._play is None or self._model is None:
            return []
        games = self._play.step(self._model.version)
        self.finished.update((game.uid, game) for game in games)
        return games

    def _heed(self, socket: ClientConnection, heard: FromGateway) -> None:
        match heard:
            case Welcome():
                self.token, self.run = heard.token, heard.run
                bring(socket, list(self.finished.values()))
                self._progress(socket)
            case ModelUpdate():
                self._model = heard
                _say(socket, WorkerReady("simulated", 1, "", self.features, self.slots, heard.version))
            case PlayGames(stop=True):
                self._play = None
            case PlayGames():
                assert self._model is not None
                if self._play is None:
                    self._play = Play(self._model, heard, self.slots)
                self._play.take(heard)
            case Accepted():
                self.accepted += [uid for uid in heard.uids if self.finished.pop(uid, None)]
            case Refused():
                self.unwanted = heard.final
                for uid in heard.uids:
                    self.finished.pop(uid, None)
                self.refused += [(uid, heard.reason) for uid in heard.uids]

    def _progress(self, socket: ClientConnection) -> None:
        play = self._play
        simulations, playing = (play.simulations, tuple(play.tickets)) if play else (0, ())
        _say(socket, TabProgress(len(self.accepted) + len(self.finished), simulations, simulations, 0, playing))


def bring(socket: ClientConnection, games: list[TabGame]) -> None:
    """Hands finished games in, those of matches apart."""
    for message, match in ((GamesComplete, False), (EvalResult, True)):
        theirs = [game for game in games if is_match(game.uid) is match]
        for start in range(0, len(theirs), GAMES_PER_FRAME):
            _say(socket, message(tuple(theirs[start : start + GAMES_PER_FRAME])))


def _say(socket: ClientConnection, message: FromTab) -> None:
    socket.send(encode_tab(message))


def _hear(socket: ClientConnection, within_s: float) -> FromGateway | None:
    try:
        frame = socket.recv(within_s)
    except TimeoutError:
        return None
    assert isinstance(frame, bytes)
    return from_gateway(frame)


def main(address: str) -> None:
    """A tab that plays until it is killed, or whoever started it dies."""
    die_with_parent()
    SimulatedTab(address).live(lambda tab: False)


if __name__ == "__main__":
    main(sys.argv[1])
