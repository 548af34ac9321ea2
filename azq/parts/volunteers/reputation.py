"""What follows from a contributor's history: the share of plies searched again, the size of a batch, and whether games are taken at all.

The same rule for all: a batch of games enters only when the plies that chance chose of it agree with their recomputation. Chance chooses
after the games were handed in, so that they cannot be foreseen. Pure.

With a share s of the plies searched again, and d the probability that a false ply shows (measured in docs/research.md), a contributor
with a share f of false plies gets a batch of n plies past the first look with probability (1 - f d)^(s n). `CHECKS` = s n is the same
for all: large enough that a wholly false batch passes in less than one case of a thousand for every d above 0.24, and of 10^11 above
0.65. However thinly they are spread, so many false plies enter before the first is found that 0.999 = 1 - (1 - d)^(s m): m = 6.9 / (s d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from azq.search.recomputation import Difference, differs

CHECKS = 26  # plies of a batch that are searched again
MORE_CHECKS = 40  # once one of them differs
PROBATION_SHARE = 0.25
SHARE = 0.04
TRUSTED_AFTER = 200  # plies that were searched again and agreed, over at least
TRUSTED_GAMES = 50
HALF_LIFE_GAMES = 1000.0
WRONGLY_REFUSED, WRONGLY_BLOCKED = 1e-5, 1e-9  # chance for an honest contributor: a batch; a history
FORGIVEN = 32.0  # dropped games that weigh as much as brought ones: closing a page for the first time is no cheating
GUESSED_PLIES = 20.0  # of a game
MOST_FAULTS = 1.75  # two refused batches within some 400 games
HONEST = 1e-3  # of honest plies may differ: near ties that another rounding decided otherwise; 7e-6 to 3e-5 did, of a rough backend 1e-3


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

    def plus(self, later: HandOuts) -> HandOuts:
        """With what came later."""
        decay = 0.5 ** (later.handed / HALF_LIFE_GAMES)
        return HandOuts(*(getattr(self, name) * decay + getattr(later, name) for name in self.__struct_fields__))

    def most(self, wanted: int) -> int:
        """How many of the wanted games are handed out at once: all of them, or fewer the larger a share was dropped; at least one."""
        reliability = (self.brought + FORGIVEN) / (self.brought + self.dropped + FORGIVEN)
        return min(wanted, max(1, round(wanted * reliability**2)))


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
    trusted = history.agreed_since >= TRUSTED_AFTER and history.games_since >= TRUSTED_GAMES
    share = SHARE if trusted else PROBATION_SHARE
    return ContributorStanding(Trusted.ESTABLISHED if trusted else Trusted.PROBATION, share, round(CHECKS / share), reliability)


def _suspicion(history: TrackRecord) -> str:
    if history.faults > MOST_FAULTS:
        return "games of several batches were not made as they were ordered"
    if history.differed > most_differing(history.recomputed, WRONGLY_BLOCKED):
        return f"{history.differed:.0f} of {history.recomputed:.0f} plies were not what their search gives"
    return ""


class Judgement(msgspec.Struct, frozen=True):
    """The findings about a batch: every game is in one of the first two."""

    returns: dict[int, tuple[float, ...]] = {}  # by number of the game, of those that count; by the rules
    refused: dict[int, str] = {}  # number -> why
    plies: int = 0  # of the contributor, that carry what a search says
    recomputed: int = 0  # of them
    differed: int = 0  # of these
    fault: bool = False  # the batch was refused, or held a game that no honest tab makes


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
    )


def checks_of(plies: int, share: float) -> int:
    """How many of a batch's searched plies are searched again: the share, and enough of a batch that is smaller than it should be."""
    return min(plies, max(CHECKS, math.ceil(share * plies)))


def most_differing(recomputed: float, chance: float) -> int:
    """How many of so many plies may differ before that has less than this `chance` for an honest contributor (Poisson, `HONEST` a ply)."""
    mean, allowed = HONEST * recomputed, 0
    term = below = math.exp(-mean)
    while 1.0 - below > chance:
        allowed += 1
        term *= mean / allowed
        below += term
    return allowed


def disagrees(differences: Sequence[Difference]) -> bool:
    """Whether a batch is refused: more of its plies differ than near ties make in one honest batch of 100,000."""
    return sum(map(differs, differences)) > most_differing(len(differences), WRONGLY_REFUSED)
