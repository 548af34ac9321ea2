"""An entry from its file to a verified claim: five seeds of a small network that is at an easy target within seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import azq

TRACKS = """
classes.here.measure = "cpu_s"

[tracks.easy]
title = "tic-tac-toe, 20 % errors at two simulations"
game = "tic_tac_toe"
exam = "solve"
target = 0.2
minutes = 5.0
num_simulations = 2
count = 200
"""
MINE = """
track = "easy"
class = "here"
author = "me"
date = "2026-11-29"
new = "a small network, published each second"

[settings]
arena = { every_s = 0.0 }
learner = { publish_every_s = 1.0, min_window = 500, warmup_steps = 20 }
network = { blocks = 1 }
selfplay = { games_in_flight = 128 }
"""


@pytest.mark.slow
def test_an_entry_runs_and_its_claim_holds_until_it_is_edited(tmp_path: Path) -> None:
    (tmp_path / "tracks.toml").write_text(TRACKS)
    (tmp_path / "mine.toml").write_text(MINE)
    run = azq(tmp_path, "speedrun", "run", "mine.toml", "--tracks", "tracks.toml", "--json", timeout_s=3000.0)
    assert run.returncode == 0, run.stderr
    folder, costs = tmp_path / "speedrun-mine", [seed["rows"][-1]["cpu_s"] for seed in json.loads(run.stdout)["seeds"]]
    assert len(costs) == 5
    assert min(costs) > 0

    verified = azq(tmp_path, "speedrun", "verify", str(folder), "--tracks", "tracks.toml", "--seed", "3", "--json", timeout_s=3000.0)
    assert verified.returncode == 0, verified.stdout
    verdict = json.loads(verified.stdout)
    assert (verdict["holds"], verdict["record"], verdict["p"], verdict["costs"]) == (True, True, None, costs)

    log = folder / "seed-2" / "log.json"
    log.write_text(log.read_text().replace('"ended":""', '"ended":"none"'))
    refused = azq(tmp_path, "speedrun", "verify", str(folder), "--tracks", "tracks.toml", timeout_s=3000.0)
    assert refused.returncode == 1
    assert "seed-2     log.json was edited" in refused.stdout
