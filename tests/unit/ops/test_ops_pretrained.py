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


def test_cheap_levels_meet_first_and_the_card_keeps_their_elo(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tic_tac_toe.toml", "tic_tac_toe.safetensors"):
        shutil.copy(pretrained.FOLDER / name, tmp_path)
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    monkeypatch.setattr(script, "AT_ONCE", 2)
    monkeypatch.setattr(script, "NARROW_ELO", 1e6)  # one match is enough
    levels = script.measured_levels("tic_tac_toe", 60.0)
    card = pretrained.card("tic_tac_toe")
    assert [(level.num_simulations, level.temperature) for level in levels] == [
        (level.num_simulations, level.temperature) for level in levels_of(card)[:2]
    ]
    assert (levels[0].elo, levels[0].elo_95) == (0, 0)
    assert [level.games for level in levels] == [2, 2]
    assert levels[1].elo_95 > 0
    script.write(msgspec.structs.replace(card, levels=levels))
    assert pretrained.card("tic_tac_toe").levels == levels
