"""Contributors in the control plane: devices by a random token of which only a hash is stored, their names, invitations, quotas, histories.

Stored of a person: a chosen name and the device's, or the name of an invitation, the time of the first visit, and figures about games.
Addresses are stored for a day as keyed hashes, for the quotas. Games carry `browser:<contributor>`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
import unicodedata
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import redis

from azq.clock import now_ms
from azq.config import GatewayConfig
from azq.errors import NotFound
from azq.parts.volunteers.contribution_counts import DAY_S, PERIODS, SUMS, ContributionCounts
from azq.parts.volunteers.reputation import ContributorStanding, HandOuts, TrackRecord, Trusted, standing_of
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import translate
from azq.wire.messages import Message
from azq.wire.tabs import Refused

HISTORY_LIFE_S = 5.0  # of a history in memory: a block works after so long
HOUR_S = 3_600
DEVICES_PER_ADDRESS = 10  # whose games an address may send
RENAMES_PER_DAY = 20  # of a contributor and its device
NO_HANDS = HandOuts()
HANDED = ("handed", "brought", "dropped")  # figures of `HandOuts` that are shown


class Contributor(Message, frozen=True):
    """A device, stored at its first visit."""

    contributor: str
    name: str
    device: str
    token: bytes  # its sha256
    created_ms: int
    history: TrackRecord = TrackRecord()
    fixed: bool = False  # the name was given by an operator or an invitation


@dataclass(frozen=True, slots=True)
class ContributorFigures:
    """A contributor as operators read it; of the address for a day, None where not requested."""

    contributor: str
    name: str
    device: str
    trust: str
    reason: str
    reliability: float
    games: int
    samples: int
    recomputed: float
    differed: float
    handed: float
    brought: float
    dropped: float
    created_ms: int
    address_handed: float | None = None
    address_brought: float | None = None
    address_dropped: float | None = None


@dataclass(frozen=True, slots=True)
class Volunteer:
    """A contributor as a gateway has it."""

    contributor: str
    token: str
    name: str = ""
    problem: str = ""  # why the wanted name was refused
    hands: HandOuts = NO_HANDS
    address_hands: HandOuts = NO_HANDS  # of all contributors of the address, for a day


class ContributorStore(ContributionCounts):
    """Contributors of a control plane; safe to share between threads and gateways. `secret` keys the hashes of addresses."""

    def __init__(self, client: redis.Redis, config: GatewayConfig, secret: bytes = b"", clock_ms: Callable[[], int] = now_ms) -> None:
        super().__init__(client, clock_ms)
        self._config = config
        self._secret = secret
        self._cache: dict[str, tuple[float, Contributor]] = {}  # with the end of its life
        self._addresses: dict[str, str] = {}  # hash of the last one, by contributor

    # -- admission

    def welcome(self, token: str, invite: str, address: str, device: str, name: str = "") -> Volunteer | Refused:
        """The contributor of a token, a new one without, or why it is refused; renamed where `name` is free. Raises `BrokerError`."""
        tag = self._tag(address)
        with translate(self.client):
            if reason := self.closed():
                return Refused("no help is wanted just now", reason)
            admitted = self._of_token(token) or self._new(invite, tag)
        if isinstance(admitted, Refused):
            return admitted
        contributor, secret = admitted
        if (standing := standing_of(contributor.history)).trust is Trusted.BLOCKED:
            return Refused(f"your games are not taken: {standing.reason}", "ask who invited you", final=True)
        self._addresses[contributor.contributor] = tag
        with translate(self.client):
            contributor, problem = self._renamed(contributor, tidy(device), tidy(name))
            self.client.set(keys.quota(f"address:{contributor.contributor}"), tag, ex=DAY_S)
            hands = contributor.history.hands, self._hands(tag)
            return Volunteer(contributor.contributor, secret, contributor.name, problem, *hands)

    def closed(self) -> str:
        """Why no one may contribute now, in the operator's words; empty where contributing is open. Raises `BrokerError`."""
        with translate(self.client):
            reason: Any = self.client.get(keys.VOLUNTEERS_OFF)
        return "" if reason is None else reason.decode() or "try again another day"

    def _of_token(self, token: str) -> tuple[Contributor, str] | None:
        contributor = self._read(token.partition(".")[0])
        return (contributor, token) if contributor and hmac.compare_digest(contributor.token, _hashed(token)) else None

    def _new(self, invite: str, tag: str) -> tuple[Contributor, str] | Refused:
        name = self._invited(invite) if invite else ""
        if name is None:
            return Refused("this invitation is used up or over", "ask for another one", final=True)
        if self._config.invited_only and not invite:
            return Refused("contributing here needs an invitation", "open the link of an invitation", final=True)
        if self._spend(f"keys:{tag}", 1, DAY_S) > self._config.keys_per_day:
            return Refused("too many new devices come from your address today", "use one that came before, or come tomorrow")
        contributor = secrets.token_hex(6)
        token = f"{contributor}.{secrets.token_urlsafe(24)}"
        fresh = Contributor(contributor, name or guest_name(contributor), "", _hashed(token), self._clock_ms(), fixed=bool(name))
        self.client.hset(keys.CONTRIBUTORS, contributor, encode(fresh))
        return fresh, token

    def _renamed(self, contributor: Contributor, device: str, name: str) -> tuple[Contributor, str]:
        """A contributor under a wanted name and device, or the old ones with the reason; empty ones change nothing."""
        name = guest_name(contributor.contributor) if is_guest(name) else name or contributor.name
        device = device or contributor.device
        if (contributor.name, contributor.device) == (name, device):
            return contributor, ""
        if self._spend(f"names:{contributor.contributor}", 1, DAY_S) > RENAMES_PER_DAY:
            return contributor, "you changed your name too often today"
        problem = self._problem_of(contributor, name)
        fields = {"device": device} if problem else {"device": device, "name": name}
        return self._change(contributor.contributor, lambda now: msgspec.structs.replace(now, **fields)), problem

    def _problem_of(self, contributor: Contributor, name: str) -> str:
        """Why a contributor may not have this name; empty where it may."""
        if name == contributor.name:
            return ""
        if contributor.fixed:
            return f"you were given the name {contributor.name}"
        if name == guest_name(contributor.contributor):
            return ""
        others = (other for other in self.all() if other.contributor != contributor.contributor)
        taken = {sounds_like(word) for other in others for word in (other.name, other.contributor)}
        return unfit(name) or (f"somebody else is called {name}" if sounds_like(name) in taken else "")

    def _invited(self, invite: str) -> str | None:
        """The name that an invitation gives; None where it is used up, over, or none."""
        key = keys.invitation(_hashed(invite).hex())
        name: Any = self.client.hget(key, "name")
        if name is None or int(self.client.hincrby(key, "uses", -1)) < 0:
            return None
        return bytes(name).decode()

    def _spend(self, what: str, count: int, life_s: int) -> int:
        """What was spent of a quota in this span of time, with this."""
        key = keys.quota(f"{what}:{self._clock_ms() // (1000 * life_s)}")
        with self.client.pipeline() as pipe:
            pipe.incrby(key, count)
            pipe.expire(key, life_s)
            return int(pipe.execute()[0])

    # -- games

    def refusal(self, contributor: str, games: int) -> str:
        """Why so many more games are refused now; empty where they are taken. Raises `BrokerError`."""
        if reason := self.closed():
            return reason
        with translate(self.client):
            if self._spend(f"games:{contributor}", games, HOUR_S) > self._config.games_per_hour:
                return f"more than {self._config.games_per_hour} games an hour came from this device"
            tag = self._addresses.get(contributor, contributor)
            if self._spend(f"from:{tag}", games, HOUR_S) > (most := DEVICES_PER_ADDRESS * self._config.games_per_hour):
                return f"more than {most} games an hour came from one address"
        return ""

    def add_hand_outs(self, hands: Mapping[str, HandOuts]) -> None:
        """Adds counts of contributors, and of addresses with an @ before them. Raises `BrokerError`."""
        for key, fresh in hands.items():
            if key.startswith("@"):
                with translate(self.client):
                    tag = self._tag(key[1:])
                    self.client.set(keys.quota(f"hands:{tag}"), msgspec.msgpack.encode(self._hands(tag).plus(fresh)), ex=DAY_S)
            else:
                with suppress(NotFound):
                    self.change(key, partial(TrackRecord.plus_hands, later=fresh))

    def address_hands(self, contributor: str) -> HandOuts:
        """Hand-outs to all contributors of a contributor's address, for a day. Raises `BrokerError`."""
        with translate(self.client):
            tag: Any = self.client.get(keys.quota(f"address:{contributor}"))
            return self._hands(tag.decode()) if tag else HandOuts()

    def _hands(self, tag: str) -> HandOuts:
        frame: Any = self.client.get(keys.quota(f"hands:{tag}"))
        return msgspec.msgpack.decode(frame, type=HandOuts) if frame else HandOuts()

    def _tag(self, address: str) -> str:
        return hmac.digest(self._secret, address.encode(), "sha256").hex()[:16]

    def forget(self, present: Collection[str] = ()) -> int:
        """Forgets devices of whom no game counts a day after they came, those present and blocked aside; returns how many."""
        counted, before_ms = self.sums("ever"), self._clock_ms() - 1000 * DAY_S
        old = [row.contributor for row in self.all() if row.created_ms < before_ms and not row.history.barred]
        gone = [contributor for contributor in old if contributor not in counted and contributor not in present]
        for start in range(0, len(gone), 1000):
            with translate(self.client):
                self.client.hdel(keys.CONTRIBUTORS, *gone[start : start + 1000])
        for contributor in gone:
            self._cache.pop(contributor, None)
            self._addresses.pop(contributor, None)
        return len(gone)

    def history(self, contributor: str) -> TrackRecord:
        """A contributor's history, as it was a moment ago; an empty one of a stranger."""
        until_s, cached = self._cache.get(contributor, (0.0, None))
        if cached is None or time.monotonic() > until_s:
            with translate(self.client):
                cached = self._read(contributor)
        return cached.history if cached else TrackRecord()

    def change(self, contributor: str, change: Callable[[TrackRecord], TrackRecord]) -> TrackRecord:
        """Changes a history atomically; returns it. Raises `NotFound`, `BrokerError`."""
        return self._change(contributor, lambda now: msgspec.structs.replace(now, history=change(now.history))).history

    def _change(self, contributor: str, change: Callable[[Contributor], Contributor]) -> Contributor:
        def step(pipe: Any) -> Contributor:
            before = self._read(contributor)
            if before is None:
                raise NotFound(f"no contributor {contributor}; `azq volunteers list` shows them")
            pipe.multi()
            pipe.hset(keys.CONTRIBUTORS, contributor, encode(after := change(before)))
            return after

        with translate(self.client):
            changed: Any = self.client.transaction(step, keys.CONTRIBUTORS, value_from_callable=True)  # type: ignore[arg-type]
        return self._cached(changed)

    def _read(self, contributor: str) -> Contributor | None:
        frame: Any = self.client.hget(keys.CONTRIBUTORS, contributor) if contributor else None
        return self._cached(decode(frame, Contributor)) if frame else None

    def _cached(self, contributor: Contributor) -> Contributor:
        self._cache[contributor.contributor] = time.monotonic() + HISTORY_LIFE_S, contributor
        return contributor

    # -- reading

    def all(self) -> list[Contributor]:
        """Every contributor, the newest last. Raises `BrokerError`."""
        with translate(self.client):
            frames: Any = self.client.hvals(keys.CONTRIBUTORS)
        return sorted((decode(frame, Contributor) for frame in frames), key=lambda contributor: contributor.created_ms)

    def figures_of(self, contributor: Contributor, sums: Mapping[str, Mapping[str, int]], *, address: bool = False) -> ContributorFigures:
        """Standing and figures of a contributor, with the `sums` of all. Raises `BrokerError`."""
        history, counts = contributor.history, sums.get(contributor.contributor, {})
        standing = standing_of(history)
        hands = {name: getattr(history.hands, name) for name in HANDED}
        if address:
            of_address = self.address_hands(contributor.contributor)
            hands |= {f"address_{name}": getattr(of_address, name) for name in HANDED}
        return ContributorFigures(
            contributor=contributor.contributor,
            name=contributor.name,
            device=contributor.device,
            trust=str(standing.trust),
            reason=standing.reason,
            reliability=standing.reliability,
            games=counts.get("games", 0),
            samples=counts.get("samples", 0),
            recomputed=history.recomputed,
            differed=history.differed,
            created_ms=contributor.created_ms,
            **{name: round(games, 1) for name, games in hands.items()},
        )

    def find(self, name: str) -> Contributor:
        """The contributor of this id, or the only one of this name. Raises `NotFound` naming what there is."""
        matches = [contributor for contributor in self.all() if name in (contributor.contributor, contributor.name)]
        if len(matches) > 1:
            raise NotFound(f"{len(matches)} devices are called {name}; name one by its id: {', '.join(row.contributor for row in matches)}")
        if not matches:
            raise NotFound(f"no contributor is called {name!r}; `azq volunteers list` shows them")
        return matches[0]

    def name(self, contributor: str) -> str:
        """A contributor's name."""
        _, cached = self._cache.get(contributor, (0.0, None))
        return cached.name if cached else guest_name(contributor)

    def leaderboard(self) -> list[dict[str, object]]:
        """Names and devices with their games and samples, the best first; blocked ones are left out."""
        ever, month, day = map(self.sums, PERIODS)
        rows: list[dict[str, object]] = [
            {name: sums.get(name, 0) for name in SUMS}
            | {"name": row.name, "device": row.device, "last_ms": sums["last"], "uptime_s": sums.get("up_ms", 0) / 1000}
            | {f"games_{name}": counts.get(row.contributor, {}).get("games", 0) for name, counts in (("month", month), ("day", day))}
            for row in self.all()
            if (sums := ever.get(row.contributor)) and standing_of(row.history).trust is not Trusted.BLOCKED
        ]
        return sorted(rows, key=lambda row: -int(str(row["games"])))

    # -- operators

    def invite(self, name: str, uses: int, days: float) -> str:
        """Makes an invitation for so many devices, which names them unless `name` is empty; returns its code, a secret."""
        code = secrets.token_urlsafe(12)
        key = keys.invitation(_hashed(code).hex())
        with translate(self.client), self.client.pipeline() as pipe:
            pipe.hset(key, mapping={"name": tidy(name), "uses": uses})
            pipe.expire(key, round(days * DAY_S))
            pipe.execute()
        return code

    def rename(self, contributor: str, name: str) -> str:
        """Gives a contributor a name that stays fixed, an empty one the guest name; returns it. Raises `NotFound`."""
        name = tidy(name) or guest_name(contributor)
        return self._change(contributor, lambda now: msgspec.structs.replace(now, name=name, fixed=True)).name

    def block(self, contributor: str, reason: str) -> ContributorStanding:
        """Takes no more games of a contributor. Raises `NotFound`."""
        return standing_of(self.change(contributor, lambda history: msgspec.structs.replace(history, barred=reason or "blocked")))

    def unblock(self, contributor: str) -> ContributorStanding:
        """Lets a contributor begin again, in probation. Raises `NotFound`."""
        return standing_of(self.change(contributor, lambda history: TrackRecord(accepted=history.accepted, plies=history.plies)))

    def turn(self, *, on: bool, reason: str = "") -> None:
        """Opens or closes all gateways to contributors."""
        with translate(self.client):
            if on:
                self.client.delete(keys.VOLUNTEERS_OFF)
            else:
                self.client.set(keys.VOLUNTEERS_OFF, reason)


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


LONGEST_NAME = 32
MARKS = " -_.'"  # besides letters and digits
GUEST = "guest"  # stands for no name


def guest_name(contributor: str) -> str:
    """The name of a contributor without a chosen one."""
    return f"{GUEST}-{contributor[:6]}"


def tidy(text: str) -> str:
    """A name as it is stored and shown: composed, in a line, at most `LONGEST_NAME` characters."""
    composed = unicodedata.normalize("NFKC", text)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in composed).split())[:LONGEST_NAME].rstrip()


def is_guest(name: str) -> bool:
    """Whether it stands for no name."""
    return sounds_like(name).startswith(GUEST)


def unfit(name: str) -> str:
    """Why a tidy name cannot be one; empty where it can."""
    if strange := next((letter for letter in name if letter not in MARKS and not _is_read(letter)), ""):
        return f"a name has letters, digits and {MARKS.strip()}, not {strange}"
    return "" if sounds_like(name) else "a name has a letter or a digit"


def sounds_like(name: str) -> str:
    """Alike for names that differ in case, spaces and marks alone."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", name.casefold()) if _is_read(letter))


def _is_read(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LMN"
