"""What drills showed: where ledger and disk disagree, the rounds of each drill, and what chaos cost. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from azq.parts.lab.drill.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class Books:
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


def compare(books: Books, disk: Disk) -> Discrepancy:
    """Each game of {1..opened} - open - abandoned has to be on disk, once, and no other."""
    closed = set(range(1, books.opened + 1)) - books.open - books.abandoned.keys()
    return Discrepancy(
        frozenset(closed - disk.games),
        frozenset((uid, copy) for uid, copies in disk.copies.items() for copy in range(1, copies + 1)),
        frozenset(disk.games - closed),
        frozenset(books.abandoned.items()),
    )


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

    def note(self, found: Discrepancy) -> None:
        """Adds what a comparison of ledger and disk showed."""
        self.compared += 1
        self.games_lost += len(found.lost)
        self.games_unexpected += len(found.unexpected)
        self.games_abandoned += found.given_up(self.scenario.abandoned)
        self.duplicates_inserted += len(found.doubled)

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
            "compared": self.compared,
            "games_lost": self.games_lost,
            "games_unexpected": self.games_unexpected,
            "games_abandoned": self.games_abandoned,
            "duplicates_inserted": self.duplicates_inserted,
            "evaluations_resent": self.evaluations_resent,
            "balanced": self.balanced,
            "passed": self.passed(),
            "problem": self.problem(),
            "failed": self.failed,
        }


def as_table(outcomes: Sequence[Outcome]) -> str:
    """A line a drill, and what it hurt."""
    head = f"{'drill':<29}{'hurt':<16}{'rounds':>7}{'median s':>10}{'max s':>8}{'goal s':>8}{'lost':>6}{'twice':>7}{'resent':>8}"
    lines = [f"{head}{'search s':>10}  {'ledger':<11}serving again after s"]
    for values in (outcome.values() for outcome in outcomes):
        serving = ", ".join(f"{role} {seconds:.1f}" for role, seconds in values["serving_s"].items()) or "none was away"
        end = "" if values["passed"] else f"  NOT PASSED: {values['problem']}"
        lines.append(
            f"{values['name']:<29}{values['role']:<16}{values['rounds']:>7}{_seconds(values['recovery_s']):>10}"
            f"{_seconds(values['recovery_max_s']):>8}{values['within_s']:>8g}{values['games_lost']:>6}{values['duplicates_inserted']:>7}"
            f"{values['evaluations_resent']:>8}{_seconds(values['search_lost_s']):>10}"
            f"  {'balanced' if values['balanced'] else 'UNBALANCED':<11}{serving}{end}"
        )
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


@dataclass(frozen=True, slots=True)
class Work:
    """What was done by now: finished games, and simulations of the games learned from."""

    games: int
    simulations: int
    at_s: float

    def rates_since(self, before: Work) -> dict[str, float]:
        """What was done per second."""
        seconds = max(self.at_s - before.at_s, 1e-9)
        return {"games": (self.games - before.games) / seconds, "simulations": (self.simulations - before.simulations) / seconds}


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates per second, undisturbed and in chaos."""

    undisturbed: dict[str, float]
    chaos: dict[str, float]

    @classmethod
    def of(cls, first: Work, second: Work, third: Work) -> Throughput:
        """From the work done at the start, when the chaos began, and at its end."""
        return cls(second.rates_since(first), third.rates_since(second))

    def shares(self) -> dict[str, float]:
        return {name: round(self.chaos[name] / whole, 4) if whole else 0.0 for name, whole in self.undisturbed.items()}

    def values(self) -> dict[str, Any]:
        digits = {"games": 2, "simulations": 1}
        return {
            "throughput_share": self.shares(),
            "undisturbed_per_s": {name: round(rate, digits[name]) for name, rate in self.undisturbed.items()},
            "chaos_per_s": {name: round(rate, digits[name]) for name, rate in self.chaos.items()},
        }

    def as_line(self) -> str:
        before, now, shares = self.undisturbed, self.chaos, self.shares()
        return (
            f"throughput in chaos: {now['games']:.1f} games/s of {before['games']:.1f} undisturbed ({shares['games']:.1%}), "
            f"{now['simulations']:.0f} simulations/s of {before['simulations']:.0f} ({shares['simulations']:.1%})"
        )


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the drills showed; of chaos also its own figures and its line for people."""

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
