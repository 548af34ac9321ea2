"""Wheels for Linux: pinned builders, what auditwheel's words allow; slow: a wheel is built, installed apart, and computes the same bits."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import wheels

ROOT = Path(__file__).parents[3]
SHOWN = """
azq-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl
is consistent with the following platform tag:
"{tag}".

The wheel references external versioned symbols in these
system-provided shared libraries: libc.so.6 with versions {{'GLIBC_2.14'}}
"""


def test_all_builders_are_in_the_lock_with_their_hashes():
    found = wheels.pinned(wheels.BUILDERS, (ROOT / "constraints.txt").read_text("utf-8"))
    for name in wheels.BUILDERS:
        assert f"{name}==" in found
    assert found.count("==") == len(wheels.BUILDERS)
    assert found.count("--hash=sha256:") >= len(wheels.BUILDERS)


@pytest.mark.parametrize(
    ("tag", "good"),
    [
        ("manylinux_2_28_x86_64", True),
        ("manylinux_2_17_x86_64", True),
        ("manylinux_2_34_x86_64", False),
        ("manylinux_2_17_aarch64", False),
        ("linux_x86_64", False),
    ],
)
def test_a_wheel_is_kept_where_auditwheel_allows_it_on_old_machines(tag, good):
    assert wheels.suits(SHOWN.format(tag=tag), "x86_64") is good


@pytest.mark.release
def test_a_wheel_runs_by_itself_and_computes_the_golden_trees(tmp_path):
    """Half an hour of compiling on one core at most; what it needs besides azq is this environment's."""
    machine = sysconfig.get_platform().removeprefix("linux-")
    subprocess.run([sys.executable, ROOT / "ops" / "wheels.py", machine, "--out", tmp_path], check=True)
    (wheel,) = tmp_path.glob(f"*_{machine}.whl")
    alone = tmp_path / "alone"
    subprocess.run([sys.executable, "-m", "venv", alone], check=True)
    python = alone / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    # A plain path brings the packages and none of their own .pth files, so that azq is the wheel's.
    place = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip()
    Path(place, "packages.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    found = subprocess.check_output([python, "-c", "import azq; print(azq.__file__)"], text=True, cwd=tmp_path)
    assert str(alone) in found
    golden = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "tests" / "unit" / "core" / "test_golden.py"]
    assert subprocess.run(golden, cwd=tmp_path, check=False).returncode == 0
    play = [alone / "bin" / "azq", "play", "tic_tac_toe"]
    told = subprocess.run(play, input="q\n", capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "azq:tic_tac_toe" in told.stdout
