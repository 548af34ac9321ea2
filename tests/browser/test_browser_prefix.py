"""Pages behind a proxy that puts azq below a path: the dashboard, the play page and a tab are at work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from below_prefix import nginx
from browsing import launched
from page_site import RUN, Site
from tab_site import TabSite
from waiting import until


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[str]:
    """A daemon's address below the prefix."""
    site = Site(tmp_path / "site")
    site.plant()
    site.start()
    (tmp_path / "proxy").mkdir()
    with nginx(tmp_path / "proxy", site.url) as url:
        yield url
    site.stop()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[str, TabSite]]:
    """A gateway's, and the gateway."""
    site = TabSite(tmp_path / "tabs")
    site.publish(1)
    site.start()
    (tmp_path / "proxy").mkdir()
    with nginx(tmp_path / "proxy", site.url) as url:
        yield url, site
    site.stop()


def test_dashboard_and_play_page_are_at_work_below_the_prefix(daemon: str) -> None:
    with launched() as browser:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{daemon}/")
        page.locator("#headline").wait_for()
        page.get_by_role("link", name="play").click()
        page.locator(".play:not(.waiting)").wait_for()
        assert page.locator("#runs").input_value() == RUN
    assert f"{daemon}/v1/runs" in asked
    assert [url for url in asked if not url.startswith((f"{daemon}/", "data:", "blob:"))] == []


@pytest.mark.slow
def test_a_tab_plays_below_the_prefix(gateway: tuple[str, TabSite]) -> None:
    url, site = gateway
    with launched() as browser:
        page = browser.new_page()
        sockets: list[str] = []
        page.on("websocket", lambda socket: sockets.append(socket.url))
        page.goto(f"{url}/")
        page.locator("#go").click()
        until(site.finished, "a game")
    assert sockets == [f"{url.replace('http', 'ws')}/v1/volunteers/tab"]
