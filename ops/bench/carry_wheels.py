"""Fetches and builds the wheels that run azq on a machine without network: all but PyTorch, at the versions installed here, and azq's own.

Usage: carry_wheels.py FOLDER [--python INTERPRETER] [--skip NAME ...] [--also NAME ...]
`--python` is one here of the other machine's version, with which azq's core is compiled (python3.12; from there on one wheel fits all
later versions). `--skip` leaves out what the other machine has, `--also` adds packages without their dependencies (pgx, mctx where JAX is
there; pytest). `gpu_first.py` installs them there.
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
EXTRAS = ("embedded",)  # pictures are drawn afterwards, at home
TORCH = "torch"
PLATFORMS = (*(f"manylinux{of}_x86_64" for of in ("_2_28", "_2_27", "_2_17", "2014", "_2_5")), "linux_x86_64")


def wanted(project: Path) -> list[Requirement]:
    """What azq asks for where it runs, without PyTorch."""
    facts = tomllib.loads(project.read_text("utf-8"))["project"]
    texts = [*facts["dependencies"], *(text for name in EXTRAS for text in facts["optional-dependencies"][name])]
    return [requirement for requirement in map(Requirement, texts) if requirement.name != TORCH]


def closure(roots: Iterable[Requirement], python: str, skip: frozenset[str]) -> dict[str, str]:
    """Name and installed version of these and all they need under that Python; SystemExit names what is not installed here."""
    pins: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(requirement, "") for requirement in roots]
    while todo:
        requirement, wanted_by = todo.pop()
        name = canonicalize_name(requirement.name)
        key = name, frozenset(requirement.extras)
        if name in skip or name == TORCH or key in seen:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise SystemExit(f"{name}, which {wanted_by or 'azq'} needs, is not installed here; run `make setup` first") from None
        seen.add(key)
        pins[name] = package.version
        for text in package.requires or ():
            needed = Requirement(text)
            if _applies(needed, requirement.extras, python):
                todo.append((needed, name))
    return dict(sorted(pins.items()))


def download(pins: Iterable[str], folder: Path, python: str) -> None:
    """Wheels of these packages alone, for that Python on Linux."""
    abi = "cp" + python.replace(".", "")
    tags = [word for platform in PLATFORMS for word in ("--platform", platform)]
    abis = [word for name in (abi, "abi3", "none") for word in ("--abi", name)]
    command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary=:all:", "--python-version", python, *tags, *abis]
    subprocess.run([*command, "--implementation", "cp", "-d", str(folder), *pins], check=True)


def version_of(interpreter: str) -> str:
    """`3.12`; SystemExit where it cannot be run, as a pyenv shim of a version that is not chosen."""
    command = [interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        raise SystemExit(f"--python {interpreter} does not run here; give the path of a Python of the other machine's version") from None


def build(interpreter: str, folder: Path) -> None:
    """azq's own wheel, in place of an earlier one; a minute or several."""
    for stale in folder.glob("azq-*.whl"):
        stale.unlink()
    subprocess.run([interpreter, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder.resolve()), str(ROOT)], check=True)


def _applies(needed: Requirement, extras: set[str], python: str) -> bool:
    if needed.marker is None:
        return True
    environment = {"python_version": python, "python_full_version": f"{python}.99"}
    return any(needed.marker.evaluate({**environment, "extra": extra}) for extra in (*extras, ""))


def main() -> None:
    """Reads the arguments, downloads, builds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--also", nargs="*", default=[])
    given = parser.parse_args()
    python = version_of(given.python)
    given.folder.mkdir(parents=True, exist_ok=True)
    pins = closure(wanted(ROOT / "pyproject.toml"), python, frozenset(map(canonicalize_name, given.skip)))
    download([*(f"{name}=={version}" for name, version in pins.items()), *given.also], given.folder, python)
    build(given.python, given.folder)
    for wheel in sorted(given.folder.glob("*.whl"), key=lambda wheel: -wheel.stat().st_size):
        print(f"{wheel.stat().st_size / 2**20:8.1f} MiB  {wheel.name}")


if __name__ == "__main__":
    main()
