"""Two tabs play a match between two versions in a browser; every game is searched again, and the run's standing has the result."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from browsing import launched
from sharp_nets import sharp_bytes
from tab_site import RUN, Believer, TabSite
from waiting import until
from whole_networks import tab_forward

from azq.ledger.types import JobState
from azq.parts.volunteers.handouts import GamesBatch, GamesVerdict
from azq.parts.volunteers.plausibility import SearchOrder
from azq.parts.volunteers.reputation import Judgement
from azq.parts.volunteers.verifier import Verification
from azq.status.observe import Standings, read_standing
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchSpec

SEEDS = {1: 3, 2: 5}
GAMES = 40


class Recomputer(Believer):
    """Searches every ply of a match again."""

    def __init__(self, site: TabSite) -> None:
        super().__init__(site.game)
        self._site = site
        self._forwards = {version: tab_forward(sharp_bytes(site.kind, seed), site.game) for version, seed in SEEDS.items()}
        self.judgements: list[Judgement] = []
        self.contributors: set[str] = set()

    def judge(self, batch: GamesBatch) -> GamesVerdict:
        if batch.match is None:
            return super().judge(batch)
        order = SearchOrder.of_match(self._site.game, batch.search, batch.match)
        found = Verification(lambda version, packed: self._forwards[version](packed), random.Random(1)).judge(order, 1.0, batch.games)
        self.judgements.append(found)
        self.contributors.add(batch.contributor)
        return GamesVerdict(found.returns, found.refused)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resnet", "outcomes"])
def test_two_tabs_play_a_match_to_its_end(tmp_path: Path, kind: str) -> None:
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
            pages[0].get_by_text("evaluation match, version 2 against 1").wait_for()
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
    assert len(judge.contributors) == 2


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
