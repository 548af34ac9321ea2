"""Boards as they look: each game at three widths, light and dark, beside pictures that are kept.

Compared is how bright small squares are, so fonts and their smoothing make no difference. `PICTURES=new` writes the pictures instead;
look at them then.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board_site import board_site, moves_of
from browsing import SHIFTS, visiting
from PIL import Image

from azq import pretrained

PICTURES = Path(__file__).parent / "boards"
WIDTHS, THEMES = (390, 1024, 1440), ("light", "dark")
PLIES = {"2048": 120, "backgammon": 24, "blob": 34, "beasty_bar": 24, "tic_tac_toe": 4}  # 20 of the others; then the player's next turn
KEPT_WIDTH, COMPARED_WIDTH = 260, 52
MEAN, MOST = 4.0, 60.0  # of 255, over all squares and in one


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with board_site(tmp_path_factory.mktemp("site") / "site") as address:
        yield address


def scaled(picture: Image.Image, width: int) -> Image.Image:
    return picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.BOX)


def differs(picture: Image.Image, kept: Path) -> str:
    """How far a picture is from the kept one; empty where it is near."""
    if not kept.exists():
        return f"no {kept.name}"
    with Image.open(kept) as file:
        wanted = scaled(file.convert("L"), COMPARED_WIDTH)
    seen = scaled(picture.convert("L"), COMPARED_WIDTH)
    if abs(seen.height - wanted.height) > 2:
        return f"{kept.name}: {seen.height} squares high, not {wanted.height}"
    far = np.abs(np.asarray(seen.resize(wanted.size), float) - np.asarray(wanted, float))
    return f"{kept.name}: mean {far.mean():.1f}, most {far.max():.0f}" if far.mean() > MEAN or far.max() > MOST else ""


@pytest.mark.slow
@pytest.mark.parametrize("game", pretrained.names())
def test_a_board_looks_as_it_did(url: str, browser: Any, game: str) -> None:
    moves = moves_of(game, lambda plies, state: plies >= PLIES.get(game, 20) and state.current_player() == 0)
    changed = []
    for width in WIDTHS:
        for theme in THEMES:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce")
            page = context.new_page()
            page.goto(f"{url}/play/{game}/#run={game}&seat=0&moves={moves}")
            page.locator(".play:not(.waiting) .scene > *").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            picture = Image.open(io.BytesIO(page.locator(".board").screenshot())).convert("RGB")
            context.close()
            kept = PICTURES / f"{game}-{width}-{theme}.png"
            if os.environ.get("PICTURES") == "new":
                kept.parent.mkdir(exist_ok=True)
                scaled(picture, KEPT_WIDTH).quantize(32).save(kept, optimize=True)
            changed.append(differs(picture, kept))
    assert [difference for difference in changed if difference] == []


@pytest.mark.slow
def test_a_board_without_its_pieces_is_noticed(url: str, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1024, "height": 900}, color_scheme="light", reduced_motion="reduce")
    page.goto(f"{url}/play/hex/#run=hex&seat=0&moves=")
    page.locator(".play:not(.waiting) .scene > *").wait_for()
    assert "most" in differs(Image.open(io.BytesIO(page.locator(".board").screenshot())), PICTURES / "hex-1024-light.png")
    page.close()


def test_no_network_is_fetched_without_its_digest(url: str, browser: Any) -> None:
    with visiting(browser, url) as visit:
        seen = visit("play/hex/#run=hex&seat=1&moves=")
        seen.page.locator("#problem", has_text="network 1 is not on this server").wait_for()
        assert [address for address in seen.asked if "/site/" in address] == [f"{url}/site/hex.json"]


@pytest.mark.parametrize("width", [390, 1350])
def test_a_board_stays_where_it_first_stands(url: str, browser: Any, width: int) -> None:
    with visiting(browser, url) as visit:
        seen = visit("play/hex/", SHIFTS, viewport={"width": width, "height": 823})
        seen.page.locator(".play:not(.waiting) .scene > *").wait_for()
        assert seen.shifted() < 0.05


def dragged(page: Any, start: Any, end: Any) -> None:
    """Drags with the mouse from the middle of an element to that of another."""
    (x, y), (u, v) = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in (start.bounding_box(), end.bounding_box())]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move((x + u) / 2, (y + v) / 2, steps=3)
    page.mouse.move(u, v, steps=3)
    page.mouse.up()


def played(browser: Any, url: str, game: str) -> tuple[Any, int]:
    """A page at the person's turn, and how many moves it lists."""
    turn = re.compile(r"x to play [1-6]{2}|^(?!x:)")  # of backgammon, with both dice
    moves = moves_of(
        game, lambda plies, state: plies >= PLIES.get(game, 20) and state.current_player() == 0 and bool(turn.search(str(state)))
    )
    page = browser.new_page(viewport={"width": 1024, "height": 1100})
    page.goto(f"{url}/play/{game}/#run={game}&seat=0&moves={moves}")
    page.locator(".play:not(.waiting) .scene > *").wait_for()
    return page, page.locator("#played li").count()


def test_a_checker_is_dragged_to_a_marked_point(url: str, browser: Any) -> None:
    page, before = played(browser, url, "backgammon")
    source = page.locator(".scene [data-from]").first
    source.hover()
    page.mouse.down()
    page.mouse.move(300, 300, steps=3)
    assert page.locator(".scene .legal").count() > 0
    aim = page.locator(".scene [data-action]").first.bounding_box()
    page.mouse.move(aim["x"] + aim["width"] / 2, aim["y"] + aim["height"] / 2, steps=3)
    page.mouse.up()
    assert page.locator("#played li").count() > before
    page.close()


def test_a_card_is_dragged_into_the_trick(url: str, browser: Any) -> None:
    page, before = played(browser, url, "blob")
    dragged(page, page.locator(".own .card.can").first, page.locator(".middle"))
    assert page.locator("#played li").count() > before
    page.close()


def test_tiles_are_moved_by_a_swipe(url: str, browser: Any) -> None:
    page, before = played(browser, url, "2048")
    dragged(page, page.locator("[data-tile]").nth(7), page.locator("[data-tile]").nth(4))
    assert page.locator("#played li").count() > before
    page.close()
