"""`azq profile --local` starts a run, sees all three roles at work, draws, and leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import azq


@pytest.mark.release
def test_a_run_of_its_own_is_profiled(tmp_path: Path) -> None:
    plot = ["--plot", str(tmp_path / "it.svg")]
    done = azq(tmp_path, "profile", "--local", "--game", "tic_tac_toe", "--seconds", "4", "--json", *plot, timeout_s=220)
    assert done.returncode == 0, done.stderr
    found = {profile["role"]: profile for profile in json.loads(done.stdout)}
    assert set(found) == {"selfplay", "inference", "learner"}
    for profile in found.values():
        assert sum(row["wall_share"] for row in profile["rows"]) == pytest.approx(1.0, abs=0.1)
        assert profile["cpu_cores"] > 0
    assert {"search", "transport", "wait"} <= {row["phase"] for row in found["selfplay"]["rows"]}
    assert {"load", "forward", "loss", "backward", "update"} <= {row["phase"] for row in found["learner"]["rows"]}
    assert (tmp_path / "it.svg").stat().st_size > 1_000
