"""How the daemon itself is: what the last tick saw. Written by the loop, read by the REST interface."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from daemon.decide.actions import Condition

REPORT_AFTER_S = 5.0  # a condition is logged once it lasted so long: at a start workers are a moment behind


@dataclass(frozen=True, slots=True)
class HealthRecord:
    """The health of the daemon at one moment; times are those of the monotonic clock."""

    ticks: int = 0
    failed_ticks: int = 0
    last_ok_s: float | None = None  # when a tick went through, broker round trip included
    last_look_s: float | None = None  # when a tick ended, well or not
    error: str = ""  # why the last tick failed; empty when it went through
    reports: Mapping[Condition, float] = field(default_factory=dict)  # since when


class Health:
    """The newest pulse. Replaced whole, so readers in other threads need no lock."""

    def __init__(self) -> None:
        self.pulse = HealthRecord()

    def tick_ok(self, reports: Iterable[Condition], now_s: float | None = None) -> list[Condition]:
        """Notes a tick that went through; returns the conditions that have just lasted long enough to be logged."""
        now = time.monotonic() if now_s is None else now_s
        before = self.pulse
        since = {report: before.reports.get(report, now) for report in reports}
        self.pulse = replace(before, ticks=before.ticks + 1, last_ok_s=now, last_look_s=now, error="", reports=since)
        looked = before.last_look_s if before.last_look_s is not None else now
        return [report for report, start in since.items() if now - start >= REPORT_AFTER_S > looked - start]

    def tick_failed(self, error: str, now_s: float | None = None) -> None:
        """Notes a tick that did not go through."""
        now = time.monotonic() if now_s is None else now_s
        before = self.pulse
        self.pulse = replace(before, ticks=before.ticks + 1, failed_ticks=before.failed_ticks + 1, last_look_s=now, error=error)

    @property
    def status(self) -> str:
        """What the daemon does, in a few words."""
        return f"degraded: {self.pulse.error}" if self.pulse.error else "reconciling"

    def conditions(self, run: str) -> list[str]:
        """What an operator of a run should know."""
        return [str(report) for report in self.pulse.reports if report.run in (run, "")]


def why_not_ready(pulse: HealthRecord, now_s: float, patience_s: float) -> str:
    """Why the daemon does no useful work just now; empty when it does."""
    if pulse.last_ok_s is None:
        return pulse.error or "the first look at the broker is not done yet"
    if pulse.error:
        return pulse.error
    if now_s - pulse.last_ok_s > patience_s:
        return f"no look at the broker for {now_s - pulse.last_ok_s:.0f} s"
    return ""
