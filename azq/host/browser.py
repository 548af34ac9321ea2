"""A headless browser on this machine, and what azq has it load."""

from __future__ import annotations

import importlib
import importlib.resources
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from azq.errors import MissingExtra

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(*more: str) -> Iterator[Any]:
    """A headless browser, with more arguments, as long as it is entered. Raises `MissingExtra` where one cannot be started."""
    if reason := no_browser():
        raise MissingExtra(reason)
    api = importlib.import_module("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), headless=True, args=[*ARGUMENTS, *more])
        yield browser
        browser.close()


def no_browser() -> str:
    """Why none can be started here; empty where one can."""
    if importlib.util.find_spec("playwright") is None:
        return "a headless browser needs playwright; `pip install playwright`"
    return "" if CHROMIUM.exists() else f"there is no browser at {CHROMIUM}; on Debian: apt-get install chromium"


def web() -> Path:
    """The folder of what browsers load."""
    return Path(str(importlib.resources.files("azq") / "web"))
