"""A choice as a settings file: a new one, or one of the user's with his comments and everything else as it was."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from azq.config.loading import merge, to_toml
from azq.errors import ConfigError
from azq.files import publish_file

Changes = Mapping[str, Mapping[str, Any]]


def write_new(path: Path, changes: Changes, about: str) -> None:
    """Writes a file of these settings alone, which begins with what it is. Whole or not at all; raises `ConfigError`."""
    _publish(path, f"# {about}\n{to_toml(changes)}")


def update(path: Path, changes: Changes) -> None:
    """Puts these settings into a file. Whole or not at all; raises `ConfigError` where it cannot be read, changed or written."""
    _publish(path, with_values(_read(path), changes, path))


def check_writable(new: Path | None, old: Path | None) -> None:
    """Raises `ConfigError` for files that could not be written at the end of a long measurement."""
    if old is not None:
        with_values(_read(old), {}, old)
    folder = new.absolute().parent if new else None
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"there is no folder {folder} for {new}; make it, or name another file")


def with_values(text: str, changes: Changes, source: object = "settings") -> str:
    """The text with these values of its sections in place, and all else as it was. Raises `ConfigError` where lines alone cannot do it."""
    old = _parsed(text, source)
    lines = text.splitlines()
    for section, values in changes.items():
        for key, value in values.items():
            lines = _with_value(lines, section, key, to_toml({key: value}).strip())
    new = "\n".join(lines) + "\n"
    if not _says(new, merge(old, changes)):
        names = ", ".join(f"{section}.{key}" for section, values in changes.items() for key in values)
        raise ConfigError(f"{source} is written in a way that azq does not edit; set {names} there by hand, or use --out")
    return new


def _with_value(lines: list[str], section: str, key: str, line: str) -> list[str]:
    """Lines with one line changed, or added at the begin of its section, which is added at the end where there is none."""
    header = re.compile(rf"\s*\[\s*{section}\s*\]\s*(#.*)?")
    begin = next((number for number, each in enumerate(lines) if header.fullmatch(each)), None)
    if begin is None:
        return [*lines, *([""] if lines else []), f"[{section}]", line]
    end = next((number for number in range(begin + 1, len(lines)) if lines[number].lstrip().startswith("[")), len(lines))
    for number in range(begin + 1, end):
        if found := re.fullmatch(rf"(\s*){key}\s*=[^#\"']*?(\s*#.*)?", lines[number]):
            return [*lines[:number], f"{found[1]}{line}{found[2] or ''}", *lines[number + 1 :]]
    return [*lines[: begin + 1], line, *lines[begin + 1 :]]


def _says(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _parsed(text: str, source: object) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not readable TOML: {error}; mend the file") from None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; name a settings file that is there, or use --out") from None


def _publish(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    try:
        publish_file(path, text.encode(), mode)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}; name another file") from None
