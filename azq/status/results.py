"""Answers of the REST interface about matches, graded positions and the ratings that follow."""

from __future__ import annotations

from msgspec.structs import asdict
from pydantic import BaseModel, Field

from azq.arena.alike import Stranger
from azq.arena.rating import Rating
from azq.arena.scores import Scored
from azq.arena.sprt import SequentialTest
from azq.arena.whole import WholeMatch
from azq.status.schemas import MessageOut


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
        told = {"num_simulations": match.spec.num_simulations, "share": match.score, "of_games": match.spec.of_games}
        return cls.model_validate(asdict(match) | told | {"progress": match.progress, "workers": match.workers})


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


class ArenaOut(BaseModel):
    """Results of a run's evaluation jobs, newest first, and the ratings that follow from all of them."""

    matches: list[MatchOut]
    grades: list[GradeOut]
    ratings: list[Rating]
    scores: list[Scored] = Field(default=[], description="Mean scores of a game for one, the best first; it has no ratings.")
    strangers: list[Stranger] = Field(default=[], description="Workers whose results differ from the others' by more than chance.")
