"""The contribute page in a browser: its tab plays games of a run that a gateway commits, and stays well through what may happen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import launched, shot
from tab_site import TabSite
from waiting import until

from azq.wire.arrays import unpack_record


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as one:
        yield one


@pytest.fixture
def site(tmp_path: Any) -> Iterator[TabSite]:
    place = TabSite(tmp_path)
    place.publish(1)
    place.start()
    yield place
    place.stop()


@pytest.fixture
def visit(browser: Any, site: TabSite) -> Iterator[Any]:
    opened: list[Any] = []

    def go(path: str = "contribute/", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(f"{site.url}/web/{path}")
        opened.append(context)
        return page

    yield go
    for one in opened:
        one.close()


def tile(page: Any, name: str) -> str:
    return str(page.locator(f'[data-tile="{name}"] b').inner_text())


def test_a_tab_plays_games_that_count(visit: Any, site: TabSite) -> None:
    page = visit()
    page.locator("#go").click()
    until(lambda: len(site.finished()) >= 20, "twenty games")
    page.wait_for_function("Number(document.querySelector('[data-tile=\"my games\"] b').textContent) >= 20")
    assert tile(page, "backend") == "WebAssembly"
    shot(page, "contribute")
    page.locator("#go").click()
    assert page.complaints == []
    for event in site.finished():
        arrays = unpack_record(event.record, site.game.num_distinct_actions(), site.game.value_size())
        assert set(arrays["weight_versions"].tolist()) == {1}
        assert event.worker.startswith("browser:")
