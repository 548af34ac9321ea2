"""Contributors in the control plane: devices by a random token of which only a hash is kept, invitations, quotas, histories, totals.

What is kept of a person: what he calls his device, the word that an invitation gave him, when he came first, and figures about his games.
Addresses are kept for a day as keyed hashes, for the quotas. Games carry `browser:<contributor>`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import redis

from azq.clock import now_ms
from azq.config import GatewayConfig
from azq.errors import NotFound
from azq.volunteers.guests import Guests, Volunteer
from azq.volunteers.judges import Histories
from azq.volunteers.judging import samples_in
from azq.volunteers.standing import ContributorStanding, TrackRecord, Trusted, standing_of
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import translate
from azq.wire.messages import Message, SampleEvent
from azq.wire.tabs import Refused

HISTORY_LIFE_S = 5.0  # of what is known of a history without asking: a block works after so long
DAY_S, HOUR_S = 86_400, 3_600
PERIODS = {"ever": ("ever", 0), "month": ("%Y-%m", 400 * DAY_S), "day": ("%Y-%m-%d", 40 * DAY_S)}  # name of its key, life
LONGEST_NAME = 32
DAY_MS = 1000 * DAY_S


class Contributor(Message, frozen=True):
    """A device that was welcomed once."""

    contributor: str
    name: str
    device: str
    token: bytes  # its sha256
    created_ms: int
    history: TrackRecord = TrackRecord()


class Contributors(Guests, Histories):
    """Those of a control plane; safe to share between threads and gateways. `secret` keys the hashes of addresses."""

    def __init__(self, client: redis.Redis, config: GatewayConfig, secret: bytes = b"", clock_ms: Callable[[], int] = now_ms) -> None:
        self.client = client
        self._config = config
        self._secret = secret
        self._clock_ms = clock_ms
        self._known: dict[str, tuple[float, Contributor]] = {}  # until when
        self._addresses: dict[str, str] = {}  # hash of the last one, by contributor

    # -- coming

    def welcome(self, token: str, invite: str, address: str, device: str) -> Volunteer | Refused:
        """The contributor of a token, a new one without, or why he may not. Raises `BrokerError`."""
        tag = hmac.digest(self._secret, address.encode(), "sha256").hex()[:16]
        with translate(self.client):
            if why := self.closed():
                return Refused("nobody's help is wanted just now", why)
            contributor = self._of_token(token) or self._new(invite, tag, device)
        if isinstance(contributor, Refused):
            return contributor
        found, secret = contributor
        if (standing := standing_of(found.history)).trust is Trusted.BLOCKED:
            return Refused(f"your games are not taken: {standing.reason}", "ask who invited you", final=True)
        self._addresses[found.contributor] = tag
        return Volunteer(found.contributor, secret, found.name)

    def closed(self) -> str:
        """Why nobody may contribute now, as the operator put it; empty where they may. Raises `BrokerError`."""
        with translate(self.client):
            why: Any = self.client.get(keys.VOLUNTEERS_OFF)
        return "" if why is None else why.decode() or "try again another day"

    def _of_token(self, token: str) -> tuple[Contributor, str] | None:
        found = self._read(token.partition(".")[0])
        return (found, token) if found and hmac.compare_digest(found.token, _hashed(token)) else None

    def _new(self, invite: str, tag: str, device: str) -> tuple[Contributor, str] | Refused:
        name = self._invited(invite) if invite else ""
        if name is None:
            return Refused("this invitation is used up or over", "ask for another one", final=True)
        if self._config.invited_only and not invite:
            return Refused("only who was invited may contribute here", "open the link of an invitation", final=True)
        if self._spend(f"keys:{tag}", 1, DAY_S) > self._config.keys_per_day:
            return Refused("too many new devices come from your address today", "go on with one that came before, or come tomorrow")
        contributor = secrets.token_hex(6)
        token = f"{contributor}.{secrets.token_urlsafe(24)}"
        device = "".join(letter for letter in device if letter.isprintable())[:LONGEST_NAME]
        fresh = Contributor(contributor, name or f"guest-{contributor[:6]}", device, _hashed(token), self._clock_ms())
        self.client.hset(keys.CONTRIBUTORS, contributor, encode(fresh))
        return fresh, token

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
            if self._spend(f"from:{tag}", games, HOUR_S) > self._config.games_per_hour_each:
                return f"more than {self._config.games_per_hour_each} games an hour came from one address"
        return ""

    def credit(self, events: Sequence[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        """Adds committed games to the totals; raises `BrokerError`."""
        with translate(self.client), self.client.pipeline() as pipe:
            for event in events:
                contributor = _of(event)
                for _, key, life_s in self._periods():
                    pipe.hincrby(key, f"games {contributor}", 1)
                    pipe.hincrby(key, f"samples {contributor}", samples_in(event.record))
                    pipe.hset(key, f"last {contributor}", event.finished_ms)
                    if life_s:
                        pipe.expire(key, life_s)
            pipe.execute()
        return self.figures(set(map(_of, events)))

    def figures(self, contributors: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """What some did, ever; raises `BrokerError`."""
        fields = [(contributor, what) for contributor in contributors for what in ("games", "samples")]
        key = next(key for name, key, _ in self._periods() if name == "ever")
        with translate(self.client):
            values: Any = self.client.hmget(key, [f"{what} {contributor}" for contributor, what in fields]) if fields else []
        sums: dict[str, dict[str, int]] = {}
        for (contributor, what), value in zip(fields, values, strict=True):
            sums.setdefault(contributor, {})[what] = int(value or 0)
        return sums

    def history(self, contributor: str) -> TrackRecord:
        """A contributor's history, as it was a moment ago; an empty one of a stranger."""
        until_s, known = self._known.get(contributor, (0.0, None))
        if known is None or time.monotonic() > until_s:
            with translate(self.client):
                known = self._read(contributor)
        return known.history if known else TrackRecord()

    def change(self, contributor: str, change: Callable[[TrackRecord], TrackRecord]) -> TrackRecord:
        """Changes a history, whoever else changes it meanwhile. Raises `NotFound`, `BrokerError`."""

        def step(pipe: Any) -> Contributor:
            found = self._read(contributor)
            if found is None:
                raise NotFound(f"no contributor {contributor}; `azq volunteers list` shows them")
            found = msgspec.structs.replace(found, history=change(found.history))
            pipe.multi()
            pipe.hset(keys.CONTRIBUTORS, contributor, encode(found))
            return found

        with translate(self.client):
            found: Any = self.client.transaction(step, keys.CONTRIBUTORS, value_from_callable=True)  # type: ignore[arg-type]
        return self._remember(found).history

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
        return known.name if known else f"guest-{contributor[:6]}"

    def leaderboard(self) -> list[dict[str, object]]:
        """Names and devices with their games and samples, the best first; blocked ones are left out."""
        ever, month, day = map(self.sums, PERIODS)
        rows: list[dict[str, object]] = [
            {"name": each.name, "device": each.device, **_games(ever[each.contributor]), "last_ms": ever[each.contributor]["last"]}
            | {"games_month": month.get(each.contributor, {}).get("games", 0), "games_day": day.get(each.contributor, {}).get("games", 0)}
            for each in self.all()
            if each.contributor in ever and standing_of(each.history).trust is not Trusted.BLOCKED
        ]
        return sorted(rows, key=lambda row: -int(str(row["games"])))

    def totals(self) -> Mapping[str, Mapping[str, int]]:
        """Games, samples and contributors of all, ever and in this month and day."""
        found = {}
        for period in PERIODS:
            sums = self.sums(period).values()
            found[period] = {name: sum(one.get(name, 0) for one in sums) for name in ("games", "samples")} | {"contributors": len(sums)}
        return found

    def sums(self, period: str) -> dict[str, dict[str, int]]:
        """Figures of each contributor in a period."""
        key = next(key for name, key, _ in self._periods() if name == period)
        with translate(self.client):
            values: Any = self.client.hgetall(key)
        sums: dict[str, dict[str, int]] = {}
        for field, value in values.items():
            what, _, contributor = field.decode().partition(" ")
            sums.setdefault(contributor, {})[what] = int(value)
        return sums

    def _periods(self) -> list[tuple[str, str, int]]:
        today = datetime.fromtimestamp(self._clock_ms() / 1000, UTC)
        return [(name, keys.totals(today.strftime(form)), life_s) for name, (form, life_s) in PERIODS.items()]

    # -- what an operator does

    def invite(self, name: str, uses: int, days: float) -> str:
        """An invitation for so many devices; who comes by it is called so, unless the name is empty. Returns its code, a secret."""
        code = secrets.token_urlsafe(12)
        key = keys.invitation(_hashed(code).hex())
        with translate(self.client), self.client.pipeline() as pipe:
            pipe.hset(key, mapping={"name": name[:LONGEST_NAME], "uses": uses})
            pipe.expire(key, round(days * DAY_S))
            pipe.execute()
        return code

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


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _of(event: SampleEvent) -> str:
    return event.worker.partition(":")[2]


def _games(sums: Mapping[str, int]) -> dict[str, int]:
    return {name: sums.get(name, 0) for name in ("games", "samples")}
