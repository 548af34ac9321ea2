"""`azq demo` as a person meets it: a gallery, a game against a shipped network in the tab, a link to the position."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from browsing import Visit
from waiting import until

from azq import pretrained
from azq.process.start import AZQ


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    process = subprocess.Popen([*AZQ, "demo", "--no-browser"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
    assert found is not None
    yield found[0]
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode in (0, 130)


def test_a_visitor_chooses_a_game_and_plays_it_in_the_tab(url: str, browser: Any) -> None:
    seen = Visit(browser, url)
    page = seen.page
    page.locator('section[data-game="tic_tac_toe"] .preview .scene svg').wait_for()
    assert page.locator("section[data-game]").count() == len(pretrained.names())
    assert f"level 10 is {pretrained.card('tic_tac_toe').levels[-1].elo} ±" in page.locator('section[data-game="tic_tac_toe"]').inner_text()
    page.get_by_role("link", name="Play Tic-tac-toe").click()
    page.locator(".scene [data-action]").first.click()
    until(lambda: page.locator("#played li").count() == 2, "its answer")
    assert page.title() == "Your turn · Tic-tac-toe · azq"
    assert page.locator("#level option").first.inner_text() == "Level 1 · 8 simulations"
    assert page.locator("#level option").count() == 10
    strongest = pretrained.card("tic_tac_toe").levels[-1]
    assert page.locator("#level option").last.inner_text() == f"Level 10 · 2048 simulations · +{strongest.elo} Elo"
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    until(lambda: page.locator("#played li").count() == 2, "the shared game")
    page.goto(f"{url}/play/hex/")  # as a link preview's reader opens it
    page.locator(".scene [data-action]").first.click()
    until(lambda: page.locator("#played li").count() == 2, "its answer")
    assert page.title() == "Your turn · Hex · azq"
    assert seen.complaints == []
    seen.context.close()


def test_a_visitor_pulls_twenty_plugs_and_the_ledger_balances(url: str, browser: Any) -> None:
    seen = Visit(browser, url)
    seen.page.get_by_role("link", name="pull a plug").click()
    for pull in range(20):
        seen.page.locator("#plugs button").nth(pull % 4).click()
        begun, open_, on_their_way, given_up, on_disk, lost, twice = map(int, re.findall(r"\d+", seen.text("#sum")))
        assert begun == open_ + on_their_way + given_up + on_disk
        assert (lost, twice) == (0, 0)
    assert seen.complaints == []
    seen.context.close()
