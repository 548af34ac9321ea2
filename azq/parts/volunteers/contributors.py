"""Contributors in the control plane: devices by a random token of which only a hash is kept, their names, invitations, quotas, histories.

What is kept of a person: what he calls himself and his device, or the name that an invitation gave him, when he came first, and figures
about his games.
Addresses are kept for a day as keyed hashes, for the quotas. Games carry `browser:<contributor>`.
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
from azq.parts.volunteers.backing import Guests, Volunteer
from azq.parts.volunteers.judges import Histories
from azq.parts.volunteers.standing import ContributorStanding, HandOuts, TrackRecord, Trusted, standing_of
from azq.parts.volunteers.tallies import DAY_S, PERIODS, SUMS, Tallies
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import translate
from azq.wire.messages import Message
from azq.wire.tabs import Refused

HISTORY_LIFE_S = 5.0  # of what is known of a history without asking: a block works after so long
HOUR_S = 3_600
DEVICES_PER_ADDRESS = 10  # whose games one address may send
CALLS_PER_DAY = 20  # names that a contributor may give himself or his device


class Contributor(Message, frozen=True):
    """A device that was welcomed once."""

    contributor: str
    name: str
    device: str
    token: bytes  # its sha256
    created_ms: int
    history: TrackRecord = TrackRecord()
    fixed: bool = False  # the name was given him


@dataclass(frozen=True, slots=True)
class ContributorFigures:
    """What an operator sees of a contributor; of his address for a day, None where it was not asked for."""

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


class Contributors(Tallies, Guests, Histories):
    """Those of a control plane; safe to share between threads and gateways. `secret` keys the hashes of addresses."""

    def __init__(self, client: redis.Redis, config: GatewayConfig, secret: bytes = b"", clock_ms: Callable[[], int] = now_ms) -> None:
        super().__init__(client, clock_ms)
        self._config = config
        self._secret = secret
        self._known: dict[str, tuple[float, Contributor]] = {}  # until when
        self._addresses: dict[str, str] = {}  # hash of the last one, by contributor

    # -- coming

    def welcome(self, token: str, invite: str, address: str, device: str, name: str = "") -> Volunteer | Refused:
        """The contributor of a token, a new one without, or why he may not; under the name that he wants, if he may have it."""
        tag = self._tag(address)
        with translate(self.client):
            if why := self.closed():
                return Refused("nobody's help is wanted just now", why)
            contributor = self._of_token(token) or self._new(invite, tag)
        if isinstance(contributor, Refused):
            return contributor
        found, secret = contributor
        if (standing := standing_of(found.history)).trust is Trusted.BLOCKED:
            return Refused(f"your games are not taken: {standing.reason}", "ask who invited you", final=True)
        self._addresses[found.contributor] = tag
        with translate(self.client):
            found, problem = self._call(found, tidy(device), tidy(name))
            self.client.set(keys.quota(f"address:{found.contributor}"), tag, ex=DAY_S)
            return Volunteer(found.contributor, secret, found.name, problem, found.history.hands, self._hands(tag))

    def closed(self) -> str:
        """Why nobody may contribute now, as the operator put it; empty where they may. Raises `BrokerError`."""
        with translate(self.client):
            why: Any = self.client.get(keys.VOLUNTEERS_OFF)
        return "" if why is None else why.decode() or "try again another day"

    def _of_token(self, token: str) -> tuple[Contributor, str] | None:
        found = self._read(token.partition(".")[0])
        return (found, token) if found and hmac.compare_digest(found.token, _hashed(token)) else None

    def _new(self, invite: str, tag: str) -> tuple[Contributor, str] | Refused:
        name = self._invited(invite) if invite else ""
        if name is None:
            return Refused("this invitation is used up or over", "ask for another one", final=True)
        if self._config.invited_only and not invite:
            return Refused("only who was invited may contribute here", "open the link of an invitation", final=True)
        if self._spend(f"keys:{tag}", 1, DAY_S) > self._config.keys_per_day:
            return Refused("too many new devices come from your address today", "go on with one that came before, or come tomorrow")
        contributor = secrets.token_hex(6)
        token = f"{contributor}.{secrets.token_urlsafe(24)}"
        fresh = Contributor(contributor, name or guest_name(contributor), "", _hashed(token), self._clock_ms(), fixed=bool(name))
        self.client.hset(keys.CONTRIBUTORS, contributor, encode(fresh))
        return fresh, token

    def _call(self, found: Contributor, device: str, name: str) -> tuple[Contributor, str]:
        """A contributor as he wants himself and his device to be called; why not, where he may not. Empty words change nothing."""
        name = guest_name(found.contributor) if is_nobody(name) else name or found.name
        device = device or found.device
        if (found.name, found.device) == (name, device):
            return found, ""
        if self._spend(f"names:{found.contributor}", 1, DAY_S) > CALLS_PER_DAY:
            return found, "you changed your name too often today"
        why = self._why_not(found, name)
        called = {"device": device} if why else {"device": device, "name": name}
        return self._change(found.contributor, lambda now: msgspec.structs.replace(now, **called)), why

    def _why_not(self, found: Contributor, name: str) -> str:
        """Why a contributor may not be called so; empty where he may."""
        if name == found.name:
            return ""
        if found.fixed:
            return f"you were given the name {found.name}"
        if name == guest_name(found.contributor):
            return ""
        others = (each for each in self.all() if each.contributor != found.contributor)
        taken = {sounds_like(word) for each in others for word in (each.name, each.contributor)}
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

    # -- what they do

    def refusal(self, contributor: str, games: int) -> str:
        """Why so many more games are not taken now; empty where they are. Raises `BrokerError`."""
        if why := self.closed():
            return why
        with translate(self.client):
            if self._spend(f"games:{contributor}", games, HOUR_S) > self._config.games_per_hour:
                return f"more than {self._config.games_per_hour} games an hour came from this device"
            tag = self._addresses.get(contributor, contributor)
            if self._spend(f"from:{tag}", games, HOUR_S) > (most := DEVICES_PER_ADDRESS * self._config.games_per_hour):
                return f"more than {most} games an hour came from one address"
        return ""

    def note(self, hands: Mapping[str, HandOuts]) -> None:
        """Adds what contributors, and addresses with an @ before them, did with games. Raises `BrokerError`."""
        for key, fresh in hands.items():
            if key.startswith("@"):
                with translate(self.client):
                    tag = self._tag(key[1:])
                    self.client.set(keys.quota(f"hands:{tag}"), msgspec.msgpack.encode(self._hands(tag).plus(fresh)), ex=DAY_S)
            else:
                with suppress(NotFound):
                    self.change(key, partial(_with_hands, fresh))

    def address_hands(self, contributor: str) -> HandOuts:
        """What all who came from the address of a contributor did with games, for a day. Raises `BrokerError`."""
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
        idle = [each.contributor for each in self.all() if each.created_ms < before_ms and not each.history.barred]
        gone = [contributor for contributor in idle if contributor not in counted and contributor not in present]
        for start in range(0, len(gone), 1000):
            with translate(self.client):
                self.client.hdel(keys.CONTRIBUTORS, *gone[start : start + 1000])
        for contributor in gone:
            self._known.pop(contributor, None)
            self._addresses.pop(contributor, None)
        return len(gone)

    def history(self, contributor: str) -> TrackRecord:
        """A contributor's history, as it was a moment ago; an empty one of a stranger."""
        until_s, known = self._known.get(contributor, (0.0, None))
        if known is None or time.monotonic() > until_s:
            with translate(self.client):
                known = self._read(contributor)
        return known.history if known else TrackRecord()

    def change(self, contributor: str, change: Callable[[TrackRecord], TrackRecord]) -> TrackRecord:
        """Changes a history, whoever else changes it meanwhile. Raises `NotFound`, `BrokerError`."""
        return self._change(contributor, lambda found: msgspec.structs.replace(found, history=change(found.history))).history

    def _change(self, contributor: str, change: Callable[[Contributor], Contributor]) -> Contributor:
        def step(pipe: Any) -> Contributor:
            found = self._read(contributor)
            if found is None:
                raise NotFound(f"no contributor {contributor}; `azq volunteers list` shows them")
            found = change(found)
            pipe.multi()
            pipe.hset(keys.CONTRIBUTORS, contributor, encode(found))
            return found

        with translate(self.client):
            found: Any = self.client.transaction(step, keys.CONTRIBUTORS, value_from_callable=True)  # type: ignore[arg-type]
        return self._remember(found)

    def _read(self, contributor: str) -> Contributor | None:
        frame: Any = self.client.hget(keys.CONTRIBUTORS, contributor) if contributor else None
        return self._remember(decode(frame, Contributor)) if frame else None

    def _remember(self, found: Contributor) -> Contributor:
        self._known[found.contributor] = time.monotonic() + HISTORY_LIFE_S, found
        return found

    # -- what people ask

    def all(self) -> list[Contributor]:
        """Every contributor, the newest last. Raises `BrokerError`."""
        with translate(self.client):
            frames: Any = self.client.hvals(keys.CONTRIBUTORS)
        return sorted((decode(frame, Contributor) for frame in frames), key=lambda each: each.created_ms)

    def figures_of(self, found: Contributor, sums: Mapping[str, Mapping[str, int]], *, address: bool = False) -> ContributorFigures:
        """What an operator sees of a contributor, with the `sums` of all. Raises `BrokerError`."""
        standing, theirs, history = standing_of(found.history), sums.get(found.contributor, {}), found.history
        hands = msgspec.structs.asdict(history.hands)
        if address:
            hands |= {f"address_{name}": each for name, each in msgspec.structs.asdict(self.address_hands(found.contributor)).items()}
        return ContributorFigures(
            contributor=found.contributor,
            name=found.name,
            device=found.device,
            trust=str(standing.trust),
            reason=standing.reason,
            reliability=standing.reliability,
            games=theirs.get("games", 0),
            samples=theirs.get("samples", 0),
            recomputed=history.recomputed,
            differed=history.differed,
            created_ms=found.created_ms,
            **{name: round(each, 1) for name, each in hands.items()},
        )

    def find(self, name: str) -> Contributor:
        """The contributor of this id, or the only one of this name. Raises `NotFound` naming what there is."""
        found = [each for each in self.all() if name in (each.contributor, each.name)]
        if len(found) != 1:
            several = f"{len(found)} devices bear it: {', '.join(each.contributor for each in found)}" if found else "`azq volunteers list`"
            raise NotFound(f"no one contributor is called {name!r}; {several}")
        return found[0]

    def name(self, contributor: str) -> str:
        """What a contributor is called."""
        _, known = self._known.get(contributor, (0.0, None))
        return known.name if known else guest_name(contributor)

    def leaderboard(self) -> list[dict[str, object]]:
        """Names and devices with their games and samples, the best first; blocked ones are left out."""
        ever, month, day = map(self.sums, PERIODS)
        rows: list[dict[str, object]] = [
            {"name": each.name, "device": each.device, **_games(ever[each.contributor]), "last_ms": ever[each.contributor]["last"]}
            | {"uptime_s": ever[each.contributor].get("up_ms", 0) / 1000}
            | {"games_month": month.get(each.contributor, {}).get("games", 0), "games_day": day.get(each.contributor, {}).get("games", 0)}
            for each in self.all()
            if each.contributor in ever and standing_of(each.history).trust is not Trusted.BLOCKED
        ]
        return sorted(rows, key=lambda row: -int(str(row["games"])))

    # -- what an operator does

    def invite(self, name: str, uses: int, days: float) -> str:
        """An invitation for so many devices; who comes by it is called so, unless the name is empty. Returns its code, a secret."""
        code = secrets.token_urlsafe(12)
        key = keys.invitation(_hashed(code).hex())
        with translate(self.client), self.client.pipeline() as pipe:
            pipe.hset(key, mapping={"name": tidy(name), "uses": uses})
            pipe.expire(key, round(days * DAY_S))
            pipe.execute()
        return code

    def rename(self, contributor: str, name: str) -> str:
        """Gives a contributor a name that he cannot change; an empty one takes his away. Returns it; raises `NotFound`."""
        name = tidy(name) or guest_name(contributor)
        return self._change(contributor, lambda found: msgspec.structs.replace(found, name=name, fixed=True)).name

    def block(self, contributor: str, reason: str) -> ContributorStanding:
        """Takes no more games of a contributor. Raises `NotFound`."""
        return standing_of(self.change(contributor, lambda history: msgspec.structs.replace(history, barred=reason or "blocked")))

    def unblock(self, contributor: str) -> ContributorStanding:
        """Lets a contributor begin anew, in probation. Raises `NotFound`."""
        return standing_of(self.change(contributor, lambda history: TrackRecord(accepted=history.accepted, plies=history.plies)))

    def turn(self, *, on: bool, reason: str = "") -> None:
        """Lets nobody in any more, whoever he is; or everybody again."""
        with translate(self.client):
            if on:
                self.client.delete(keys.VOLUNTEERS_OFF)
            else:
                self.client.set(keys.VOLUNTEERS_OFF, reason)


def _with_hands(fresh: HandOuts, history: TrackRecord) -> TrackRecord:
    return msgspec.structs.replace(history, hands=history.hands.plus(fresh))


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _games(sums: dict[str, int]) -> dict[str, int]:
    return {name: sums.get(name, 0) for name in SUMS}


LONGEST_NAME = 32
MARKS = " -_.'"  # besides letters and digits
NOBODY = "guest"  # whoever calls himself so has no name


def guest_name(contributor: str) -> str:
    """What a contributor without a name is called."""
    return f"{NOBODY}-{contributor[:6]}"


def tidy(text: str) -> str:
    """A name as it is kept and shown: composed, in one line, no longer than it may be."""
    composed = unicodedata.normalize("NFKC", text)
    return " ".join("".join(letter if letter.isprintable() else " " for letter in composed).split())[:LONGEST_NAME].rstrip()


def is_nobody(name: str) -> bool:
    """Whether it says that its bearer wants no name."""
    return sounds_like(name).startswith(NOBODY)


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
