"""From its wheel alone, whole and without its parts, azq starts a run, takes a job over REST, shows in Flower and recovers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from flower_site import flower
from recovering import SMALL, balances, recovers, trains
from waiting import PATIENCE_S

import azq
from azq.console.remote import client_of
from azq.errors import ExitCode
from azq.host.fronts import free_port
from azq.ledger.types import JobState
from azq.parts import installed
from azq.process import apart

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # the core may have to be compiled

ROOT = Path(__file__).parents[2]
PARTS = [folder.name for folder in (ROOT / "azq" / "parts").iterdir() if installed(folder.name)]
LIBRARIES = [entry for entry in sys.path if entry.endswith("site-packages")]
IN_BROWSERS = {"azq/web/azq.wasm", "azq/web/core.js", "azq/web/calls.js", "azq/web/search.js"}
IN_WHEEL = IN_BROWSERS | {
    "daemon/page/index.html",
    "daemon/page/app.js",
    "daemon/page/style.css",
    "azq/web/look.css",
    "azq/web/board.js",
    "azq/web/network.js",
    "azq/web/vendor/ort-wasm-simd-threaded.wasm.gz",
    "azq/web/vendor/ort.LICENSE",
    "azq/ratings/data/connect_four.jsonl",
}
SHARED = {"systemd/azq-daemon.service", "flower/flowerconfig.py", "ops/drills/learner-kill.toml"}
OWNERS = """
import json
from importlib.metadata import packages_distributions
import azq, azq._core, daemon, workers
print(json.dumps([[module.__file__, packages_distributions()[module.__name__]] for module in (azq, daemon, workers)]))
"""


def output_of(command: list[str], code: ExitCode = ExitCode.OK, **where: Any) -> str:
    """What a command prints that ends so."""
    done: subprocess.CompletedProcess[str] = subprocess.run(command, capture_output=True, text=True, **where)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    output_of(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)], env=environment
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environments(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two that have this one's libraries, and of azq the wheel; from one its parts are removed."""
    places = {name: tmp_path_factory.mktemp(name) for name in ("whole", "without parts")}
    for name, place in places.items():
        venv.create(place)
        output_of([sys.executable, "-m", "pip", "--python", str(place), "install", "-q", "--no-deps", "--no-index", str(wheel)])
        (site,) = place.glob("lib/python*/site-packages")
        # As paths of a .pth, folders of libraries are searched, and what lies in them to find the azq of the checkout is not.
        (site / "libraries.pth").write_text("\n".join(LIBRARIES))
        for part in PARTS if name == "without parts" else ():
            shutil.rmtree(site / "azq" / "parts" / part)
    return places


def python(place: Path, *arguments: str, **options: Any) -> str:
    """What Python prints in an environment."""
    return output_of([str(place / "bin" / "python"), "-P", *arguments], env=apart.environment(), timeout=PATIENCE_S, **options)


def answers(url: str) -> bool:
    with suppress(OSError), urlopen(url) as answer:
        return bool(answer.status == 200)
    return False


@pytest.mark.parametrize("name", ["whole", "without parts"])
def test_a_run_starts_takes_a_job_shows_in_flower_and_recovers(
    environments: dict[str, Path], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = environments[name]
    for file, owners in json.loads(python(place, "-c", OWNERS, cwd=ROOT)):
        assert (Path(file).is_relative_to(place), set(owners)) == (True, {"azq"})
    monkeypatch.setattr(apart, "AZQ", (str(place / "bin" / "python"), "-P", "-m", "azq"))
    with azq.Local("tic_tac_toe", settings=(*SMALL, f"daemon.port={free_port()}"), folder=tmp_path) as run:
        trains(run, 100)
        with client_of(run.given()) as client:
            job = client.enqueue(run.run, "selfplay", games=4, slice_s=1.0).job_id
            run.until(lambda: client.job(job).state is JobState.DONE, "the end of the job", PATIENCE_S)
        config = place / "share" / "azq" / "flower" / "flowerconfig.py"
        with flower(run.config().broker.control_url, tmp_path, str(place / "bin" / "python"), config) as url:
            run.until(lambda: answers(f"{url}/healthcheck"), "Flower", PATIENCE_S)
        recovers(run, "selfplay")
        balances(run)


def test_without_parts_the_command_line_has_none_of_their_commands(environments: dict[str, Path]) -> None:
    place = environments["without parts"]
    listed = python(place, "-m", "azq", "help", "--all")
    assert "worker" in listed
    assert PARTS
    for command in ("bench", "drill", "validate", "sweep", "cluster", "volunteers", "gateway"):
        assert f" {command} " not in listed
    words = ("-m", "azq", "up", "--volunteers", "--game", "tic_tac_toe")
    assert "azq.parts.volunteers" in python(place, *words, code=ExitCode.MISSING_EXTRA)


def test_the_wheel_carries_pages_units_and_no_sources_of_the_core(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert set(names) >= IN_WHEEL
    assert {name.partition("share/azq/")[2] for name in names} >= SHARED
    assert not [name for name in names if name.endswith((".cpp", ".hpp")) or name.startswith(("tests/", "runs/", "ops/"))]


def test_the_source_distribution_carries_what_browsers_load(tmp_path: Path) -> None:
    """Compiled: nobody needs the compiler for WebAssembly who installs azq from its sources."""
    output_of([sys.executable, "-c", f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"], cwd=ROOT)
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        assert {name.partition("/")[2] for name in archive.getnames()} >= IN_BROWSERS
