"""A run's name, and its settings in its record: written and read here alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from azq.config import RUN_NAME_PATTERN, RunSections, SelfPlayConfig, dump_run, parse_run
from azq.errors import ConfigError
from azq.wire.messages import RunRecord

PARSED_KEPT = 512  # a look at all runs, several times a second, parses only what changed

S = TypeVar("S", bound=msgspec.Struct)


def record_of(
    run: str, sections: RunSections, directory: str | Path = "", created_ms: int = 0, until: Mapping[str, float] | None = None
) -> RunRecord:
    """The record of a run with these settings."""
    return RunRecord(run, msgspec.json.encode(dump_run(sections)), dict(until or {}), str(directory), created_ms)


def sections_of(record: RunRecord) -> RunSections:
    """The settings that a record carries; raises `ConfigError` naming the run when this azq does not understand them."""
    return _parsed(record.run, record.sections)


@lru_cache(PARSED_KEPT)
def _parsed(run: str, sections: bytes) -> RunSections:
    place = f"settings of run {run!r}"
    try:
        return parse_run(msgspec.json.decode(sections), place)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{place} are not JSON: {error}; create the run again") from None


def plain_sections(record: RunRecord) -> dict[str, Any]:
    """The settings as they are stored, whether this azq understands them or not; {} where they are no JSON object."""
    try:
        return msgspec.json.decode(record.sections, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def known_section(record: RunRecord, name: str, kind: type[S]) -> S:
    """What is known of one section, whatever else is in it; its defaults where it does not parse."""
    try:
        return msgspec.convert(plain_sections(record).get(name, {}), kind)
    except msgspec.ValidationError:
        return kind()


class _SelfPlay(msgspec.Struct):
    max_waiting_games: int = SelfPlayConfig().max_waiting_games


class _Learner(msgspec.Struct):
    lockstep_games: int = 0


def per_version(record: RunRecord) -> int:
    """Games that may be opened for each weight version of a run; 0: any number."""
    return known_section(record, "learner", _Learner).lockstep_games


def max_waiting(record: RunRecord) -> int:
    """Finished games of a run that may wait for its learner before self-play stalls; the default where its settings do not parse."""
    return known_section(record, "selfplay", _SelfPlay).max_waiting_games


def check_run_name(name: str) -> str:
    """The name. Raises `ConfigError` for one that could not be part of keys, folders and job ids."""
    if not re.fullmatch(RUN_NAME_PATTERN, name):
        raise ConfigError(f"run name {name!r} is not lower-case letters, digits, - and _, at most 64; choose another")
    return name
