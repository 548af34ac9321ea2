"""What is to be installed, out of pyproject.toml and of the lock.

Usage: requirements.py direct [extra ...]    direct requirements, one a line: the project's own, the named extras, the `dev` group
       requirements.py group NAME            those of a dependency group alone
       requirements.py torch                 PyTorch as the package index has it
       requirements.py torch-cpu [wheel ...]  PyTorch's CPU builds with the hashes that the lock before has, and those of these wheels
       requirements.py strangers [extra ...] packages that are installed here and that azq, with these extras, does not run with
       requirements.py locked                all that the lock names beside PyTorch, for the build of PyTorch that is installed here
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "constraints.txt"
CPU_LOCK = ROOT / "ops" / "locks" / "torch-cpu.txt"
CUDA = ("cuda-", "nvidia-", "triton")  # names of what only the CUDA builds of PyTorch need: gigabytes


def direct(extras: list[str]) -> list[str]:
    """Direct requirements in the order of the file."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = data["project"]
    optional = [line for extra in extras for line in project["optional-dependencies"][extra]]
    return [*project["dependencies"], *optional, *data["dependency-groups"]["dev"]]


def group(name: str) -> list[str]:
    """A dependency group's requirements."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return [str(line) for line in data["dependency-groups"][name]]


def entries(lock: str) -> list[str]:
    """The lock's requirements, each with its hashes in the lines behind it."""
    return [entry.rstrip() for entry in re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE) if entry[:1].isalpha()]


def locked(lock: str, torch_needs: Iterable[str]) -> list[str]:
    """The lock without PyTorch itself, and without what the installed build of it does not ask for."""
    cuda = any(need.startswith(CUDA) for need in torch_needs)
    return [entry for entry in entries(lock) if not entry.startswith("torch==") and (cuda or not entry.startswith(CUDA))]


def torch(lock: str) -> str:
    """PyTorch as the package index has it."""
    (found,) = (entry for entry in entries(lock) if entry.startswith("torch=="))
    return found


def torch_cpu(lock: str, before: str, wheels: Iterable[bytes]) -> str:
    """PyTorch's CPU builds, which the index does not have: hashes of the lock before while the version is the same, and of these wheels."""
    version = torch(lock).split()[0] + "+cpu"
    known = {*(hashes(before) if before.startswith(version + " ") else ()), *map(_sha256, wheels)}
    return " \\\n    ".join([version, *(f"--hash=sha256:{digest}" for digest in sorted(known))])


def hashes(entry: str) -> list[str]:
    """The digests that an entry names."""
    return re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)


def closure(names: Iterable[str], needs: Callable[[str], Iterable[str]]) -> set[str]:
    """These packages and all that they need, by what each one says it needs itself."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += needs(name)
    return found


def strangers(extras: list[str]) -> list[str]:
    """Installed packages that azq, with these extras, does not run with."""
    installed = {canonical(found.name): found for found in metadata.distributions()}
    keys = [canonical("azq"), *(f"{canonical('azq')}[{extra}]" for extra in extras)]
    used = closure(keys, lambda key: _needs(installed, key))
    return sorted(name for name in installed if name not in {key.partition("[")[0] for key in used} | {"pip"})


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _needs(installed: dict[str, metadata.Distribution], key: str) -> list[str]:
    """What a package, or `package[extra]`, needs on this machine."""
    from pip._vendor.packaging.requirements import Requirement

    name, _, extra = key.rstrip("]").partition("[")
    found: list[str] = []
    for line in (installed[name].requires or []) if name in installed else []:
        need = Requirement(line)
        if need.marker is None or need.marker.evaluate({"extra": extra}):
            found += [canonical(need.name), *(f"{canonical(need.name)}[{more}]" for more in need.extras)]
    return found


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(what: str, names: list[str]) -> str:
    """The text that was asked for."""
    if what == "direct":
        return "\n".join(direct(names))
    if what == "group":
        return "\n".join(group(*names))
    if what == "strangers":
        return "\n".join(strangers(names))
    lock = LOCK.read_text("utf-8")
    if what == "torch":
        return torch(lock)
    if what == "torch-cpu":
        before = CPU_LOCK.read_text("utf-8") if CPU_LOCK.exists() else ""
        return torch_cpu(lock, before, (Path(name).read_bytes() for name in names))
    return "\n".join(locked(lock, metadata.requires("torch") or ()))


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2:]))
