"""The pages of volunteers in a browser: a tab plays games that a gateway commits, whatever happens meanwhile, and everybody can see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import visiting
from tab_site import FAR, OTHER, RUN, TabSite
from waiting import until

from azq.wire.arrays import unpack_record
from azq.wire.tabs import Accepted, encode_tab

HOST = "volunteers.test"  # a name that is not this machine's: from plain http the browser trusts the page with little
GAMES = 12


@pytest.fixture
def site(tmp_path: Any, request: Any) -> Iterator[TabSite]:
    """With weights, of which tabs are told something untrue where a test asks for that."""
    asked = dict(getattr(request, "param", {}))
    place = TabSite(tmp_path, runs=asked.pop("runs", (RUN,)))
    place.publish(1, **asked)
    place.start()
    yield place
    place.stop()


@pytest.fixture
def visit(browser: Any, site: TabSite) -> Iterator[Any]:
    """Opens a page; `complaints` of it are those it made."""
    with visiting(browser, f"{site.url.replace('127.0.0.1', HOST)}/web") as visit:

        def page(path: str = "contribute/", script: str = "", **options: Any) -> Any:
            seen = visit(path, script, **options)
            seen.page.complaints = seen.complaints
            return seen.page

        yield page


def tile(page: Any, name: str) -> str:
    """The text of a figure, also of one that is folded."""
    return str(page.locator(f'[data-tile="{name}"] b').text_content())


def counted(page: Any) -> int:
    """The one number of the page."""
    return int(page.locator("#mine").inner_text().split()[0])


def advanced(page: Any) -> None:
    page.locator("#advanced summary").click()


def playing(visit: Any, site: TabSite, more: int = GAMES, script: str = "") -> Any:
    """A page that has finished some games."""
    page = visit(script=script)
    page.locator("#go").click()
    until(lambda: len(site.finished()) >= more, "games")
    return page


def searched(site: TabSite, what: str, run: str = RUN, games: int = 1) -> list[set[int]]:
    """With what the newest games were searched, game by game."""
    size = site.game.num_distinct_actions(), site.game.value_size()
    return [set(unpack_record(event.record, *size)[what].tolist()) for event in site.finished(run)[:games]]


def versions(site: TabSite, run: str = RUN, games: int = 1) -> set[int]:
    """Those that the newest games were searched with."""
    return set().union(*searched(site, "weight_versions", run, games))


def balanced(site: TabSite) -> bool:
    """Whether each game that was opened is finished once, or still open."""
    counts, uids = site.ledger.counts(RUN), [event.record.uid for event in site.finished()]
    return len(uids) == len(set(uids)) == counts.finished and counts.opened == counts.finished + counts.open and not counts.abandoned


SOCKET = "window.WebSocket = class extends WebSocket { constructor(url) { super(url); window.socket = this } }"
ELEMENTS_MADE = """(frame) => {
    let made = 0
    const { createElement } = document
    document.createElement = (name) => (made++, createElement.call(document, name))
    for (let i = 0; i < 100; i++) socket.onmessage({ data: Uint8Array.from(frame).buffer })
    document.createElement = createElement
    return made
}"""


def test_a_tab_plays_games_that_count(visit: Any, site: TabSite) -> None:
    page = playing(visit, site, script=SOCKET)
    assert page.evaluate(ELEMENTS_MADE, list(encode_tab(Accepted((), {})))) == 0, "however much is heard, it is drawn a few times a second"
    assert not page.evaluate("isSecureContext")
    until(lambda: counted(page) >= GAMES, "the page's own count")  # the page's policy forbids to have it evaluate a text
    assert tile(page, "backend") == "WebAssembly"
    page.locator("#board .scene svg").wait_for()
    page.locator("#go").click()
    page.get_by_text("Stopped").wait_for()
    until(lambda: site.ledger.counts(RUN).finished == len(site.finished()), "the last games")
    assert balanced(site)
    assert versions(site) == {1}
    assert page.complaints == []


def test_new_weights_are_used_and_unfit_ones_are_not(visit: Any, site: TabSite) -> None:
    page = playing(visit, site)
    site.publish(2)
    until(lambda: versions(site) == {2}, "games with the next weights")
    assert tile(page, "mine") == "v2"
    site.publish(3, values=b"\0\0\x80\x3f" * 8)
    page.get_by_text("weights 3 are not used: the network fails its self-test on wasm: values are off").wait_for()
    site.publish(4, sha256="0" * 64)
    page.get_by_text("weights 4 are not there (404)").wait_for()
    page.route("**/models/*", lambda route: route.fulfill(body=b"damaged"))
    site.publish(5, seed=5)
    page.get_by_text("weights 5 were damaged on their way; the ones before stay in use").wait_for()
    more = len(site.finished()) + GAMES
    until(lambda: len(site.finished()) >= more, "more games")
    assert versions(site) == {2}
    assert all(len(each) == 1 for each in searched(site, "weight_versions", games=1000)), "whatever comes while a game is played"


@pytest.mark.parametrize("site", [{"values": b"\0\0\x80\x3f" * 8}], indirect=True)
def test_without_weights_that_can_be_used_the_games_go_back(visit: Any, site: TabSite) -> None:
    page = visit()
    page.locator("#go").click()
    page.get_by_text("weights 1 are not used: the network fails its self-test").wait_for()
    page.get_by_text("Stopped").wait_for()
    assert not site.finished()


def test_a_gateway_that_was_away_loses_no_game(visit: Any, site: TabSite) -> None:
    page = playing(visit, site)
    site.stop()
    page.get_by_text("retrying within").wait_for()
    before = len(site.finished())
    site.start()
    until(lambda: len(site.finished()) >= before + GAMES, "games after it came back")
    page.locator("#go").click()
    page.get_by_text("Stopped").wait_for()
    assert balanced(site)


KEPT = """async () => {
    const done = (request) => new Promise((resolve) => { request.onsuccess = () => resolve(request.result) })
    const database = await done(indexedDB.open("azq-finished", 1))
    const games = await done(database.transaction("games").objectStore("games").getAll())
    database.close()
    return games.map(({ uid, actions }) => [uid, [...actions]])
}"""

SILENCED = """
    const { send } = WebSocket.prototype
    const isGames = (frame) => new TextDecoder().decode(frame).includes("GamesComplete")
    WebSocket.prototype.send = function (frame) { if (sessionStorage.silenced === "no" || !isGames(frame)) send.call(this, frame) }
