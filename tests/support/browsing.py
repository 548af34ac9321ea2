"""A headless browser for tests of pages, where there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nodejs import WEB
from waiting import PATIENCE_S

ORIGIN = "https://azq.test"  # answered here: nothing leaves the browser
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP volunteers.test 127.0.0.1",  # a name that is not this machine's
)
SHIFTS = """globalThis.shifted = 0;
new PerformanceObserver((list) => { for (const { value } of list.getEntries()) globalThis.shifted += value; })
    .observe({ type: "layout-shift", buffered: true });"""


@contextlib.contextmanager
def launched(*more: str) -> Iterator[Any]:
    """A browser, with more arguments, as long as it is entered; skips the test where none is installed."""
    api = pytest.importorskip("playwright.sync_api", reason="a headless browser needs playwright; `pip install playwright`")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM}; on Debian: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), headless=True, args=[*ARGUMENTS, *more])
        yield browser
        browser.close()


class Visit:
    """A page, in a context of its own, with everything that it asked for and complained about; `script` runs before its own."""

    def __init__(self, browser: Any, url: str, script: str = "", **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        self.context.set_default_timeout(1000 * PATIENCE_S)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        if script:
            self.page.add_init_script(script)
        self.page.goto(url)

    def text(self, selector: str) -> str:
        """The text of the one element, once it is there."""
        return str(self.page.locator(selector).inner_text())

    def shifted(self) -> float:
        """How far content moved while the page loaded; `script` was `SHIFTS`."""
        return float(self.page.evaluate("new Promise((resolve) => requestAnimationFrame(() => resolve(globalThis.shifted)))"))


@contextlib.contextmanager
def visiting(browser: Any, site: str) -> Iterator[Callable[..., Visit]]:
    """Visits addresses of a site, with options of `Visit`; their pages are closed at the end."""
    with contextlib.ExitStack() as opened:

        def visit(address: str = "", *arguments: Any, **options: Any) -> Visit:
            seen = Visit(browser, f"{site}/{address}", *arguments, **options)
            opened.callback(seen.context.close)
            return seen

        yield visit


def open_tab(browser: Any, script: Path) -> Any:
    """A page of a secure origin that has azq/web and a script at its root, and `window.core`."""
    files = {str(file.relative_to(WEB)): file for file in WEB.rglob("*")} | {script.name: script}

    def serve(route: Any) -> None:
        file = files.get(route.request.url.removeprefix(f"{ORIGIN}/"))
        body, kind = (b"<!doctype html>", "text/html") if file is None else (file.read_bytes(), TYPES[file.suffix])
        route.fulfill(body=body, content_type=kind)

    page = browser.new_page()
    page.route("**/*", serve)
    page.goto(f"{ORIGIN}/")
    page.evaluate("async () => { window.core = await (await import('/core.js')).loadCore('/azq.wasm') }")
    return page


def in_browser(script: Path, run: str, given: Any = None) -> Any:
    """What `run`, a JavaScript function of (core, the script's exports, given), returns in a page; skips where there is no browser."""
    with launched() as browser:
        page = open_tab(browser, script)
        return page.evaluate(f"async (given) => ({run})(window.core, await import('/{script.name}'), given)", given)
