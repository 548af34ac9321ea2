"""The dead-man timer: whether a machine has been there for too long, or alone, by what is noted on it and nothing else.

Times are seconds of the clock that runs since the machine's start, which no network sets.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from azq.config import BudgetConfig, MachineConfig
from azq.errors import StateConflict
from azq.files import publish_file

BEGAN, HEARD, ASKED = "began", "heard", "end"
UNITS = ("azq-machine.service", "azq-deadman.timer")


@dataclass(frozen=True, slots=True)
class End:
    """Why a machine's azq drains and ends, and whether the machine goes off after it."""

    reason: str
    off: bool = True  # where it has a command for that


def boot_s() -> float:
    """Seconds since this machine's start, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def overdue(machine: MachineConfig, now_s: float, began_s: float, heard_s: float | None) -> str:
    """Why this machine has to end, whatever anybody says; empty where it may go on. `heard_s`: when a daemon was heard of last. Pure."""
    if machine.hours is not None and now_s - began_s >= machine.hours * 3600 + machine.margin_s:
        return f"its {machine.hours:g} hours are over (machine.hours)"
    silent_s = now_s - max(began_s, began_s if heard_s is None else min(heard_s, now_s))
    if machine.lost_after_s and silent_s >= machine.lost_after_s:
        return f"no daemon was heard of for {silent_s:.0f} s (machine.lost_after_s)"
    return ""


def ending_units(machine: MachineConfig, budget: BudgetConfig) -> tuple[str, ...]:
    """The units that are enabled on a machine that something is to end: none where nothing of its settings does. Pure."""
    own = machine.hours is not None or machine.lost_after_s or machine.poweroff_command or machine.metadata_url
    fleets = budget.hours is not None or budget.money is not None or budget.with_runs
    return UNITS if own or fleets else ()


class Notes:
    """What a machine's own processes leave for each other in a folder that its next start finds empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, name: str, at_s: float) -> None:
        publish_file(self.folder / name, f"{at_s:.3f}\n".encode())

    def noted(self, name: str) -> float | None:
        """When that was; None where nobody said, or nobody can read it."""
        with contextlib.suppress(OSError, ValueError):
            return float((self.folder / name).read_text("utf-8"))
        return None

    def look(self, machine: MachineConfig, now_s: float) -> End | None:
        """The timer's own look: the first one begins to count."""
        began_s = self.noted(BEGAN)
        if began_s is None or began_s > now_s:
            self.note(BEGAN, now_s)
            began_s = now_s
        reason = overdue(machine, now_s, began_s, self.noted(HEARD))
        return End(reason) if reason else None

    def ask(self, end: End) -> None:
        """Asks whoever may stop services to end this machine."""
        publish_file(self.folder / ASKED, json.dumps(asdict(end)).encode())

    def asked(self) -> End:
        """Takes what was asked for. Raises `StateConflict` where nothing was."""
        path = self.folder / ASKED
        try:
            end = End(**json.loads(path.read_bytes()))
            path.unlink()
        except (OSError, ValueError, TypeError) as error:
            raise StateConflict(f"nobody asked this machine to end: {path}: {error}") from None
        return end
