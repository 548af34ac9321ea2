"""Campaigns of honest and false contributors against the rule itself: only the recomputation's answer is drawn instead of searched."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from azq.parts.volunteers import verifier as verification
from azq.parts.volunteers.handouts import Returned
from azq.parts.volunteers.plausibility import Replayed
from azq.parts.volunteers.reputation import (
    EXACT,
    HONEST,
    LEAST_FALSE,
    LENGTH_ODDS,
    MISSED,
    MOST_FALSE,
    ROUNDED,
    WRONGLY_NAMED,
    WRONGLY_REFUSED,
    HandOuts,
    Judgement,
    TrackRecord,
    Trusted,
    after_batch,
    checks_of,
    most_differing,
    outcome,
    standing_of,
)
from azq.parts.volunteers.verifier import Verification
from azq.search.recomputation import ChosenPly, Difference
from azq.wire.messages import GameRecord

PLIES = 22  # searched ones of a game of connect four
IN_FLOATS = 0.24  # the least of the measured probabilities that a false ply shows there; most are above 0.7
LOST = -1.0
IsFalse = Callable[[int, int], bool]  # game by its place in the campaign, ply


@dataclass
class Campaign:
    """What became of one contributor."""

    entered: int = 0
    false_entered: int = 0
    plies: int = 0
    recomputed: int = 0
    established_plies: int = 0
    established_recomputed: int = 0
    caught: bool = False


def run_campaign(seed: int, is_false: IsFalse, games: int, shows: float = IN_FLOATS, *, exact: bool = False) -> Campaign:
    """Batch after batch until the games are given, a batch is refused, or too many plies differed in all."""
    rng, found, history = random.Random(seed), Campaign(), TrackRecord()
    drawn = _drawn(rng, is_false, shows, 0.0 if exact else HONEST)
    judge = Verification(lambda *_: pytest.fail("nothing is evaluated"), rng, lambda version: exact)
    given = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "check", lambda order, each: _replayed(each.record.uid))
        patch.setattr(verification, "recompute", drawn)
        while given < games and not found.caught:
            standing = standing_of(history)
            if standing.trust is Trusted.BLOCKED:
                found.caught = True
                break
            size = max(1, round(standing.batch_plies / history.mean_plies))
            uids = range(given + 1, given + 1 + size)
            said = judge.judge(_NO_ORDER, standing.share, [Returned(GameRecord(uid), GameRecord(uid)) for uid in uids])
            history = after_batch(history, said)
            given += size
            found.entered += len(said.returns)
            found.false_entered += sum(any(is_false(uid, ply) for ply in range(PLIES)) for uid in said.returns)
            found.plies, found.recomputed = found.plies + said.plies, found.recomputed + said.recomputed
            if standing.trust is Trusted.ESTABLISHED:
                found.established_plies += said.plies
                found.established_recomputed += said.recomputed
            found.caught = said.fault
    return found


_OF_VERSION_0 = {"weight_versions": np.zeros(PLIES, np.uint32)}
_NO_ORDER: Any = SimpleNamespace(game=None, seed=0, config=None, players=None)


def _replayed(uid: int) -> Replayed:
    return Replayed(uid, (0.0,), tuple(ChosenPly(uid, _OF_VERSION_0, ply, 1) for ply in range(PLIES)))


def _drawn(rng: random.Random, is_false: IsFalse, shows: float, honest: float) -> Callable[..., list[Difference]]:
    def recompute(_game: object, _seed: object, _config: object, plies: list[ChosenPly], _evaluate: object) -> list[Difference]:
        return [
            Difference(each.uid, each.ply, rng.random() < (shows if is_false(each.uid, each.ply) else honest), 0, 0.0, 0.0)
            for each in plies
        ]

    return recompute


def in_games(share: float) -> IsFalse:
    """False in this share of his games, wholly."""
    return lambda uid, _: random.Random(uid).random() < share


def in_plies(share: float) -> IsFalse:
    """False in this share of all plies."""
    return lambda uid, ply: random.Random(uid * 1000 + ply).random() < share


def from_game(first: int) -> IsFalse:
    """Honest, and then false."""
    return lambda uid, _: uid > first


@pytest.mark.parametrize(("shows", "exact"), [(IN_FLOATS, False), (LEAST_FALSE, True)])
def test_wholly_false_contributors_have_no_game_in_the_window(shows: float, exact: bool) -> None:
    campaigns = [run_campaign(seed, in_games(1.0), games=20, shows=shows, exact=exact) for seed in range(2000)]
    assert np.mean([each.false_entered == 0 for each in campaigns]) >= (0.9995 if exact else 0.999)


def test_the_law_of_equality_is_what_campaigns_show() -> None:
    """Who was honest until he was established, and then makes one ply in fifty otherwise."""
    assert (1 - LEAST_FALSE) ** EXACT.checks <= MISSED
    assert (1 - EXACT.share) ** MOST_FALSE == pytest.approx(MISSED)
    campaigns = [run_campaign(seed, lambda uid, ply: uid > 60 and in_plies(0.02)(uid, ply), 4000, 1.0, exact=True) for seed in range(60)]
    entered = 0.02 * PLIES * np.array([max(0, each.entered - 60) for each in campaigns])
    assert all(each.caught for each in campaigns)
    for missed in (0.5, 0.2, 0.05):
        assert np.mean(entered > math.log(missed) / math.log1p(-EXACT.share)) <= missed + 0.1


@pytest.mark.parametrize("lost", [0.35, 0.45, 0.6, 0.8])
def test_who_withholds_a_fifth_of_his_lost_games_is_named_and_who_closes_pages_is_not(lost: float) -> None:
    most_moved = 2 * LENGTH_ODDS * -math.log(WRONGLY_NAMED)  # of the sum of results, if no withheld game came back
    for seed in range(10):
        games, withheld = named_after(seed, lost, lambda rng, result: result == LOST and rng.random() < 0.2, 1000)
        assert games <= (500 if lost < 0.8 else 1000)
        assert withheld * (1.9 - 2 * lost) <= most_moved, "another game in the place of a lost one brings that much more"
        longer = lambda rng, result: rng.random() < (0.25 if result == LOST else 0.2)  # noqa: E731
        assert named_after(seed, lost, longer, 1000)[0] > 1000, "games that are lost may be longer"


def named_after(seed: int, lost: float, drops: Callable[[random.Random, float], bool], games: int) -> tuple[int, int]:
    """Games after which a contributor is named, more than `games` where he is not; and how many of them he dropped."""
    rng, hands, withheld = random.Random(seed), HandOuts(), 0
    for game in range(1, games + 1):
        result = rng.choices((LOST, 0.0, 1.0), (lost, 0.1, 0.9 - lost))[0]
        dropped = drops(rng, result)
        withheld += dropped
        hands = hands.plus(HandOuts(1, not dropped, dropped)).plus(outcome((result, -result), missed=dropped))
        if game % 20 == 0 and standing_of(TrackRecord(hands=hands)).trust is Trusted.BLOCKED:
            assert "withheld" in standing_of(TrackRecord(hands=hands)).reason
            return game, withheld
    return games + 1, withheld


@pytest.mark.slow
def test_who_turns_false_later_is_caught_by_his_first_false_batch() -> None:
    campaigns = [run_campaign(seed, from_game(120), games=170) for seed in range(1000)]
    late = [each.false_entered for each in campaigns]  # a batch may hold honest games before the false ones
    assert np.mean([count == 0 for count in late]) >= 0.9
    assert np.mean([count < 30 for count in late]) >= 0.999, "but for one batch, the first that is wholly false is refused"


def test_thousand_keys_of_one_stranger_gain_nothing() -> None:
    """Each key is new, so each batch is looked at as the first."""
    entered = sum(run_campaign(seed, in_games(1.0), games=4, shows=0.75).false_entered for seed in range(1000))
    assert entered == 0


@pytest.mark.parametrize(("kind", "share"), [(in_games, 0.5), (in_games, 0.1), (in_plies, 0.5), (in_plies, 0.1)])
def test_however_thinly_he_spreads_them_few_false_plies_enter(kind: Callable[[float], IsFalse], share: float) -> None:
    """In floats 6.9 / (s d) false plies at most, by 99.9 %; twice that is allowed for whole batches."""
    shows = 0.75
    campaigns = [run_campaign(seed, kind(share), games=4000, shows=shows) for seed in range(150)]
    assert all(each.caught for each in campaigns)
    false_plies = share * np.array([each.entered for each in campaigns]) * PLIES
    assert np.quantile(false_plies, 0.99) <= 2 * 6.9 / (ROUNDED.share * shows)


@pytest.mark.slow
@pytest.mark.parametrize(("exact", "most"), [(False, 0.06), (True, 0.03)])
def test_honest_contributors_cost_little_and_are_never_refused(exact: bool, most: float) -> None:
    campaigns = [run_campaign(seed, in_games(0.0), games=1000, exact=exact) for seed in range(20)]
    assert not any(each.caught for each in campaigns)
    recomputed = sum(each.established_recomputed for each in campaigns) / sum(each.established_plies for each in campaigns)
    assert recomputed <= (0.026 if exact else 0.05)
    assert sum(each.recomputed for each in campaigns) / sum(each.plies for each in campaigns) <= most, "probation included"


def test_so_few_honest_batches_are_refused() -> None:
    """By the binomial itself: more than the allowed ones in the first look; or one, and too many in both."""

    def above(checks: int, allowed: int) -> float:
        return 1.0 - sum(_binomial(checks, count) for count in range(allowed + 1))

    checks = ROUNDED.checks
    both = most_differing(checks + 40, WRONGLY_REFUSED)
    first = most_differing(checks, WRONGLY_REFUSED)
    assert (first, both) == (2, 3)
    second_looks = sum(_binomial(checks, count) * above(40, both - count) for count in range(1, first + 1))
    assert above(checks, first) + second_looks < WRONGLY_REFUSED


def _binomial(checks: int, count: int) -> float:
    return float(np.prod([(checks - i) / (i + 1) * HONEST / (1 - HONEST) for i in range(count)]) * (1 - HONEST) ** checks)


def judged(accepted: int = 0, refused: int = 0, *, recomputed: int = 20, differed: int = 0) -> Judgement:
    returns: dict[int, tuple[float, ...]] = dict.fromkeys(range(accepted), (0.0,))
    return Judgement(returns, dict.fromkeys(range(-refused, 0), "no"), PLIES * (accepted + refused), recomputed, differed, refused > 0)


def test_trust_is_earned_by_plies_and_games_and_lost_at_once() -> None:
    history = TrackRecord()
    assert (standing_of(history).trust, standing_of(history).share) == (Trusted.PROBATION, EXACT.probation)
    batches = 0
    while standing_of(history).trust is Trusted.PROBATION:
        history, batches = after_batch(history, judged(5)), batches + 1
    assert batches == 10
    assert standing_of(history).share == EXACT.share
    assert standing_of(msgspec.structs.replace(history, rounded=True)).share == ROUNDED.share
    fallen = after_batch(history, judged(refused=5, differed=2))
    assert standing_of(fallen).trust is Trusted.PROBATION
    again = after_batch(fallen, judged(refused=5, differed=2))
    assert standing_of(again).trust is Trusted.BLOCKED
    assert "several batches" in standing_of(again).reason


def test_faults_are_forgotten_and_differences_add_up() -> None:
    history = after_batch(TrackRecord(), judged(refused=1, differed=2))
    for _ in range(60):
        history = after_batch(history, judged(20))
    assert standing_of(after_batch(history, judged(refused=1, differed=2))).trust is Trusted.PROBATION
    slow = TrackRecord()
    while standing_of(slow).trust is not Trusted.BLOCKED:  # one ply of each batch, which alone is no reason
        slow = after_batch(slow, judged(20, differed=1))
    assert slow.accepted < 200
    assert standing_of(TrackRecord(barred="spam")).reason == "spam"


def test_reliability_is_the_share_that_was_taken() -> None:
    history = after_batch(TrackRecord(), judged(30, 10))
    assert standing_of(history).reliability == pytest.approx(0.75)
    assert after_batch(history, judged(1000)).refused == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize(("plies", "share", "checks"), [(5, 0.04, 5), (104, 0.25, 26), (650, 0.04, 26), (1000, 0.04, 40), (100, 0.04, 26)])
def test_checks_are_enough_in_small_batches_too(plies: int, share: float, checks: int) -> None:
    assert checks_of(plies, share, exact=False) == checks
    assert checks_of(plies, share, exact=True) == min(plies, max(EXACT.checks, -(-plies * share // 1)))
