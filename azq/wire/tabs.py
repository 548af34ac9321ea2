"""What a gateway and a browser's tab say to each other over a WebSocket: tagged structs in frames `[TAB_SCHEMA, [tag, field, ...]]`.

A tab is a stranger: every field that comes from one has its limit, and what keeps to all of them may still be a lie. Fields are only
ever added, optional and last. Letters: L leaves, P bytes of a packed observation, A actions, V values per leaf, T plies.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from azq.errors import WireError
from azq.wire.codec import printable
from azq.wire.messages import GameRecord

TAB_SCHEMA = 4  # 2: a game is searched in one way, which its hand-out names; 3: networks in whole numbers; 4: so is its luck
MAX_TAB_BYTES = 1024 * 1024  # of a frame from a tab
GAMES_PER_FRAME = 64
MATCHES = "eval"  # feature of a tab that plays matches
MATCH_UIDS = 2**52  # numbers of matches' games; self-play's are below
GROUP_UIDS = 64  # numbers of a group of such games, the seat of its first player added; the group's luck is that of its first number

Name = Annotated[str, Meta(max_length=64)]
Secret = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=1000)]
Count = Annotated[int, Meta(ge=0, lt=2**53)]  # what a browser's numbers hold
Uid = Annotated[int, Meta(ge=1, lt=2**53)]
Uids = Annotated[tuple[Uid, ...], Meta(max_length=4096)]
Ticket = Annotated[bytes, Meta(max_length=64)]
Array = Annotated[bytes, Meta(max_length=MAX_TAB_BYTES)]
Figures = Annotated[dict[Name, float], Meta(max_length=64)]
Setting = bool | int | float | str


class TabMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all messages between gateway and tab."""


class Hello(TabMessage, frozen=True):
    """A tab's first message."""

    page: Name  # version of azq that the page is of
    token: Secret = ""  # of a contributor whom a gateway welcomed before; empty: a new one
    invite: Secret = ""
    device: Name = ""  # what its owner calls it
    run: Name = ""  # that it played for before, whose games it may still bring, or wants to play for
    name: Name = ""  # what its owner wants to be called; empty: as before


class WorkerReady(TabMessage, frozen=True):
    """The tab has loaded the core and the network, and takes games."""

    backend: Name  # "wasm" | "webgpu"
    workers: Annotated[int, Meta(ge=1, le=256)]
    core: Name  # sha256 of azq.wasm
    features: Annotated[tuple[Name, ...], Meta(max_length=32)] = ()
    games: Annotated[int, Meta(ge=0, le=4096)] = 0  # at once, that it wants; 0: as the gateway sees fit
    version: Count = 0  # of the weights that it has loaded, with which it begins the games that come
    versions: Annotated[tuple[Count, ...], Meta(max_length=8)] = ()  # that it has at hand, for games that others began


class TabProgress(TabMessage, frozen=True, tag="Progress"):
    """What the tab has done since it was welcomed, and what it plays; a sign of life."""

    games: Count
    simulations: Count
    evaluations: Count
    plies: Count
    playing: Uids = ()
    version: Count = 0  # of the weights that it plays with
    cpu: Annotated[float, Meta(ge=0.0, le=1e6)] = 0.0  # share of one core, over all its workers


class TabGame(TabMessage, frozen=True):
    """A finished game, arrays as in `GameRecord`."""

    uid: Uid
    ticket: Ticket  # it was handed out with
    actions: Array
    policies: Array
    root_values: Array
    simulations: Array
    weight_versions: Array
    spent_ms: Count = 0  # unused
    support: Array = b""

    @property
    def record(self) -> GameRecord:
        """The game as it is kept."""
        arrays = (self.actions, self.policies, self.root_values, self.simulations, self.weight_versions, self.support)
        return GameRecord(self.uid, *arrays)


class GamesComplete(TabMessage, frozen=True):
    """Finished games; sent again after each `Welcome` until each is accepted or refused."""

    games: Annotated[tuple[TabGame, ...], Meta(max_length=GAMES_PER_FRAME)]


class EvalResult(TabMessage, frozen=True):
    """Finished games of matches; otherwise as `GamesComplete`."""

    games: Annotated[tuple[TabGame, ...], Meta(max_length=GAMES_PER_FRAME)]


