"""What versions were found to be, on this kind of machine: answers of `azq validate --json`, kept in `baselines/`."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import msgspec

from azq.errors import ConfigError
from azq.validate.versions import LockstepVersion


class Baseline(msgspec.Struct, frozen=True):
    """The part of a report that another run is compared with."""

    game: str
    machine: str
    settings: str  # fingerprint
    passed: bool
    versions: list[LockstepVersion]


def machine_kind() -> str:
    """What rounding depends on: the CPU's kind, what torch makes of it, torch's version, and the precision."""
    import torch

    path = Path("/proc/cpuinfo")
    lines = [line.partition(":") for line in (path.read_text("utf-8", "replace") if path.is_file() else "").splitlines()]
    facts = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    cpu = "-".join(facts.get(name, "?") for name in ("vendor_id", "cpu family", "model"))
    return f"{platform.machine()} {cpu} {torch.backends.cpu.get_cpu_capability()} torch-{torch.__version__.partition('+')[0]} float32"


def kept_baseline(game: str, machine: str, settings: str) -> Baseline | str:
    """The one in the repository, or why there is none."""
    there = [one for one in _kept() if one.game == game]
    ours = [one for one in there if one.machine == machine]
    fitting = [one for one in ours if one.settings == settings]
    if fitting:
        return fitting[0]
    return f"none of {game} with these settings" if ours else f"none of {game} on this kind of machine ({machine})"


def read_baseline(path: Path, game: str, machine: str, settings: str) -> Baseline:
    """One in a file; `ConfigError` where that does not fit this run."""
    try:
        found = _read(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"baseline {path} cannot be read: {error.strerror}; `azq validate --json` writes one") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"baseline {path} is no answer of `azq validate --json`: {error}") from None
    for what, theirs, ours in (("game", found.game, game), ("machine", found.machine, machine), ("settings", found.settings, settings)):
        if theirs != ours:
            remedy = "leave --baseline out, or make one here: azq validate --json > FILE"
            raise ConfigError(f"baseline {path} is of another {what} ({theirs}, not {ours}); {remedy}")
    return found


def _kept() -> Iterator[Baseline]:
    for file in (resources.files("azq.validate") / "baselines").iterdir():
        if file.name.endswith(".json"):
            yield _read(file.read_bytes())


def _read(data: bytes) -> Baseline:
    return msgspec.json.decode(data, type=Baseline)
