"""`ops/pretrained.py --levels`: the levels of a shipped game meet, and its card takes what they came to."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from azq import pretrained
from azq.console.demo import levels_of

SCRIPTS = Path(__file__).parents[3] / "ops"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.delitem(sys.modules, "pretrained", raising=False)
    yield importlib.import_module("pretrained")
    sys.modules.pop("pretrained", None)


def test_each_level_meets_those_next_to_it_and_the_card_keeps_its_elo(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tic_tac_toe.toml", "tic_tac_toe.safetensors"):
        shutil.copy(pretrained.FOLDER / name, tmp_path)
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    monkeypatch.setattr(script, "AT_ONCE", 2)
    levels = script.measured_levels("tic_tac_toe", 0.0)
    card = pretrained.card("tic_tac_toe")
    assert [(level.num_simulations, level.temperature) for level in levels] == [
        (level.num_simulations, level.temperature) for level in levels_of(card)
    ]
    assert (levels[0].elo, levels[0].elo_95) == (0, 0)
    assert sum(level.games for level in levels) >= 2 * 2 * 17  # both sides of two games of each pair
    assert all(level.elo_95 > 0 for level in levels[1:])
    script.write(msgspec.structs.replace(card, levels=levels))
    assert pretrained.card("tic_tac_toe").levels == levels
