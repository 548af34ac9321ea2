"""Every page in its states, light and dark, on a desk and on a phone: it fits, and axe-core has nothing serious or moderate against it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from board_site import board_site
from browsing import visiting
from page_site import RUN, Site
from tab_site import TabSite
from waiting import until

from azq.ledger.types import RunState

pytestmark = pytest.mark.slow
pytest.importorskip("axe_playwright_python", reason="axe-core comes with `make .venv/.extras`")
AXE = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
RULES = "axe.run({ resultTypes: ['violations'], rules: { 'target-size': { enabled: true } } }).then(({ violations }) => violations)"


def look(seen: Any, state: str, there: str = "main") -> None:
    """Looks at a page once an element is there."""
    seen.page.locator(there).first.wait_for()
    seen.page.evaluate(AXE)
    for scheme, width in (("light", 1400), ("dark", 1400), ("dark", 390)):
        seen.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        seen.page.set_viewport_size({"width": width, "height": 900})
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, state
        rules = [rule for rule in seen.page.evaluate(RULES) if rule["impact"] != "minor"]
        assert [f"{state}, {scheme}: {rule['id']} at {node['target']}" for rule in rules for node in rule["nodes"]] == []


def test_pages_of_volunteers(browser: Any, tmp_path: Path) -> None:
    site = TabSite(tmp_path)
    site.publish(1)
    site.rate(3)
    site.start()
    try:
        with visiting(browser, f"{site.url}/web") as visit:
            tab, progress = visit("contribute/"), visit("progress/")
            tab.page.locator("#advanced summary").click()
            look(tab, "not started")
            tab.page.locator("#go").click()
            until(lambda: len(site.finished()) >= 3, "games")
            look(tab, "playing", "#board .scene svg")
            progress.page.locator("#newest a").first.click()
            look(progress, "figures and a game", ".game .position")
            look(visit("play/"), "a game against a network", ".play:not(.waiting)")
            site.stop()
            look(tab, "without its gateway", ":text('retrying within')")
            look(progress, "without its gateway", "#link :text('Away')")
            site.start()
            progress.page.locator("#link", has_text="now").wait_for()
            tab.page.locator("#go").click()
            look(tab, "stopped", ":text('Stopped')")
    finally:
        site.stop()


def test_pages_of_a_daemon(browser: Any, tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant()
    site.start()
    try:
        with visiting(browser, site.url) as visit:
            for page, there in {"runs": "#all-runs tbody tr", f"games/{RUN}": "#board .scene svg", f"jobs/{RUN}": "#jobs tbody tr"}.items():
                look(visit(f"page/#/{page}"), page, there)
            look(visit("page/#/glossary"), "glossary")
            seen = visit()
            seen.page.locator("#throughput").wait_for()
            seen.page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
            look(seen, "a run at work", '[data-chart="Learner time"] .area')
            site.ledger.set_run_state(RUN, RunState.FINISHED, "60 minutes are over")
            look(seen, "a finished run", ":text('Print')")
            site.stop()
            look(seen, "without its daemon", ":text('Daemon away, retrying')")
    finally:
        site.stop()


def test_pages_of_shipped_networks(browser: Any, tmp_path: Path) -> None:
    with board_site(tmp_path / "site") as url, visiting(browser, url) as visit:
        for game in ("backgammon", "blob", "2048", "hex"):
            look(visit(f"play/{game}/"), game, ".play:not(.waiting) .scene > *")
        seen = visit()
        look(seen, "gallery", ".preview .scene > *")
        seen.page.route("**/games.json", lambda route: route.abort())
        seen.page.reload()
        look(seen, "without its server", ":text('The list of games is out of reach. Trying again…')")
        seen.page.unroute("**/games.json")
        seen.page.locator(".preview .scene > *").first.wait_for()
        seen.page.get_by_role("link", name="pull a plug").click()
        for plug, state in enumerate(("dead", "hangs", "away", "full")):
            seen.page.locator("#plugs button").nth(plug).click()
            seen.page.locator(f"#processes .{state}").wait_for()
            seen.page.get_by_role("button", name="Pause").click()
            look(seen, state)
            seen.page.get_by_role("button", name="Go on").click()