class Bye(TabMessage, frozen=True):
    """The tab stops: whatever it holds may be handed to others."""


class Welcome(TabMessage, frozen=True):
    """Who the tab is to the gateway from now on."""

    contributor: str
    token: str  # to be kept by the tab, and sent in each `Hello`
    name: str
    run: str
    served: str  # version of azq that the gateway is of


class ModelUpdate(TabMessage, frozen=True):
    """Newest weights: a network at `/models/<sha256>.onnx`, and what it must answer on L positions."""

    run: str
    game: str
    params: dict[str, Setting]
    version: int
    sha256: str
    size: int  # bytes
    positions: bytes  # uint8 (L, P)
    logits: bytes  # float32 (L, A)
    values: bytes  # float32 (L, V)
    tolerance: float  # of each number, absolute


class Handed(TabMessage, frozen=True):
    """A game to be played to its end."""

    uid: int
    ticket: bytes
    record: bytes = b""  # frame of its `GameRecord`, as the codec writes it; empty: no ply
    luck: int = 0  # number by which its random numbers are drawn; 0: its own


class PlayGames(TabMessage, frozen=True):
    """Games handed to the tab, besides those that it has, each ply by this search and version; with `stop` it drops all and waits."""

    run: str
    seed: str  # decimal: it has 64 bits
    search: dict[str, Setting]  # as core.js takes it
    games: tuple[Handed, ...] = ()
    stop: bool = False
    version: int = 0


class EvalGames(TabMessage, frozen=True):
    """Games of a match handed to a tab that announced `MATCHES`, besides those that it has: each ply by the network of who moves."""

    run: str
    seed: str  # of the match
    search: dict[str, Setting]
    networks: tuple[ModelUpdate, ...]  # of the first player, and of the second, who has all other seats
    games: tuple[Handed, ...]


class Accepted(TabMessage, frozen=True):
    """Games that count; the tab forgets them."""

    uids: tuple[int, ...]
    totals: dict[str, int] = {}  # of the contributor: games, samples


class Refused(TabMessage, frozen=True):
    """Games that do not count, or, without any, what else the gateway does not take; the tab forgets those games."""

    reason: str
    remedy: str = ""
    uids: tuple[int, ...] = ()
    final: bool = False  # it shall not come back by itself


class TabStanding(TabMessage, frozen=True, tag="Standing"):
    """The contributor's own figures."""

    figures: dict[str, float]


FromTab = Hello | WorkerReady | TabProgress | GamesComplete | EvalResult | Bye
FromGateway = Welcome | ModelUpdate | PlayGames | EvalGames | Accepted | Refused | TabStanding

M = TypeVar("M")

_encoder = msgspec.msgpack.Encoder()
_from_tab = msgspec.msgpack.Decoder(tuple[int, FromTab])
_from_gateway = msgspec.msgpack.Decoder(tuple[int, FromGateway])
_schema = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def is_match(uid: int) -> bool:
    """Whether a game is one of a match."""
    return uid >= MATCH_UIDS


def luck_of(uid: int) -> int:
    """The number by which a game's random numbers are drawn: its own, in a match that of its group."""
    return uid - uid % GROUP_UIDS if is_match(uid) else uid


def encode_tab(message: FromTab | FromGateway) -> bytes:
    """The frame of a message to or from a tab."""
    return _encoder.encode((TAB_SCHEMA, message))


def from_tab(frame: bytes) -> FromTab:
    """What a tab says. Raises `WireError` for a frame that is too long, of another schema, or no message of a tab within its limits."""
    if len(frame) > MAX_TAB_BYTES:
        raise WireError(f"frame of {len(frame)} bytes exceeds the limit of {MAX_TAB_BYTES}; send fewer games at once")
    return _decode(_from_tab, frame)


def from_gateway(frame: bytes) -> FromGateway:
    """What a gateway says. Raises `WireError` for anything else."""
    return _decode(_from_gateway, frame)


def _decode(decoder: msgspec.msgpack.Decoder[tuple[int, M]], frame: bytes) -> M:
    try:
        if (schema := _schema.decode(frame)[0]) != TAB_SCHEMA:
            raise WireError(f"the frame has schema {schema}, this azq speaks {TAB_SCHEMA}; load the page again")
        return printable(decoder.decode(frame)[1])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"no message between gateway and tab: {error}") from None
