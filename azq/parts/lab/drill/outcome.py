"""What drills showed: where ledger and disk disagree, and the rounds of each drill. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from azq.console.table import tabled
from azq.parts.lab.drill.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class LedgerAccount:
    """The ledger's account of every game by its number; what is neither open nor abandoned has to be in the log."""

    opened: int
    open: Set[int] = frozenset()
    abandoned: Mapping[int, str] = field(default_factory=dict)  # number -> reason


@dataclass(frozen=True, slots=True)
class Disk:
    """The games of the segment log."""

    games: Set[int] = frozenset()
    copies: Mapping[int, int] = field(default_factory=dict)  # number -> how often it is there beyond the first time


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """Where ledger and disk disagree, and the games that were given up."""

    lost: frozenset[int] = frozenset()  # closed by the ledger's word, and not on disk
    doubled: frozenset[tuple[int, int]] = frozenset()  # (number, which copy) for each copy too many
    unexpected: frozenset[int] = frozenset()  # on disk, though open, abandoned or never opened
    abandoned: frozenset[tuple[int, str]] = frozenset()

    def since(self, before: Discrepancy) -> Discrepancy:
        """What was not found before."""
        return Discrepancy(
            self.lost - before.lost, self.doubled - before.doubled, self.unexpected - before.unexpected, self.abandoned - before.abandoned
        )

    def given_up(self, allowed: str) -> int:
        """Games abandoned for another reason than one that holds `allowed`; all of them where that is empty."""
        return sum(not allowed or allowed not in reason for _, reason in self.abandoned)


def compare(account: LedgerAccount, disk: Disk) -> Discrepancy:
    """Each game of {1..opened} - open - abandoned has to be on disk, once, and no other."""
    closed = set(range(1, account.opened + 1)) - account.open - account.abandoned.keys()
    return Discrepancy(
        frozenset(closed - disk.games),
        frozenset((uid, copy) for uid, copies in disk.copies.items() for copy in range(1, copies + 1)),
        frozenset(disk.games - closed),
        frozenset(account.abandoned.items()),
    )


#: figures of an outcome that its values have as they are
COUNTED = ("compared", "games_lost", "games_unexpected", "games_abandoned", "duplicates_inserted", "evaluations_resent", "balanced")
LATE_S = 0.25  # a journal write may come so late: it waits for the step that is being searched


