"""azq/web: the module is that of the sources, and its JavaScript says what is wrong instead of falling."""

from __future__ import annotations

import base64
import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from nodejs import SUPPORT, WEB, in_node
from numpy.typing import NDArray
from reference.config import Settings

ROOT = SUPPORT.parents[1]
CHECKS = SUPPORT / "core_checks.mjs"


def build_script(folder: Path) -> ModuleType:
    """ops/wasm.py of a checkout."""
    spec = importlib.util.spec_from_file_location("wasm", folder / "ops" / "wasm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interesting() -> NDArray[np.float32]:
    """Every finite float16, what lies half way to the next, and all their neighbours; infinities, and a hundred thousand others."""
    exact = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float32)
    exact[-1] = 65536.0  # where the next one would be
    bits = np.concatenate([exact, (exact[:-1] + exact[1:]) / 2]).view(np.uint32)
    near = np.concatenate([bits, bits + 1, bits[bits > 0] - 1, np.array([1, 0x7F7FFFFF, 0x7F800000], np.uint32)])
    others = np.random.default_rng(0).integers(0, 1 << 32, 100_000, np.uint32)
    numbers = np.concatenate([near, near | np.uint32(1 << 31), others]).view(np.float32)
    return numbers[~np.isnan(numbers)]


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    """What the checks say that are written in JavaScript."""
    numbers = base64.b64encode(interesting().tobytes()).decode()
    found: dict[str, Any] = in_node(CHECKS, {"settings": Settings("gumbel", 32).plain(), "halves": numbers})
    return found


def test_the_committed_module_is_that_of_the_sources() -> None:
    """Without a compiler: the hash of the sources stands in it."""
    found = build_script(ROOT).digest().encode() in (WEB / "azq.wasm").read_bytes()
    assert found, "azq/web/azq.wasm was compiled from other sources; run `make wasm` and commit it"


def test_the_module_says_what_it_was_compiled_from(said: dict[str, Any]) -> None:
    assert said["sources"] == build_script(ROOT).digest()


def test_whatever_is_wrong_is_an_error_in_words(said: dict[str, Any]) -> None:
    assert len(said["checks"]) == 9


def test_evaluations_round_to_float16_as_numpys_do(said: dict[str, Any]) -> None:
    found = np.frombuffer(base64.b64decode(said["checks"]["logits round to float16 as numpy's do"]), np.uint32)
    with np.errstate(over="ignore"):
        expected = np.clip(interesting().astype(np.float16).astype(np.float32), -65504.0, 65504.0)
    np.testing.assert_array_equal(found, expected.view(np.uint32))


@pytest.mark.slow
def test_the_committed_module_is_what_the_compiler_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another folder and with an empty cache: minutes."""
    pytest.importorskip("ziglang", reason="ziglang is not installed; `make wasm` installs it")
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(tmp_path / "cache"))
    for folder in ("azq/core/include", "azq/core/games", "azq/core/wasm", "azq/nets/native", "ops"):
        shutil.copytree(ROOT / folder, tmp_path / "elsewhere" / folder)
    script = build_script(tmp_path / "elsewhere")
    made = tmp_path / "azq.wasm"
    script.build(made, [sys.executable, *script.ZIG[1:]])
    assert made.read_bytes() == (WEB / "azq.wasm").read_bytes(), "run `make wasm` and commit azq/web/azq.wasm"
