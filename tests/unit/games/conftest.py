"""How fast a game is need not be known well: half a second a check is most of what these tests cost."""

from __future__ import annotations

from functools import partial

import pytest

from azq.games import check


@pytest.fixture(autouse=True)
def short_playouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "playouts_per_s", partial(check.playouts_per_s, seconds=0.02))
