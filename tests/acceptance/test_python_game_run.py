"""A game in one Python file through the whole system: it learns, and games that its rules cannot finish harm nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import QUICK, azq

NIM = (Path(__file__).parents[1] / "games" / "nim.py").read_text("utf-8")
QUIRK = '''
import sys
from itertools import count

MOVES = count(1)

class Fragile(Nim):
    """Nim whose rules fail at every 500th move of a self-play process, in play or in the middle of a search; 40 games search 8,000."""

    def apply_action(self, action):
        super().apply_action(action)
        if next(MOVES) % 500 == 0 and "worker" in sys.argv:
            raise ValueError("the heap fell over")
'''


@pytest.mark.slow
def test_games_that_raise_are_abandoned_by_name_and_the_rest_is_learned(tmp_path: Path) -> None:
    (tmp_path / "fragile.py").write_text(NIM + QUIRK, "utf-8")
    done = azq(tmp_path, "up", "--game", "fragile.py:Fragile", "--run", "fragile", "--until", "games=40", "--json", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])["ledger"]
    assert counts["balanced"]
    assert counts["abandoned"] > 0
    assert counts["inserted"] == counts["finished"] >= 40
    logs = "".join(path.read_text("utf-8") for path in (tmp_path / "fragile" / "logs").iterdir())
    assert "the heap fell over" in logs
    again = azq(tmp_path, "up", "--run", "fragile", "--until", "games=20", "--json", *QUICK)  # its file was named when it was made
    assert again.returncode == 0, again.stdout + again.stderr
    assert json.loads(again.stdout.splitlines()[-1])["ledger"]["finished"] >= counts["finished"] + 20
