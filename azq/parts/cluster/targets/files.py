"""The files that a target makes of a cluster, and how they come into a folder: all of them or none."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from azq.errors import ConfigError, StateConflict
from azq.files import make_folders, publish_file, sync_folder

MANIFEST = ".azq-rendered.json"  # what azq wrote there, by path: the hash of each


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """A file's text, and whether it is a script."""

    text: str
    executable: bool = False

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


Rendering = Mapping[str, RenderedFile]  # by path relative to the folder


def static(folder: str, *, executable: tuple[str, ...] = (".sh",)) -> dict[str, RenderedFile]:
    """The files of a folder beside this module that are the same for every cluster, by their path in it."""
    digest: dict[str, RenderedFile] = {}
    waiting = [("", files("azq.parts.cluster") / "targets" / folder)]
    while waiting:
        above, place = waiting.pop()
        for entry in place.iterdir():
            if entry.is_dir():
                waiting.append((f"{above}{entry.name}/", entry))
            else:
                digest[above + entry.name] = RenderedFile(entry.read_text("utf-8"), entry.name.endswith(executable))
    return dict(sorted(digest.items()))


def filled(folder: str, name: str, /, **values: Any) -> str:
    """A template of a folder beside this module with values as JSON, which is YAML, too; a line whose value is None is left out."""
    text = (files("azq.parts.cluster") / "targets" / folder / name).read_text("utf-8")
    lines = [line for line in text.splitlines(keepends=True) if not any(values[key] is None for key in Template(line).get_identifiers())]
    return Template("".join(lines)).substitute({key: json.dumps(value, ensure_ascii=False) for key, value in values.items()})


def shell_case(function: str, arms: Mapping[str, str]) -> str:
    """A function of bash that does what stands at its first argument."""
    return "\n".join(
        [f"{function}() {{", "    case $1 in", *(f"        {name}) {what} ;;" for name, what in arms.items()), "    esac", "}"]
    )


def write(rendering: Rendering, target: str, folder: Path, *, force: bool = False) -> list[str]:
    """Writes all files; returns the paths that changed, removed ones among them. What others put there stays.

    Raises `StateConflict` for a folder with files that azq did not render, for another target's, and for a rendered file that somebody
    changed since, unless `force`; `ConfigError` where the folder cannot be written.
    """
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            _write_new(rendering, target, folder)
            return list(rendering)
        return _write_again(rendering, target, folder, force)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error}; name another with --out") from None


def _write_new(rendering: Rendering, target: str, folder: Path) -> None:
    make_folders(folder.absolute().parent)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.absolute().parent))
    try:
        _fill(rendering, target, draft)
        draft.chmod(0o755)
        os.replace(draft, folder)  # takes the place of an empty folder, too
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    sync_folder(folder.absolute().parent)


def _write_again(rendering: Rendering, target: str, folder: Path, force: bool) -> list[str]:
    before = _manifest(folder, target)
    there = {name: _hash_of(folder / name) for name in {*before, *rendering}}
    wanted = {name: _hash(file.text) for name, file in rendering.items()}
    # A render that was cut off left some files as they are wanted now.
    edited = sorted(name for name, digest in there.items() if digest and digest not in (before.get(name), wanted.get(name)))
    if edited and not force:
        raise StateConflict(f"{folder}: {', '.join(edited)} changed since azq wrote it; move it away, or lose the changes with --force")
    _fill(rendering, target, folder)
    gone = [name for name in before if name not in rendering and there[name]]
    for name in gone:
        (folder / name).unlink()
    return sorted([*gone, *(name for name, digest in there.items() if name in wanted and digest != wanted[name])])


def _fill(rendering: Rendering, target: str, folder: Path) -> None:
    for name, file in rendering.items():
        make_folders((folder / name).parent)
        publish_file(folder / name, file.text.encode(), file.mode)
    manifest = {"target": target, "files": {name: _hash(file.text) for name, file in sorted(rendering.items())}}
    publish_file(folder / MANIFEST, json.dumps(manifest, indent=1).encode())


def _manifest(folder: Path, target: str) -> dict[str, str]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        kind, hashes = manifest["target"], {str(name): str(digest) for name, digest in manifest["files"].items()}
    except FileNotFoundError:
        raise StateConflict(f"{folder} holds files that azq did not render; name an empty folder with --out") from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise StateConflict(f"{folder / MANIFEST} cannot be read ({error}); name an empty folder with --out") from None
    if kind != target:
        raise StateConflict(f"{folder} was rendered for {kind}, not {target}; name another folder with --out")
    if strange := [name for name in hashes if Path(name).is_absolute() or ".." in Path(name).parts]:
        raise StateConflict(f"{folder / MANIFEST} names {strange[0]!r}, which lies elsewhere; name an empty folder with --out")
    return hashes


def _hash_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()
