"""The play page as a browser shows it: games by clicks to their end, and nothing of hidden hands where a person could look."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from board_site import base36
from browsing import Visit
from page_site import RUN, Site, now_ms
from sharp_nets import KINDS, sharp_bytes
from waiting import until

from azq import games
from azq.bus.catalog import ModelCatalog
from azq.parts.volunteers.model_maker import make_model
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import WeightEvent

TURN = "Your turn"
RESULTS = ("You win", "You lose", "Draw", "You share first place", "Game over")
LOST = "Connection lost. Trying again…"


class Table(Visit):
    """A page at the site of one game; opponents know nothing, so that games are quick."""

    def __init__(self, browser: Any, site: Any, address: str = "", **options: Any) -> None:
        self.site = site
        self.site.start()
        super().__init__(browser, f"{self.site.url}/web/play/#{address or f'run={RUN}&level=simulations:16'}", **options)

    def close(self) -> None:
        self.context.close()
        self.site.stop()

    @property
    def status(self) -> str:
        return str(self.page.locator(".turn, #loading:not(:empty)").first.inner_text()).split(":")[0]

    def wait(self) -> bool:
        """Waits for the person's turn; False when the game is over."""
        until(lambda: self.status in (TURN, *RESULTS), f"a turn, not {self.status}")
        return self.status == TURN

    def click(self, luck: random.Random) -> None:
        """Clicks on something that may be done, chosen at random; a point of backgammon, then where its checker goes."""
        places = self.page.locator("#table [data-action], #table [data-from]")
        places.nth(luck.randrange(places.count())).click(force=True)
        if self.status == TURN and self.page.locator("#table .chosen").count():
            self.page.locator("#table [data-action]").first.click(force=True)

    def play(self, seed: int = 1, plies: int = 500) -> None:
        """Random clicks until the end, or so many of them."""
        luck = random.Random(seed)
        for _ in range(plies):
            if not self.wait():
                return
            self.click(luck)


@pytest.fixture
def table(browser: Any, tmp_path: Path) -> Iterator[Any]:
    opened: list[Table] = []

    def go(game: str, address: str = "", **options: Any) -> Table:
        site = Site(tmp_path / game, game)
        site.plant_learner()
        opened.append(Table(browser, site, address, **options))
        return opened[-1]

    yield go
    for one in opened:
        one.close()


def test_connect_four_is_played_to_the_end_by_clicks_and_analysed(table: Any) -> None:
    seen = table("connect_four")
    assert seen.wait()
    seen.page.get_by_label("What the network thinks").check()
    seen.page.locator("#thoughts .target").first.wait_for()
    assert seen.page.locator("#thoughts .target").count() == 7
    seen.page.locator('.scene [data-place="3"]').click()
    until(lambda: seen.page.locator(".scene [data-disc]").count() == 2, "an answer")
    seen.page.get_by_role("button", name="Take back").click()
    until(lambda: seen.page.locator(".scene [data-disc]").count() == 0, "the move is back")
    seen.page.get_by_role("button", name="Hint").click()
    seen.page.locator(".scene .hint").first.wait_for()
    seen.play()
    discs = seen.page.locator(".scene [data-disc]").count()
    assert discs == seen.page.locator("#played li").count() > 6
    link = seen.page.url
    seen.page.get_by_role("button", name="Analyse").click()
    seen.page.locator("#analysis .targets .target").first.wait_for()
    assert seen.page.locator("#analysis #moves button").count() == discs
    seen.page.goto("about:blank")
    seen.page.goto(link)
    until(lambda: seen.page.locator(".scene [data-disc]").count() == discs, "the shared position")
    assert seen.complaints == []


HANDS = "document.documentElement.outerHTML + location.href"


def test_hands_at_blob_are_dealt_and_those_of_others_are_nowhere_in_the_page(table: Any) -> None:
    seen = table("blob")
    assert seen.wait()
    own = seen.page.locator(".scene .hand.own .card").all_inner_texts()
    assert len(own) == 5
    assert seen.page.locator(".scene .card.back").count() == 15
    cards = seen.page.evaluate("[...document.querySelectorAll('.card')].map((card) => card.innerText)")
    assert sorted(card.split() for card in cards if card) == sorted(card.split() for card in own)
    text = seen.page.evaluate(HANDS)
    assert "moves=" not in text
    assert " to 1" not in text
    assert seen.page.get_by_role("button", name="Link").is_disabled()
    seen.play()
    assert seen.page.locator(".scene .card.back").count() == 0
    assert seen.complaints == []


@pytest.mark.parametrize("game", ["tic_tac_toe", "othello", "gomoku", "hex", "beasty_bar"])
def test_every_other_game_is_played_by_clicks(table: Any, game: str) -> None:
    seen = table(game)
    seen.play(plies=5)
    seen.wait()
    assert seen.page.locator("#played li").count() >= 5
    assert seen.complaints == []


