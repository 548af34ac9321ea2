"""Every preset as it ships beats random play after a few minutes of `azq up`: the long form of test_canary.py."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import QUICK, azq

from azq import games

MINUTES = 4
GAMES = 200


def answer_of(home: Path, *arguments: str) -> str:
    """What a command printed; it may take its minutes."""
    done = azq(home, *arguments, timeout_s=60 * (MINUTES + 6), threads=os.cpu_count() or 1)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout


@pytest.mark.release
@pytest.mark.parametrize("name", games.names())
def test_a_preset_beats_random_play_within_minutes(name: str, tmp_path: Path) -> None:
    last = answer_of(tmp_path, "up", "--game", name, "--run", "canary", "--until", f"minutes={MINUTES}", "--json", *QUICK).splitlines()[-1]
    assert json.loads(last)["ledger"]["balanced"]
    match = answer_of(
        tmp_path, "match", "--game", name, "--run", "canary", "--first", "latest", "--second", "random", "--games", str(GAMES), "--json"
    )
    result = json.loads(match)
    equal = 1 / result["seats"]
    assert result["share"] > equal + 0.3 * (1 - equal), result
