"""What a check shows: one type for `azq doctor`, `azq games check`, the checks before a join and those of a cluster's file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Change:
    """One setting, called as in `azq.toml`, and what to try."""

    key: str
    now: Any
    value: Any

    def __str__(self) -> str:
        return f"set {self.key} = {self.value} (now {self.now})"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; evidence that is not ok names the remedy, or `setting` is it."""

    rule: str  # what was checked: a part of a fleet, or the place in a file
    severity: Severity
    evidence: str
    setting: Change | None = None
    history: tuple[int, ...] = ()  # of a game's rule: the actions that led to where it is broken

    def __str__(self) -> str:
        return f"{self.severity:<5}{self.rule:<10} {self.evidence}" + (f"; {self.setting}" if self.setting else "")

    def values(self) -> dict[str, str]:
        """For machines, by the public names."""
        return {"name": self.rule, "verdict": self.severity, "detail": self.evidence}


def conclusion(findings: Sequence[Finding]) -> str:
    """The answer in one line: how many checks passed, and the names of the others."""
    counts = Counter(finding.severity for finding in findings)
    if counts["ok"] == len(findings):
        return f"All {len(findings)} checks passed."
    parts = [f"{counts['ok']} passed"]
    for severity, word in (("fail", "failed"), ("warn", "with a warning")):
        if names := [finding.rule for finding in findings if finding.severity == severity]:
            parts.append(f"{len(names)} {word} ({', '.join(names)})")
    return f"{len(findings)} checks: {', '.join(parts)}."
