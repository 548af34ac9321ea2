"""The kernel alone: in a copy of azq without its parts a run starts, takes a job over REST, shows in Flower and recovers from a kill."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from recovering import SMALL, balances, recovers, trains
from waiting import PATIENCE_S

import azq
from azq import _core
from azq.console.remote import client_of
from azq.errors import ExitCode
from azq.host.fronts import free_port
from azq.ledger.types import JobState
from azq.parts import installed
from azq.process import apart

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PARTS = [folder.name for folder in (ROOT / "azq" / "parts").iterdir() if installed(folder.name)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """An interpreter that has this environment's libraries, and of azq a copy without parts."""
    place = tmp_path_factory.mktemp("kernel")
    for package in ("azq", "daemon", "workers"):
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__", "core"))
    for part in PARTS:
        shutil.rmtree(place / "azq" / "parts" / part)
    for extension in Path(_core.__file__).parent.glob("*.so"):
        shutil.copy(extension, place / "azq")
    venv.create(place / "venv")
    # As paths of a .pth, folders of libraries are searched, and what lies in them to find the azq of the checkout is not.
    libraries = [entry for entry in sys.path if entry.endswith("site-packages")]
    (site,) = (place / "venv").glob("lib/python*/site-packages")
    (site / "kernel.pth").write_text("\n".join([str(place), *libraries, ""]))
    return str(place / "venv" / "bin" / "python"), "-P"


def output_of(python: tuple[str, ...], *arguments: str, code: ExitCode = ExitCode.OK) -> str:
    """What a command of that azq prints."""
    done = subprocess.run([*python, "-m", "azq", *arguments], capture_output=True, text=True, env=apart.environment(), timeout=PATIENCE_S)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@contextmanager
def flower(python: tuple[str, ...], run: azq.Local) -> Iterator[str]:
    """Flower beside a run; its address."""
    port, config = free_port(), ROOT / "ops" / "flower" / "flowerconfig.py"
    command = [*python, "-m", "celery", "-A", "workers.app", "flower", f"--conf={config}", f"--db={run.folder / 'flower.db'}"]
    settings = {"AZQ_BROKER__CONTROL_URL": run.config().broker.control_url, "FLOWER_BASIC_AUTH": "ops:secret", "FLOWER_PORT": str(port)}
    process = apart.start(command, run.folder, run.folder / "flower.log", settings)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    with suppress(OSError), urlopen(url) as answer:
        return bool(answer.status == 200)
    return False


def test_its_command_line_has_no_command_of_a_part(python: tuple[str, ...]) -> None:
    listed = output_of(python, "help", "--all")
    assert "worker" in listed
    assert PARTS
    for command in ("bench", "drill", "validate", "sweep", "cluster", "volunteers", "gateway"):
        assert f" {command} " not in listed
    assert "azq.parts.volunteers" in output_of(python, "up", "--volunteers", "--game", "tic_tac_toe", code=ExitCode.MISSING_EXTRA)


def test_a_run_starts_takes_a_job_shows_in_flower_and_recovers(
    python: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "AZQ", (*python, "-m", "azq"))
    with azq.Local("tic_tac_toe", settings=(*SMALL, f"daemon.port={free_port()}"), folder=tmp_path) as run:
        trains(run, 100)
        with client_of(run.given()) as client:
            job = client.enqueue(run.run, "selfplay", games=4, slice_s=1.0).job_id
            run.until(lambda: client.job(job).state is JobState.DONE, "the end of the job", PATIENCE_S)
        with flower(python, run) as url:
            run.until(lambda: answers(f"{url}/healthcheck"), "Flower", PATIENCE_S)
        recovers(run, "selfplay")
        balances(run)
