"""Two tabs play for a run and a match between two versions; every ply is searched again to the last bit, and the run has the result."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browsing import launched
from honest_tabs import with_arrays
from sharp_nets import sharp_bytes
from tab_site import RUN, Believer, TabSite
from waiting import until
from whole_networks import evaluators

from azq.games import Game
from azq.ledger.types import JobState
from azq.nets import restore
from azq.parts.volunteers.handouts import GamesBatch, GamesVerdict
from azq.parts.volunteers.plausibility import SearchOrder
from azq.parts.volunteers.reputation import Judgement
from azq.parts.volunteers.verifier import Verification
from azq.status.observe import Standings, read_standing
from azq.wire.arrays import arrays_of
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchSpec

SEEDS = {1: 3, 2: 5}
GAMES = 24
FIRST = 8  # games of self-play


class Recomputer(Believer):
    """Searches every ply of matches and of the first games of self-play again, on each kernel that this machine has."""

    def __init__(self, site: TabSite) -> None:
        super().__init__(site.game)
        self._site = site
        self._evaluators = evaluators({version: restore(sharp_bytes(site.kind, seed), site.game) for version, seed in SEEDS.items()})
        self.judgements: list[Judgement] = []
        self.batches: list[GamesBatch] = []

    def judge(self, batch: GamesBatch) -> GamesVerdict:
        if batch.match is None and len(self.batches) > FIRST:
            return super().judge(batch)
        found = self.searched_again(batch)
        self.judgements += found
        self.batches.append(batch)
        return GamesVerdict(found[-1].returns, found[-1].refused)

    def searched_again(self, batch: GamesBatch) -> list[Judgement]:
        game, sections, match = self._site.game, self._site.sections, batch.match
        order = SearchOrder.of_match(game, batch.search, match) if match else SearchOrder.of(game, sections, batch.search, SEEDS)
        return [Verification(evaluate, random.Random(1)).judge(order, 1.0, batch.games) for evaluate in self._evaluators]


def with_a_bit_changed(batch: GamesBatch, name: str, game: Game) -> GamesBatch:
    """The first game alone; the lowest bit of the largest number of its first searched ply is another one."""
    arrays = arrays_of(batch.games[0].record, game.num_distinct_actions(), game.value_size(), "it")
    changed, first = arrays[name].copy(), np.flatnonzero(arrays["simulations"])[0]
    row = changed[first : first + 1].reshape(-1)
    row[row.argmax() :].view(np.uint8)[0] ^= 1
    planted = {"policies": arrays["policies"], "support": np.zeros(0, np.uint8), name: changed}
    return replace(batch, games=(with_arrays(batch.games[0], **planted),))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resnet", "outcomes"])
def test_two_tabs_play_a_match_to_its_end_and_every_ply_is_searched_again_to_the_same_bits(tmp_path: Path, kind: str) -> None:
    site = TabSite(tmp_path, kind)
    for version, seed in SEEDS.items():
        site.publish(version, seed)
    site.judge = judge = Recomputer(site)
    site.start()
    try:
        with launched() as browser:
            pages = [browser.new_context().new_page() for _ in range(2)]
            for page in pages:
                page.goto(f"{site.url}/web/contribute/")
                page.locator("#go").click()
            until(lambda: len(site.finished()) >= 2, "games of self-play")
            spec = MatchSpec("weights:2", "weights:1", GAMES, 32, 2, 9)
            job = site.ask(Job("", RUN, Kind.EVAL, "browser", games=GAMES, payload=encode(spec)))
            until(lambda: site.ledger.job(job).state is JobState.DONE, "the match")
            count = len(site.finished())
            until(lambda: len(site.finished()) > count, "self-play after it")
    finally:
        site.stop()
    standing = read_standing(site.bus, RUN, Standings())
    (result,) = standing.matches
    assert (result.first, result.second, result.games, result.spec) == ("weights:2", "weights:1", GAMES, spec)
    assert {rating.player for rating in standing.ratings} == {"weights:1", "weights:2"}
    assert sum(each.recomputed for each in judge.judgements) == sum(each.plies for each in judge.judgements) > GAMES
    assert not list(itertools.chain.from_iterable(each.refused for each in judge.judgements))
    assert len({batch.contributor for batch in judge.batches}) == 2
    for name in ("policies", "root_values", "simulations"):
        assert {each.differed for each in judge.searched_again(with_a_bit_changed(judge.batches[0], name, site.game))} == {1}, name


def test_a_network_that_fails_its_self_test_plays_no_match_and_self_play_goes_on(tmp_path: Path) -> None:
    site = TabSite(tmp_path)
    site.publish(1, values=b"\0\0\x80\x3f" * 8)
    site.publish(2)
    site.start()
    try:
        with launched() as browser:
            page = browser.new_page()
            page.goto(f"{site.url}/web/contribute/")
            page.locator("#go").click()
            until(lambda: len(site.finished()) >= 2, "games of self-play")
            spec = MatchSpec("weights:2", "weights:1", GAMES, 32, 2, 9)
            job = site.ask(Job("", RUN, Kind.EVAL, "browser", games=GAMES, payload=encode(spec)))
            page.get_by_text("weights 2 or 1 are not used: the network fails its self-test").wait_for()
            count = len(site.finished())
            until(lambda: len(site.finished()) > count + 2, "self-play after it")
            assert site.ledger.job(job).state is JobState.LEASED
    finally:
        site.stop()
    assert site.ledger.job(job).state is JobState.QUEUED, "who stops gives it back whole"
    assert not read_standing(site.bus, RUN, Standings()).matches
