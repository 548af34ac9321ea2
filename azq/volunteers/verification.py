"""The judgement of a batch: rules, plausibility, and the recomputation of plies that chance chooses once the games are handed in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from azq.search.recomputation import ChosenPly, Difference, Evaluate, differs, recompute
from azq.volunteers.backing import Returned
from azq.volunteers.plausibility import Implausible, Known, Outdated, Replayed, SearchOrder, check
from azq.volunteers.standing import MORE_CHECKS, Judgement, checks_of, disagrees

COPIED = "its moves are those of another game"


@dataclass(eq=False)
class Verification:
    """Judges batches of one run; `choice` decides which plies, and nobody may foresee it."""

    evaluate: Evaluate
    choice: random.Random = field(default_factory=random.SystemRandom)
    known: Known = field(default_factory=Known)

    def judge(self, order: SearchOrder, share: float, games: Sequence[Returned]) -> Judgement:
        """The judgement on games of one contributor, of whose plies this share is searched again; raises what `evaluate` raises."""
        replayed, refused, late = self._checked(order, games)
        plies = [ply for game in replayed for ply in game.own]
        found = self._recomputed(order, share, plies)
        refuses, differed = disagrees(found), sum(map(differs, found))
        if refuses:
            refused |= dict.fromkeys((game.uid for game in replayed), _said(found))
        return Judgement(
            returns={} if refuses else {game.uid: game.returns for game in replayed},
            refused=refused | late,
            plies=len(plies),
            recomputed=len(found),
            differed=differed,
            fault=bool(refused),
        )

    def _checked(self, order: SearchOrder, games: Sequence[Returned]) -> tuple[list[Replayed], dict[int, str], dict[int, str]]:
        """Games that may be a search's; why others are not; why others, of which no more can be said, came too late."""
        replayed: list[Replayed] = []
        refused: dict[int, str] = {}
        late: dict[int, str] = {}
        for each in games:
            try:
                game = check(order, each)
                if not order.players:  # a match's games follow from their openings: equal ones are no copies
                    if self.known.copied(game):
                        raise Implausible(COPIED)
                    self.known.add(game)
                replayed.append(game)
            except Outdated as error:
                late[each.record.uid] = str(error)
            except Implausible as error:
                refused[each.record.uid] = str(error)
        return replayed, refused, late

    def _recomputed(self, order: SearchOrder, share: float, plies: Sequence[ChosenPly]) -> list[Difference]:
        """The first look, and a second one where a ply of the first differs: at its game, and at others."""
        order_of_looks = self.choice.sample(plies, len(plies))
        first, rest = order_of_looks[: (count := checks_of(len(plies), share))], order_of_looks[count:]
        found = recompute(order.game, order.seed, order.config, first, self.evaluate)
        suspects = {each.uid for each in found if differs(each)}
        if suspects and not disagrees(found):
            rest.sort(key=lambda ply: ply.uid not in suspects)
            found += recompute(order.game, order.seed, order.config, rest[:MORE_CHECKS], self.evaluate)
        return found


def _said(found: Sequence[Difference]) -> str:
    worst = max(filter(differs, found), key=lambda each: each.policy)
    return (
        f"{sum(map(differs, found))} of {len(found)} plies are not what their search gives: "
        f"game {worst.uid}, ply {worst.ply}: policy off by {worst.policy:.2g}, value by {worst.value:.2g}"
        + (", another action" if worst.action else "")
    )
