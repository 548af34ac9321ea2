"""The steps of an installation or a removal: each can be printed beforehand or carried out."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from azq.errors import ConfigError
from azq.files import publish_file


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """A folder of root's."""

    path: Path
    mode: int

    def __str__(self) -> str:
        return f"make folder {self.path} (mode {self.mode:04o})"


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file; `content` is a function because some hold a password made at that moment."""

    path: Path
    content: Callable[[], str]
    mode: int
    keep: bool = False  # an operator's file is never overwritten
    secret: bool = False

    def __str__(self) -> str:
        notes = [f"mode {self.mode:04o}", "kept if it exists" if self.keep else "", "holds a password" if self.secret else ""]
        return f"write {self.path} ({', '.join(filter(None, notes))})"


@dataclass(frozen=True, slots=True)
class RunCommand:
    command: tuple[str, ...]

    def __str__(self) -> str:
        return f"run {' '.join(self.command)}"


@dataclass(frozen=True, slots=True)
class RemoveFile:
    path: Path

    def __str__(self) -> str:
        return f"remove {self.path}"


Step = MakeFolder | WriteFile | RunCommand | RemoveFile


def carry_out(step: Step) -> str:
    """Does one step and says so; `ConfigError` with the command's own words where it fails."""
    match step:
        case MakeFolder(path, mode):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(mode)
        case WriteFile(path, content, mode, keep, _):
            if keep and path.exists():
                return f"kept {path}"
            path.parent.mkdir(parents=True, exist_ok=True)
            publish_file(path, content().encode(), mode)
        case RunCommand(command):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ConfigError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}; mend that and install again")
        case RemoveFile(path):
            path.unlink(missing_ok=True)
    return str(step)