"""


def test_a_page_that_is_loaded_again_brings_what_it_had_finished(visit: Any, site: TabSite) -> None:
    page = visit(script=SILENCED)
    page.locator("#go").click()
    until(lambda: len(page.evaluate(KEPT)) >= GAMES, "finished games that no gateway has")
    assert not site.finished()
    kept = {uid: bytes(actions) for uid, actions in page.evaluate(KEPT)}
    page.evaluate("sessionStorage.silenced = 'no'")
    page.reload()
    until(lambda: kept.keys() <= {event.record.uid for event in site.finished()}, "the games of before")
    assert kept.items() <= {event.record.uid: event.record.actions for event in site.finished()}.items()
    until(lambda: not kept.keys() & {uid for uid, _ in page.evaluate(KEPT)}, "answers to all of them")
    page.locator("#go").click()
    page.get_by_text("Stopped").wait_for()
    page.reload()
    page.get_by_text("Not started").wait_for()
    assert balanced(site)
    assert tile(page, "refused") == "0"


@pytest.mark.slow
def test_a_contributor_has_the_name_that_he_wants_and_nobody_elses(visit: Any, site: TabSite) -> None:
    page = playing(visit, site, 1)
    page.locator("#name").fill("Ann")
    page.locator("#name").blur()
    page.locator("#link").get_by_text("Ann").wait_for()
    until(lambda: [row["name"] for row in site.contributors.leaderboard()] == ["Ann"], "the name in public")
    other = visit()
    other.locator("#name").fill("Ann")
    other.locator("#go").click()
    other.get_by_text("somebody else is called Ann; choose another name").wait_for()
    assert other.locator("#link").inner_text().startswith("guest-")


@pytest.mark.slow
@pytest.mark.parametrize("site", [{"runs": (RUN, OTHER)}], indirect=True)
def test_a_visitor_chooses_the_run(visit: Any, site: TabSite) -> None:
    page = visit()
    page.locator("#runs").select_option(OTHER)
    page.locator("#go").click()
    until(lambda: len(site.finished(OTHER)) >= 2, "games of the chosen run")
    assert not site.finished()
    page.locator("#runs").select_option(RUN)
    until(lambda: len(site.finished()) >= GAMES, "games of the other")
    assert (versions(site, OTHER, 1000), versions(site, RUN, 1000)) == ({1 + FAR}, {1})
    assert page.locator("#runs").input_value() == RUN
    lost = visit("contribute/?run=gone")
    lost.get_by_text("gone needs no volunteers right now").wait_for()
    seen = visit(f"progress/?run={OTHER}")
    seen.locator("#about").get_by_text(f"of run {OTHER},").wait_for()
    seen.locator("#runs").select_option(RUN)
    seen.locator("#about").get_by_text(f"of run {RUN},").wait_for()
    nowhere = visit("progress/?run=gone")
    nowhere.get_by_text(f"no run gone wants volunteers here; there is: {OTHER}, {RUN}").wait_for()
    assert page.complaints == seen.complaints == []


@pytest.mark.slow
def test_a_second_visit_downloads_nothing_that_is_there(visit: Any, site: TabSite) -> None:
    page = playing(visit, site, 1)
    first = {path for path, status in site.answers if status == 200 and path.startswith(("/web/", "/assets-", "/models/"))}
    assert any(path.endswith("/web/azq.wasm") for path in first)
    assert not any("/ort" in path for path in first), "ONNX Runtime is for other networks"
    site.answers.clear()
    page.reload()
    more = len(site.finished()) + 1
    until(lambda: len(site.finished()) >= more, "a game of the second visit")
    files = [(path, status) for path, status in site.answers if path.startswith(("/web/", "/assets-", "/models/"))]
    assert files
    assert [(path, status) for path, status in files if status != 304] == []
    assert not any(path.startswith(("/models/", "/assets-")) for path, _ in files)


@pytest.mark.slow
def test_choices_are_kept_and_reach_the_workers(visit: Any, site: TabSite) -> None:
    page = playing(visit, site, 1)
    advanced(page)
    for name, value in {"share": "50", "workers": "2", "games": "4"}.items():
        page.locator(f"#{name}").fill(value)
    page.locator("#hidden").check()
    page.locator("#device").fill("attic")
    page.locator("#device").blur()
    more = len(site.finished()) + GAMES
    until(lambda: len(site.finished()) >= more, "games by two workers")
    page.reload()
    kept = page.evaluate("JSON.parse(localStorage.getItem('azq-contribute'))")
    assert {name: kept[name] for name in ("share", "workers", "games", "hidden", "device")} == {
        "share": 50, "workers": 2, "games": 4, "hidden": True, "device": "attic",
    }  # fmt: skip
    assert page.locator("#workers").input_value() == "2"
    assert page.evaluate("localStorage.getItem('azq-contributor')")


def test_who_is_on_battery_rests(visit: Any, site: TabSite) -> None:
    battery = "navigator.getBattery = async () => Object.assign(new EventTarget(), { charging: false });"
    page = visit(script=battery)
    page.locator("#go").click()
    page.get_by_text("Paused: on battery").wait_for()
    advanced(page)
    page.locator("#battery").uncheck()
    until(lambda: len(site.finished()) >= 1, "a game")


@pytest.mark.parametrize(
    ("script", "problem"), [("delete globalThis.WebAssembly", "lacks WebAssembly"), ("delete globalThis.Worker", "Web Workers")]
)
def test_a_browser_that_cannot_shows_why(visit: Any, script: str, problem: str) -> None:
    page = visit(script=script)
    page.locator("#problem").get_by_text(problem).wait_for()
    assert page.locator("#go").is_disabled()


def test_rules_that_are_out_of_reach_are_fetched_once_they_are_there(visit: Any, site: TabSite) -> None:
    page = visit()
    page.route("**/azq.wasm", lambda route: route.abort())
    page.locator("#go").click()
    page.get_by_text("the games' rules are out of reach; trying again").wait_for()
    page.unroute("**/azq.wasm")
    until(lambda: site.finished(), "a game")


def test_everybody_sees_what_was_done_and_can_replay_it(visit: Any, site: TabSite) -> None:
    site.rate(9)
    page = playing(visit, site)
    page.locator("#go").click()
    page.get_by_text("Stopped").wait_for()
    seen = visit("progress/", color_scheme="dark")
    seen.locator("#newest a").first.wait_for()
    assert "guest-" in seen.locator("#leaders").inner_text()
    assert "v9" in seen.locator("#versions").inner_text()
    assert seen.locator('[data-tile="ever"]').inner_text().split("\n")[-1] == "1 contributor"
    seen.locator("#newest a").first.click()
    seen.locator(".game .position").wait_for()
    seen.keyboard.press("End")
    assert "Result" in seen.locator("#facts").inner_text()
    assert seen.complaints == []
