"""What a user installs: the wheel, not the checkout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # the core is compiled

ROOT = Path(__file__).parents[3]
WEB = {"azq/web/azq.wasm", "azq/web/core.js", "azq/web/calls.js", "azq/web/search.js"}

LOOK = """
import json, sys
from importlib.metadata import packages_distributions
import azq, azq._core, daemon, workers
from azq.ratings import positions
from azq.ledger import scripts
from azq.presets import preset
print(json.dumps({
    "owners": {name: sorted(set(packages_distributions()[name])) for name in ("azq", "workers", "daemon")},
    "folders": sorted({str(__import__("pathlib").Path(module.__file__).parents[1]) for module in (azq, daemon, workers)}),
    "positions": len(positions.load("connect_four")),
    "preset": preset("tic_tac_toe")["network"]["kind"],
    "script": "function commands.enqueue" in scripts.source("jobs"),
}))
"""


def ended(command: list[str], **where: Any) -> None:
    """Waits for a command that is to end well; where it does not, its compilers end with it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **where) as process:
        try:
            said, _ = process.communicate(timeout=3000)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, said


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ended(command, env=environment)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_installs_one_distribution_that_works(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {path(tmp_path)}\n{LOOK}"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["owners"] == {"azq": ["azq"], "workers": ["azq"], "daemon": ["azq"]}
    assert found["folders"] == [str(tmp_path)]
    assert found["positions"] == 600
    assert found["preset"] == "mlp"
    assert found["script"]


def path(folder: Path) -> list[str]:
    """The extracted wheel before this environment's packages, whose own (editable) azq stays out without `site`."""
    return [str(folder), *(entry for entry in sys.path if entry.endswith("site-packages"))]


def test_the_wheel_carries_units_and_no_sources_of_the_core(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert any(name.endswith("share/azq/systemd/azq-daemon.service") for name in names)
    assert {"daemon/page/index.html", "daemon/page/app.js", "daemon/page/style.css", "azq/web/look.css", "azq/web/board.js"} <= set(names)
    assert {"azq/web/network.js", "azq/web/vendor/ort-wasm-simd-threaded.wasm.gz", "azq/web/vendor/ort.LICENSE"} <= set(names)
    assert any(name.endswith("share/azq/ops/drills/learner-kill.toml") for name in names)
    assert set(names) >= WEB
    assert not [name for name in names if name.endswith((".cpp", ".hpp"))]
    assert not [name for name in names if name.startswith(("tests/", "runs/", "ops/"))]


def test_the_source_distribution_carries_what_browsers_load(tmp_path: Path) -> None:
    """Compiled: nobody needs the compiler for WebAssembly who installs azq from its sources."""
    command = [sys.executable, "-c", f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"]
    ended(command, cwd=ROOT)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        assert {name.partition("/")[2] for name in archive.getnames()} >= WEB