@dataclass(slots=True)
class Outcome:
    """The rounds of one drill; recovery is from the fault, or from the end of one that lasts, until games were learned from again."""

    scenario: Scenario
    journal_s: float = 0.0  # the longest time between two journal writes
    patience: float = 1.0  # times the bounds on time
    recovery_s: list[float] = field(default_factory=list)
    pause_s: list[float] = field(default_factory=list)  # longest time without a game learned from
    serving_s: dict[str, list[float]] = field(default_factory=dict)  # when each role that was away served again
    search_lost_s: list[float] = field(default_factory=list)
    compared: int = 0  # times that ledger and disk were compared
    games_lost: int = 0
    games_unexpected: int = 0
    games_abandoned: int = 0  # for no reason that the scenario gives
    duplicates_inserted: int = 0
    evaluations_resent: int = 0
    balanced: bool = True
    failed: str = ""

    def add(self, discrepancy: Discrepancy) -> None:
        """Adds what a comparison of ledger and disk showed."""
        self.compared += 1
        self.games_lost += len(discrepancy.lost)
        self.games_unexpected += len(discrepancy.unexpected)
        self.games_abandoned += discrepancy.given_up(self.scenario.abandoned)
        self.duplicates_inserted += len(discrepancy.doubled)

    def add_serving(self, serving_s: Mapping[str, float], healed_s: float) -> None:
        """Adds when each role that was away in a round served again; the one that was hurt not before it had healed."""
        for role, seconds in serving_s.items():
            self.serving_s.setdefault(role, []).append(max(healed_s, seconds) if role == self.scenario.role else seconds)

    def passed(self) -> bool:
        """Nothing lost, nothing twice, nothing given up, and back in time (median)."""
        return not self.problem()

    def problem(self) -> str:
        """Why the drill has not passed; empty where it has."""
        return "; ".join(what for what, is_so in {**self._games(), **self._times()}.items() if is_so)

    def _games(self) -> dict[str, bool]:
        return {
            self.failed: bool(self.failed),
            "no round was made": not self.recovery_s and not self.failed,
            "ledger and disk were never compared": not self.compared and not self.failed,
            "the ledger does not balance": not self.balanced,
            f"{self.games_lost} games lost": bool(self.games_lost),
            f"{self.duplicates_inserted} games stored twice": bool(self.duplicates_inserted),
            f"{self.games_unexpected} games on disk that the ledger has not closed": bool(self.games_unexpected),
            f"{self.games_abandoned} games abandoned": bool(self.games_abandoned),
        }

    def _times(self) -> dict[str, bool]:
        scenario, patience = self.scenario, self.patience
        late_s, pause_s = max(self.search_lost_s, default=0.0), max(self.pause_s, default=0.0)
        return {
            f"back later than {scenario.within_s:g} s": statistics.median(self.recovery_s or [0.0]) > patience * scenario.within_s,
            f"{late_s:.2f} s of search lost, journaled every {self.journal_s:g} s": late_s > patience * (self.journal_s + LATE_S),
            f"no game learned from for {pause_s:.1f} s": pause_s > patience * scenario.pause_within_s,
            "search lost was not measured": scenario.loses_search and len(self.search_lost_s) < len(self.recovery_s),
        }

    def values(self) -> dict[str, Any]:
        times = self.recovery_s
        return {
            "name": self.scenario.name,
            "role": self.scenario.role,
            "fault": self.scenario.fault,
            "rounds": len(times),
            "recovery_s": round(statistics.median(times), 3) if times else None,
            "recovery_max_s": round(max(times), 3) if times else None,
            "within_s": self.scenario.within_s,
            "serving_s": {role: round(statistics.median(seconds), 3) for role, seconds in sorted(self.serving_s.items())},
            "pause_s": round(max(self.pause_s), 3) if self.pause_s else None,
            "search_lost_s": round(max(self.search_lost_s), 3) if self.search_lost_s else None,
            "pause_within_s": self.scenario.pause_within_s,
            **{name: getattr(self, name) for name in COUNTED},
            "passed": self.passed(),
            "problem": self.problem(),
            "failed": self.failed,
        }


FIGURES = {  # heading -> key of an outcome's values
    "#rounds": "rounds",
    "#median s": "recovery_s",
    "#max s": "recovery_max_s",
    "#goal s": "within_s",
    "#lost": "games_lost",
    "#twice": "duplicates_inserted",
    "#resent": "evaluations_resent",
    "#search s": "search_lost_s",
}


def as_table(outcomes: Sequence[Outcome]) -> str:
    """A line a drill."""
    return "\n".join(tabled(map(_row, outcomes), "drill", "hurt", *FIGURES, "ledger", "serving again after s"))


def _row(outcome: Outcome) -> list[object]:
    values = outcome.values()
    serving = ", ".join(f"{role} {seconds:.1f}" for role, seconds in values["serving_s"].items()) or "none was away"
    end = "" if values["passed"] else f"  NOT PASSED: {values['problem']}"
    figures = ("-" if values[key] is None else f"{values[key]:.4g}" for key in FIGURES.values())
    return [values["name"], values["role"], *figures, "balanced" if values["balanced"] else "UNBALANCED", serving + end]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the drills showed; for chaos also its figures and its line of text."""

    outcomes: list[Outcome]
    figures: dict[str, Any] = field(default_factory=dict)
    line: str = ""

    def passed(self) -> bool:
        """Whether every drill passed."""
        return all(outcome.passed() for outcome in self.outcomes)

    def values(self) -> dict[str, Any]:
        return {"drills": [outcome.values() for outcome in self.outcomes], **self.figures}

    def as_text(self) -> str:
        return f"{as_table(self.outcomes)}\n{self.line}".rstrip()
