"""Faults planted in a copy of azq's protocol: the simulation finds each within 600 seeds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from azq import _core

ROOT = Path(__file__).parents[4]
PLANTED = sorted((ROOT / "tests" / "sim" / "planted").glob("*.patch"))
COPIED = ("azq", "workers", "daemon")
# Without site's hooks, of which an editable install is one, so that the copy is what is imported.
SEARCH = """
import logging
from azq import logs
from azq.parts.sim.faults import plan
from azq.parts.sim.simulation import simulate

logs.setup("sim", level=logging.CRITICAL)
for seed in range(600):
    outcome = simulate(seed, plan(seed, 1.0, 30.0), 30.0)
    if outcome.failed:
        print("seed", seed, outcome.stuck, *outcome.wrong)
        break
"""


def finding(patch: Path, folder: Path) -> str:
    """What the simulation finds in a copy with this patch; empty where it finds nothing."""
    for package in COPIED:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("web", "core", "native", "__pycache__"))
    for extension in Path(_core.__file__).parent.glob("*.so"):
        (folder / "azq" / extension.name).symlink_to(extension)
    subprocess.run(["patch", "-s", "-p1", "-i", str(patch)], cwd=folder, check=True)
    paths = f"{folder}{os.pathsep}{Path(numpy.__file__).parents[1]}"
    run = [sys.executable, "-S", "-c", SEARCH]
    return subprocess.run(run, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, check=True, capture_output=True, text=True).stdout


def printed(patch: Path) -> str:
    """What the simulation must print of it: the line above the patch, where there is one."""
    first = patch.read_text().partition("\n")[0]
    return "seed" if first.startswith("---") else first


@pytest.mark.slow
@pytest.mark.parametrize("patch", PLANTED, ids=lambda path: path.stem)
def test_a_planted_fault_is_found(patch, tmp_path):
    assert printed(patch) in finding(patch, tmp_path)


def test_patches_apply_to_what_they_change():
    for patch in PLANTED:
        run = ["git", "apply", "--check", str(patch)]
        error = subprocess.run(run, cwd=ROOT, capture_output=True, text=True).stderr
        assert not error, f"{patch.name} no longer applies; plant its fault again where the code is now: {error}"