def test_a_game_for_one_is_played_by_keys_to_its_end_and_has_no_opponent(table: Any) -> None:
    seen = table("2048")
    assert seen.wait()
    assert not seen.page.get_by_label("You are").is_visible()
    assert seen.page.get_by_label("Hints by").is_visible()
    before = seen.page.locator("#played li").count()
    allowed = seen.page.locator(".beside button").first.inner_text()
    seen.page.keyboard.press(f"Arrow{allowed}")
    until(lambda: seen.page.locator("#played li").count() == before + 2, "a move and a new tile")
    seen.play()
    assert seen.status == "Game over"
    assert seen.complaints == []


ACTIVE = """(() => {
  const place = document.activeElement;
  return { inside: Boolean(place.closest(".board")), action: "action" in place.dataset, from: "from" in place.dataset };
})()"""
ARROWS = ("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight")


def press(seen: Table, arrows: bool, luck: random.Random, kinds: tuple[str, ...] = ("action", "from")) -> None:
    """Goes on by arrows or Tab until what has the focus may be played, then plays it."""
    for _ in range(400):
        active = seen.page.evaluate(ACTIVE)
        if active["inside"] and any(active[kind] for kind in kinds):
            break
        seen.page.keyboard.press(luck.choice(ARROWS) if arrows and active["inside"] else "Tab")
    seen.page.keyboard.press("Enter")


def late_backgammon(left: int = 60) -> str:
    """The address of a game of random moves, so many plies before its end."""
    state, actions, rng = games.load("backgammon").new_initial_state(), [], random.Random(1)
    while not state.is_terminal():
        actions.append(rng.choice(state.legal_actions()))
        state.apply_action(actions[-1])
    return f"run={RUN}&level=simulations:16&seat=0&moves={'.'.join(map(base36, actions[:-left]))}"


@pytest.mark.slow
@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "hex", "othello", "gomoku", "2048", "blob", "beasty_bar", "backgammon"])
def test_the_keyboard_alone_plays_a_game(table: Any, game: str) -> None:
    seen, luck = table(game, late_backgammon() if game == "backgammon" else ""), random.Random(2)
    for turn in range(500):
        if not seen.wait():
            break
        assert seen.page.evaluate(ACTIVE)["inside"] or not turn, "the focus stays on the board"
        press(seen, seen.page.locator(".scene .can").count() > 0, luck)
        if seen.page.locator(".scene .chosen").count():
            press(seen, game == "backgammon", luck, ("action",))
    assert seen.status in RESULTS
    assert seen.page.locator(".announced").inner_text()
    assert seen.complaints == []


@pytest.mark.parametrize(
    "kind", ["resnet", pytest.param("outcomes", marks=pytest.mark.slow), pytest.param("transformer", marks=pytest.mark.slow)]
)
def test_networks_play_and_think_in_the_tab(browser: Any, tmp_path: Path, kind: str) -> None:
    site = Site(tmp_path, KINDS[kind][0])
    sha256, uri = open_store("file", directory=tmp_path / RUN / "weights").put(sharp_bytes(kind))
    weights = WeightEvent(RUN, 1, sha256, uri, 1, now_ms())
    site.bus.publish(keys.weights(RUN), encode(weights))
    record = site.ledger.run(RUN).record
    make_model(site.bus, site.services.store_of(record, tmp_path), site.game, weights, ModelCatalog(site.bus, RUN))
    seen = Table(browser, site)
    try:
        assert seen.wait()
        seen.page.get_by_label("Plays").select_option("tab")
        seen.page.get_by_label("What the network thinks").check()
        seen.page.locator("#thoughts .target").first.wait_for()
        asked = len([path for path in site.watched.paths if path.endswith("/moves")])
        seen.play(plies=3)
        seen.page.get_by_role("button", name=re.compile("Take back|Undo this die")).click()
        seen.wait()
        assert len([path for path in site.watched.paths if path.endswith("/moves")]) == asked
        assert seen.complaints == []
    finally:
        seen.close()


def test_a_gateway_has_the_same_page_where_all_happens_in_the_tab(browser: Any, tmp_path: Path) -> None:
    from tab_site import TabSite  # brings the whole gateway

    site = TabSite(tmp_path)
    for version in (1, 2):
        site.publish(version)
    site.rate(2)
    seen = Table(browser, site)
    try:
        assert seen.wait()
        levels = seen.page.locator("#level option").all_inner_texts()
        assert any("Elo · v1" in level or "Elo · v2" in level for level in levels)
        assert not seen.page.get_by_label("Plays").is_visible()
        seen.play()
        assert seen.status in RESULTS
        seen.page.get_by_role("button", name="Analyse").click()
        seen.page.locator("#analysis .targets .target").first.wait_for()
    finally:
        seen.close()


