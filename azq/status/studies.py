"""What a study found so far, as `azq sweep` tells it and the daemon keeps it for its pages."""

from __future__ import annotations

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from azq.bus.base import Bus
from azq.clock import now_ms
from azq.errors import NotFound
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.machines import StudyRecord

KEPT_S = 30 * 24 * 3600  # from the last word of its sweep
MOST_TRIALS = 1000  # in a report: the newest

Scalar = bool | int | float | str


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrialReport(_Told):
    """A trial; without a value nothing was measured yet."""

    number: int
    state: str = Field(max_length=20)
    value: float | None = None
    settings: dict[str, Scalar] = {}


class StudyReport(_Told):
    """A study: its newest trials in order, the best whole one, each setting's share of what varies."""

    study: str = Field(max_length=40)
    game: str = Field(max_length=200)
    metric: str = Field(max_length=20)
    best: TrialReport | None = None
    importances: dict[str, float] = {}
    trials: list[TrialReport] = Field(default=[], max_length=MOST_TRIALS)
    until: str = Field(default="", max_length=100)
    upwards: bool = False  # more is better
    log: list[str] = []  # settings that are as likely in each power of ten
    sent_ms: int = 0


def keep(bus: Bus, report: StudyReport) -> None:
    """Keeps a report in place of the study's last one."""
    at_ms = now_ms()
    stamped = report.model_copy(update={"sent_ms": at_ms})
    bus.put(keys.study(report.study), encode(StudyRecord(report.study, stamped.model_dump_json().encode(), at_ms)), life_s=KEPT_S)


def kept(bus: Bus, name: str) -> StudyReport:
    """Raises `NotFound`."""
    frame = bus.get(keys.study(name))
    if frame is None:
        raise NotFound(f"no study {name} is known here; `azq sweep FILE --url` tells this daemon of one")
    return _read(frame)


def known(bus: Bus) -> list[StudyReport]:
    """All studies that are kept, the newest word first."""
    return sorted(map(_read, bus.values(keys.STUDY_PREFIX).values()), key=lambda report: -report.sent_ms)


def _read(frame: bytes) -> StudyReport:
    return StudyReport.model_validate(msgspec.json.decode(decode(frame, StudyRecord).report))
