"""Fetches the wheels that a machine without network needs to build and run azq: everything but PyTorch, at the versions installed here.

Usage: carry_wheels.py FOLDER [--python 3.12] [--skip NAME ...] [--also NAME ...] [--limit-mb 64]
`--skip` leaves out what the other machine has (numpy, cmake); `--also` adds packages without their
dependencies (pgx, mctx where JAX is there).
`gpu.sh` installs them there. Ends with code 1 when they weigh more than the limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXTRAS = ("embedded",)  # pictures are drawn afterwards, at home: azq bench all --reuse
BUILD = ("cmake", "ninja")  # beside what the build system asks for
TORCH = "torch"
UNUSED = frozenset({"tensorboard"})  # only a learner's process writes to it, and no bench runs one
PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux_2_5_x86_64",
    "linux_x86_64",
)


def wanted(project: Path) -> list[Requirement]:
    """What azq asks for, its build included, without PyTorch."""
    facts = tomllib.loads(project.read_text("utf-8"))
    extras = facts["project"]["optional-dependencies"]
    texts = [
        *facts["build-system"]["requires"],
        *BUILD,
        *facts["project"]["dependencies"],
        *(text for name in EXTRAS for text in extras[name]),
    ]
    return [requirement for requirement in map(Requirement, texts) if requirement.name not in {TORCH, *UNUSED}]


def closure(roots: Iterable[Requirement], python: str, skip: frozenset[str]) -> dict[str, str]:
    """Name and installed version of these and all they need under that Python; SystemExit names what is not installed here."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(requirement, "") for requirement in roots]
    while todo:
        requirement, asked_by = todo.pop()
        name = canonicalize_name(requirement.name)
        asked = name, frozenset(requirement.extras)
        if name in skip or name == TORCH or asked in seen:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise SystemExit(f"{name}, which {asked_by or 'azq'} needs, is not installed here; run `make setup` first") from None
        seen.add(asked)
        found[name] = package.version
        for text in package.requires or ():
            needed = Requirement(text)
            if _applies(needed, requirement.extras, python):
                todo.append((needed, name))
    return dict(sorted(found.items()))


def download(pins: Iterable[str], folder: Path, python: str) -> None:
    """Wheels of these packages alone, for that Python on Linux."""
    abi = "cp" + python.replace(".", "")
    tags = [word for platform in PLATFORMS for word in ("--platform", platform)]
    abis = [word for name in (abi, "abi3", "none") for word in ("--abi", name)]
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary=:all:", "--python-version", python, *tags, *abis]
    subprocess.run([*command, "--implementation", "cp", "-d", str(folder), *pins], check=True)


def _applies(needed: Requirement, extras: set[str], python: str) -> bool:
    if needed.marker is None:
        return True
    environment = {"python_version": python, "python_full_version": f"{python}.99"}
    return any(needed.marker.evaluate({**environment, "extra": extra}) for extra in (*extras, ""))


def main() -> int:
    """Reads the arguments, downloads, weighs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--also", nargs="*", default=[])
    parser.add_argument("--limit-mb", type=float, default=64.0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    pins = closure(wanted(ROOT / "pyproject.toml"), given.python, frozenset(map(canonicalize_name, given.skip)))
    download([*(f"{name}=={version}" for name, version in pins.items()), *given.also], given.folder, given.python)
    sizes = {wheel.name: wheel.stat().st_size / 2**20 for wheel in given.folder.glob("*.whl")}
    for name, size in sorted(sizes.items(), key=lambda pair: -pair[1])[:8]:
        print(f"{size:8.1f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{len(sizes)} wheels, {total:.1f} MiB of {given.limit_mb:.0f}")
    return int(total > given.limit_mb)


if __name__ == "__main__":
    raise SystemExit(main())
