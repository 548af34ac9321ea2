"""Answers of the REST interface about matches, grades and ratings, and what a study found so far, as `azq sweep` tells it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import asdict
from pydantic import BaseModel, ConfigDict, Field

from azq.bus.base import Bus
from azq.clock import now_ms
from azq.errors import NotFound
from azq.ratings.elo import Rating, Scored
from azq.ratings.matches import WholeMatch
from azq.ratings.outliers import Outlier
from azq.stats import SequentialTest
from azq.status.schemas import MessageOut
from azq.status.strength import TOO_FEW, Trends
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.machines import StudyRecord
from azq.wire.messages import WeightEvent


class MatchOut(BaseModel):
    """A match, seen from the first player."""

    first: str
    second: str
    wins: int
    draws: int
    losses: int
    num_simulations: int
    finished_ms: int
    seats: int
    share: float
    points: float
    points_se: float
    error: str
    second_points: float = Field(
        default=0.0, description="Of a game for one (`seats` 1): the second player's mean score; `points` is the first's."
    )
    second_points_se: float = 0.0
    gap_se: float = Field(default=0.0, description="Standard error of the difference of both, game by game with the same luck.")
    of_games: int = Field(default=0, description="That it should have, where it is played in parts; 0: it has all.")
    test: SequentialTest | None = Field(default=None, description="What a sequential test tells so far, where `arena.sprt` asks for one.")
    progress: str = Field(default="", description="Both in words: `412 of 1000, LLR 1.20 in [-2.94, 2.94]`.")
    workers: dict[str, int] = Field(default={}, description="Games that each worker played, `<host>:<pid>`.")

    @classmethod
    def of(cls, match: WholeMatch) -> MatchOut:
        values = {"num_simulations": match.spec.num_simulations, "share": match.score, "of_games": match.spec.of_games}
        return cls.model_validate(asdict(match) | values | {"progress": match.progress, "workers": match.workers})


class GradeOut(MessageOut):
    """Moves graded against known best ones."""

    weight_version: int
    num_simulations: int
    positions: int
    errors: int
    by_class: dict[str, tuple[int, int]]
    finished_ms: int
    mean_loss: float
    loss_by_class: dict[str, float]


class TrendPoint(BaseModel):
    """A measure of one weight version; `low` and `high` bound its 95 % interval, where it has one."""

    version: int
    at_ms: int = Field(description="When the version was published.")
    value: float
    low: float | None
    high: float | None


def trends_out(trends: Trends, weights: Iterable[WeightEvent]) -> dict[str, list[TrendPoint]]:
    """Points of every measure, the oldest first, without those of too few games and of versions that are not remembered."""
    published = {event.version: event.published_ms for event in weights}
    return {
        kind: [
            TrendPoint(version=measure.version, at_ms=published[measure.version], value=measure.value, low=measure.low, high=measure.high)
            for measure in values
            if measure.version in published and measure.value is not None and measure.text != TOO_FEW
        ]
        for kind, values in trends.items()
    }


class ArenaOut(BaseModel):
    """Results of a run's evaluation jobs, newest first, and the ratings that follow from all of them."""

    matches: list[MatchOut]
    grades: list[GradeOut]
    ratings: list[Rating]
    scores: list[Scored] = Field(default=[], description="Mean scores of a game for one, the best first; it has no ratings.")
    strangers: list[Outlier] = Field(default=[], description="Workers whose results differ from the others' by more than chance.")
    headline: str = Field(default="", description="The measure that its game is judged by first.")
    trends: dict[str, list[TrendPoint]] = Field(default={}, description="Each measure by version, the oldest first.")


KEPT_S = 30 * 24 * 3600  # from the last word of its sweep
MOST_TRIALS = 1000  # in a report: the newest

Scalar = bool | int | float | str


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrialReport(_Report):
    """A trial; without a value nothing was measured yet."""

    number: int
    state: str = Field(max_length=20)
    value: float | None = None
    settings: dict[str, Scalar] = {}


class StudyReport(_Report):
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


def keep_study(bus: Bus, report: StudyReport) -> None:
    """Keeps a report in place of the study's last one."""
    at_ms = now_ms()
    stamped = report.model_copy(update={"sent_ms": at_ms})
    bus.put(keys.study(report.study), encode(StudyRecord(report.study, stamped.model_dump_json().encode(), at_ms)), life_s=KEPT_S)


def kept_study(bus: Bus, name: str) -> StudyReport:
    """Raises `NotFound`."""
    frame = bus.get(keys.study(name))
    if frame is None:
        raise NotFound(f"no study {name} is known here; `azq sweep FILE --url` tells this daemon of one")
    return _study_of(frame)


def known_studies(bus: Bus) -> list[StudyReport]:
    """All studies that are kept, the newest word first."""
    return sorted(map(_study_of, bus.values(keys.STUDY_PREFIX).values()), key=lambda report: -report.sent_ms)


def _study_of(frame: bytes) -> StudyReport:
    return StudyReport.model_validate(msgspec.json.decode(decode(frame, StudyRecord).report))
