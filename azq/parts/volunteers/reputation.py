"""What follows from a contributor's history: the share of plies searched again, the size of a batch, and whether games are taken at all.

The same rule for all: a batch of games enters only when the plies that chance chose of it agree with their recomputation. Chance chooses
after the games were handed in, so that they cannot be foreseen. Pure.

A network in whole numbers has one right answer: a ply that is not it is false, shows when it is searched again, and refuses its batch.
With a share s of the plies searched again, a batch of n plies of which a share f is false passes with probability (1 - f)^(s n), where
s n is the same for all batches; however thinly they are spread, m false plies enter with (1 - s)^m. In floats honest near ties differ,
and a false ply shows with a probability d (measured in docs/research.md): f d and s d stand in place of f and s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from azq.stats import binomial_tail, wilson

MISSED = 1e-4  # of false contributors, by the law
LEAST_FALSE = 0.2  # share of the plies of who searches otherwise that are not what comes out (docs/research.md)
MOST_FALSE = 368  # plies, that enter of any contributor before he is found
MORE_CHECKS = 40  # in floats, once a ply differs
TRUSTED_GAMES = 50
HALF_LIFE_GAMES = 1000.0
WRONGLY_REFUSED, WRONGLY_BLOCKED = 1e-5, 1e-9  # chance for an honest contributor: a batch; a history
WRONGLY_NAMED = 1e-5  # one look at what was withheld
LENGTH_ODDS = 1.5  # by which longer games are likelier to be dropped by chance
FORGIVEN = 32.0  # dropped games that weigh as much as brought ones: closing a page for the first time is no cheating
GUESSED_PLIES = 20.0  # of a game
MOST_FAULTS = 1.75  # two refused batches within some 400 games
HONEST = 1e-3  # of honest plies in floats may differ: near ties that another rounding decided; 7e-6 to 3e-5 did, of a rough backend 1e-3


@dataclass(frozen=True, slots=True)
class Ladder:
    """How much of a contributor's games is searched again."""

    checks: int  # plies of a batch
    probation: float  # share of all plies
    share: float  # of those of established contributors
    trusted_after: int  # plies that were searched again and agreed, over `TRUSTED_GAMES`


def ladder_of(least_false: float, most_false: int, missed: float) -> Ladder:
    """The ladder on which a batch with that share of false plies, and so many of them, pass in a share `missed` of cases at most."""
    share = -math.expm1(math.log(missed) / most_false)
    return Ladder(math.ceil(math.log(missed) / math.log1p(-least_false)), 4 * share, share, 100)


EXACT = ladder_of(LEAST_FALSE, MOST_FALSE, MISSED)
ROUNDED = Ladder(26, 0.25, 0.04, 200)  # in floats, where a false ply shows with 0.24 at least


class Trusted(StrEnum):
    """probation -> established; a refused batch leads back, two of them to blocked. `barred` is what a person decided."""

    PROBATION = "probation"
    ESTABLISHED = "established"
    BLOCKED = "blocked"


class HandOuts(msgspec.Struct, frozen=True):
    """Games of a contributor or an address, each counting half as much after every `HALF_LIFE_GAMES` later hand-outs."""

    handed: float = 0.0
    brought: float = 0.0
    dropped: float = 0.0
    won: float = 0.0  # by the first player, of those brought that count; so the next
    drawn: float = 0.0
    lost: float = 0.0
    missed_won: float = 0.0  # of those dropped, as another then brought them; so the next
    missed_drawn: float = 0.0
    missed_lost: float = 0.0

    def plus(self, later: HandOuts) -> HandOuts:
        """With what came later."""
        decay = 0.5 ** (later.handed / HALF_LIFE_GAMES)
        return HandOuts(*(getattr(self, name) * decay + getattr(later, name) for name in self.__struct_fields__))

    def most(self, wanted: int) -> int:
        """How many of the wanted games are handed out at once: all of them, or fewer the larger a share was dropped; at least one."""
        reliability = (self.brought + FORGIVEN) / (self.brought + self.dropped + FORGIVEN)
        return min(wanted, max(1, round(wanted * reliability**2)))

    @property
    def chosen(self) -> bool:
        """Whether one result is commoner among dropped games than chance explains, and than that longer games are dropped rather."""
        pairs = (self.won, self.missed_won), (self.drawn, self.missed_drawn), (self.lost, self.missed_lost)
        brought, missed = (round(sum(counts)) for counts in zip(*pairs, strict=True))
        shares = [wilson(round(here), brought)[1] for here, _ in pairs]
        likelier = [LENGTH_ODDS * share / (1 + (LENGTH_ODDS - 1) * share) for share in shares]
        return any(binomial_tail(round(pair[1]), missed, share) < WRONGLY_NAMED for pair, share in zip(pairs, likelier, strict=True))


def outcome(returns: Sequence[float], *, missed: bool = False) -> HandOuts:
    """The count of a finished game."""
    result = "lost" if returns[0] < 0 else "won" if returns[0] > 0 else "drawn"
    return HandOuts(**{f"missed_{result}" if missed else result: 1.0})