@pytest.mark.parametrize(
    ("address", "problem"),
    [(f"run={RUN}&moves=zz.1", "the link's moves"), ("run=nosuch", f"there is no run nosuch to play against; this is {RUN}")],
)
def test_a_link_that_is_none_begins_a_new_game_and_says_so(table: Any, address: str, problem: str) -> None:
    seen = table("connect_four", address)
    assert seen.wait()
    assert problem in seen.page.locator("#problem").inner_text()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("delete globalThis.WebAssembly", "this browser lacks WebAssembly; use a newer one"),
        (
            "WebAssembly.compile = async () => { throw new Error('no') }",
            "this browser does not take the games' WebAssembly; allow it for this site (no)",
        ),
    ],
)
def test_a_browser_that_cannot_shows_why(table: Any, script: str, problem: str) -> None:
    table("connect_four", script=script).page.locator("#problem", has_text=problem).wait_for()


def test_a_daemon_that_dies_in_mid_move_is_waited_for_and_the_game_goes_on(table: Any) -> None:
    seen = table("connect_four")
    assert seen.wait()
    asked: list[str] = []

    def dies(route: Any) -> None:
        asked.append(route.request.post_data)
        if len(asked) == 1:
            seen.site.stop()
        route.continue_()

    seen.page.route("**/moves", dies)
    seen.page.locator('.scene [data-place="3"]').click()
    until(lambda: seen.status and len(asked) > 1, "the page asks again")
    assert seen.status == LOST
    assert seen.page.locator(".scene [data-disc]").count() == 1
    assert seen.page.locator("#problem").inner_text() == ""
    seen.site.start()
    assert seen.wait()
    assert len(set(asked)) == 1, "the same question"
    assert seen.page.locator(".scene [data-disc]").count() == 2


@pytest.mark.parametrize("by", ["the daemon", pytest.param("a proxy", marks=pytest.mark.slow)])
def test_a_daemon_that_cannot_answer_now_is_asked_again_and_its_reason_is_shown(table: Any, by: str) -> None:
    seen = table("connect_four")
    assert seen.wait()
    lifted = threading.Event()
    reason = "no inference worker is alive"
    said = {"status": 502, "body": "<html>Bad Gateway"} if by == "a proxy" else {"status": 503, "json": {"detail": reason}}
    seen.page.route("**/moves", lambda route: route.continue_() if lifted.is_set() else route.fulfill(**said))
    seen.page.locator('.scene [data-place="3"]').click()
    until(lambda: seen.status == LOST, "the page waits")
    assert seen.page.locator("#problem").inner_text() == ("" if by == "a proxy" else reason)
    lifted.set()
    assert seen.wait()
    assert seen.page.locator("#problem").inner_text() == ""
    assert seen.page.locator(".scene [data-disc]").count() == 2


def test_what_is_not_there_yet_and_a_token_that_is_asked_for_are_waited_for(table: Any) -> None:
    seen = table("connect_four")
    away = {"status": 503, "json": {"detail": "the control plane is away"}}
    for place, answer in {"**/v1/runs": lambda route: route.fulfill(**away), "**/azq.wasm": lambda route: route.abort()}.items():
        seen.page.route(place, answer)
        seen.page.reload()
        until(lambda: seen.status == LOST and seen.page.locator("#problem").inner_text(), "the page waits and says for what")
        seen.page.unroute(place)
        assert seen.wait()
    seen.page.route("**/moves", lambda route: route.fulfill(status=401, json={"detail": "another token now"}), times=1)
    seen.page.locator('.scene [data-place="3"]').click()
    seen.page.locator("#token").fill("long-secret-1")
    seen.page.get_by_role("button", name="Sign in").click()
    until(lambda: seen.page.locator(".scene [data-disc]").count() == 2, "an answer")


@pytest.mark.slow
def test_a_new_game_ends_the_questions_of_the_old_one(table: Any) -> None:
    seen = table("connect_four")
    assert seen.wait()
    asked: list[str] = []

    def away(route: Any) -> None:
        asked.append(route.request.post_data)
        route.abort()

    seen.page.route("**/moves", away)
    seen.page.locator('.scene [data-place="3"]').click()
    until(lambda: seen.status and len(asked) > 1, "the page asks again")
    seen.page.get_by_role("button", name="New game").click()
    until(lambda: seen.page.locator(".scene [data-disc]").count() == 0, "a new board")
    seen.page.locator('.scene [data-place="0"]').click()
    old = asked[0]
    until(lambda: seen.status and asked[-3:].count(asked[-1]) == 3 and asked[-1] != old, "the new question alone")
    assert seen.status == LOST