class TrackRecord(msgspec.Struct, frozen=True):
    """What became of a contributor's games, each game counting half as much after every `HALF_LIFE_GAMES` later ones."""

    accepted: float = 0.0  # games
    refused: float = 0.0
    plies: float = 0.0  # that carried what a search says
    recomputed: float = 0.0  # of them
    differed: float = 0.0  # of these
    agreed_since: int = 0  # plies that agreed since the last fault; without decay, as the next
    games_since: int = 0
    faults: float = 0.0  # batches that were refused, or held a game that breaks the rules
    barred: str = ""  # why an operator blocked this contributor
    hands: HandOuts = HandOuts()
    rounded: bool = False  # the last batch was searched again in floats

    @property
    def mean_plies(self) -> float:
        """Searched plies of a game; a guess before any is finished."""
        games = self.accepted + self.refused
        return max(1.0, self.plies / games) if self.plies else GUESSED_PLIES

    def plus_hands(self, later: HandOuts) -> TrackRecord:
        """With later hand-outs."""
        return msgspec.structs.replace(self, hands=self.hands.plus(later))


@dataclass(frozen=True, slots=True)
class ContributorStanding:
    """What is asked of a contributor now."""

    trust: Trusted
    share: float  # of the plies, searched again
    batch_plies: int  # searched plies at which a batch is full
    reliability: float  # share of the games that were taken, newer ones counting more
    reason: str = ""  # of a block


def standing_of(history: TrackRecord) -> ContributorStanding:
    """The standing that follows from a history."""
    games = history.accepted + history.refused
    reliability = history.accepted / games if games else 1.0
    reason = history.barred or _suspicion(history)
    if reason:
        return ContributorStanding(Trusted.BLOCKED, 1.0, 1, reliability, reason)
    ladder = ROUNDED if history.rounded else EXACT
    trusted = history.agreed_since >= ladder.trusted_after and history.games_since >= TRUSTED_GAMES
    share = ladder.share if trusted else ladder.probation
    trust = Trusted.ESTABLISHED if trusted else Trusted.PROBATION
    return ContributorStanding(trust, share, round(ladder.checks / share), reliability)


def _suspicion(history: TrackRecord) -> str:
    if history.faults > MOST_FAULTS:
        return "games of several batches were not made as they were ordered"
    if history.differed > most_differing(history.recomputed, WRONGLY_BLOCKED):
        return f"{history.differed:.0f} of {history.recomputed:.0f} plies were not what their search gives"
    if history.hands.chosen:
        return "games that were withheld end otherwise than those that were brought"
    return ""


class Judgement(msgspec.Struct, frozen=True, tag=True):
    """The findings about a batch: every game is in one of the first two."""

    returns: dict[int, tuple[float, ...]] = {}  # by number of the game, of those that count; by the rules
    refused: dict[int, str] = {}  # number -> why
    plies: int = 0  # of the contributor, that carry what a search says
    recomputed: int = 0  # of them
    differed: int = 0  # of these
    fault: bool = False  # the batch was refused, or held a game that no honest tab makes
    rounded: bool = False  # some of it was searched again in floats


def after_batch(history: TrackRecord, judgement: Judgement) -> TrackRecord:
    """The history with a judged batch."""
    accepted, refused = len(judgement.returns), len(judgement.refused)
    decay = 0.5 ** ((accepted + refused) / HALF_LIFE_GAMES)
    return TrackRecord(
        accepted=history.accepted * decay + accepted,
        refused=history.refused * decay + refused,
        plies=history.plies * decay + judgement.plies,
        recomputed=history.recomputed * decay + judgement.recomputed,
        differed=history.differed * decay + judgement.differed,
        agreed_since=0 if judgement.fault else history.agreed_since + judgement.recomputed - judgement.differed,
        games_since=0 if judgement.fault else history.games_since + accepted,
        faults=history.faults * decay + judgement.fault,
        barred=history.barred,
        hands=history.hands,
        rounded=judgement.rounded if judgement.recomputed else history.rounded,
    )


def checks_of(plies: int, share: float, exact: bool) -> int:
    """How many of a batch's searched plies are searched again: the share, and enough of a batch that is smaller than it should be."""
    return min(plies, max((EXACT if exact else ROUNDED).checks, math.ceil(share * plies)))


def most_differing(recomputed: float, chance: float) -> int:
    """How many of so many plies in floats may differ before that has less than this `chance` for an honest contributor (Poisson)."""
    mean, allowed = HONEST * recomputed, 0
    term = below = math.exp(-mean)
    while 1.0 - below > chance:
        allowed += 1
        term *= mean / allowed
        below += term
    return allowed


def most_wrong(recomputed: int, exact: bool) -> int:
    """How many plies of a batch that counts may differ: none, or in floats as many as near ties make in one batch of 100,000."""
    return 0 if exact else most_differing(recomputed, WRONGLY_REFUSED)
