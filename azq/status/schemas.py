"""Bodies of the REST interface, with examples."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec.structs import asdict
from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, model_validator
from pydantic_core import core_schema

from azq.arena.players import PATTERN as PLAYER_PATTERN
from azq.config import RUN_NAME_PATTERN, Tag
from azq.config.base import Positive as Count
from azq.ledger.records import plain_sections
from azq.ledger.types import JobState, JobView, RunState, RunView
from azq.status.strength import game_of
from azq.status.summary import NetworkStatus
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Deed, GradeSpec, Job, MatchSpec, Message

Until = dict[Literal["minutes", "games", "steps", "money"], Annotated[float, Field(gt=0, allow_inf_nan=False)]]


def goals(until: Until) -> dict[str, float]:
    """Goals under plain names."""
    return {str(goal): limit for goal, limit in until.items()}


Name = Annotated[str, Field(pattern=RUN_NAME_PATTERN)]
PlayerName = Annotated[str, Field(pattern=PLAYER_PATTERN)]
Positive = Annotated[int, Field(gt=0, le=10_000_000)]
# The words alone: a type that is an enumeration would be a separate schema, with a text for other readers.
JobKind = Annotated[str, GetPydanticSchema(lambda *_: core_schema.literal_schema([kind.value for kind in Kind]))]
VERSION = "[1-9][0-9]{0,8}"
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Body(BaseModel):
    """A request's body; unknown members are errors."""

    model_config = ConfigDict(extra="forbid")


def _examples(*bodies: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


class NewRun(Body):
    """A run to create."""

    model_config = _examples(
        {"name": "first", "sections": {"run": {"game": "connect_four"}}, "until": {"minutes": 30}},
        {"name": "second", "game": "connect_four", "preset": "gpu", "sections": {"search": {"num_simulations": 128}}},
    )

    name: Name
    game: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="With it the settings of this game's preset are the base of `sections`, as with `azq up --game`."
    )
    preset: Literal[""] | Tag = Field(default="", description="A variant of the game's preset, such as `gpu`.")
    sections: dict[str, Any] = Field(
        default={}, description="Run sections as in `azq.toml`: run, search, selfplay, network, learner, arena."
    )
    until: Until = Field(default={}, description="The first goal reached ends the run; empty: it has no end.")
    directory: str = Field(
        default="",
        max_length=4096,
        pattern=r"^[^\x00-\x1f]*$",
        description="A folder below the daemon's home, on the learner's host; empty: that of the run's name there.",
    )

    @model_validator(mode="after")
    def _preset_of_a_game(self) -> NewRun:
        if self.preset and self.game is None:
            raise ValueError("`preset` is a variant of a game's; name the `game` too")
        return self


class RunChange(Body):
    """What changes about a run."""

    model_config = _examples({"until": {"minutes": 60}})

    until: Until = Field(description="Replaces the run's goals, counted from its creation; empty: it has no end.")


class Reason(Body):
    """Why a run is paused or finished."""

    reason: Annotated[str, Field(max_length=500)] = ""


class Resumption(Body):
    """A run to go on; a finished one needs a farther goal, or it ends at once."""

    model_config = _examples({"until": {"minutes": 60}})

    until: Until | None = Field(default=None, description="Replaces the run's goals, counted from its creation; absent: they stay.")


class NewMatch(Body):
    """A match: one seat for `first`, all others for `second`, who are named as in docs/9-arena.md."""

    first: PlayerName
    second: PlayerName
    games: Positive = 40
    num_simulations: Positive = 64
    opening_plies: Annotated[int, Field(ge=0, le=100)] = 4
    seed: Seed = 0


class NewGrade(Body):
    """Positions with known best moves for one set of weights."""

    weight_version: Positive
    positions: Positive = 200
    num_simulations: Positive = 64
    seed: Seed = 0


class NewJob(Body):
    """A job to enqueue."""

    model_config = _examples(
        {"run": "first", "kind": "selfplay", "tag": "cpu", "priority": 6, "games": 512, "slice_s": 60},
        {"run": "first", "kind": "eval", "priority": 3, "match": {"first": "latest", "second": "uct:100", "games": 40}},
    )

    run: Name
    kind: JobKind
    tag: Tag | None = Field(default=None, description="Hardware tag; absent: the run's own.")
    priority: Annotated[int, Field(ge=0, le=9, description="0 is the most urgent.")] = 6
    games: Count | None = Field(default=None, description="Self-play: games in flight; absent: the run's setting.")
    slice_s: Annotated[float, Field(gt=0, le=600)] | None = Field(
        default=None, description="Self-play: seconds; absent: the run's setting."
    )
    match: NewMatch | None = None
    grade: NewGrade | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> NewJob:
        tasks = (self.match is not None) + (self.grade is not None)
        if self.kind == Kind.EVAL and tasks != 1:
            raise ValueError("an eval job has either `match` or `grade`")
        if self.kind == Kind.SELFPLAY and tasks:
            raise ValueError("`match` and `grade` belong to eval jobs")
        if self.kind == Kind.EVAL and (self.games or self.slice_s):
            raise ValueError("`games` and `slice_s` belong to self-play jobs")
        return self

    def job(self, **settled: Any) -> Job:
        """For the ledger: what the request names, with what was settled where it names nothing."""
        given = self.model_dump(include=set(Job.__struct_fields__)) | settled
        return Job(**{"job_id": "", **given, "kind": Kind(self.kind), "payload": self._payload()})

    def _payload(self) -> bytes:
        if self.match is not None:
            return encode(MatchSpec(**self.match.model_dump()))
        return encode(GradeSpec(**self.grade.model_dump())) if self.grade is not None else b""


class PositionAsked(Body):
    """A position where a player is to move: actions from the initial state, outcomes of chance among them, or from that of a notation.

    Where hands are hidden any that fit what the player to move has seen will do: they are drawn again.
    """

    actions: Annotated[list[Annotated[int, Field(ge=0, lt=2**16)]], Field(max_length=4096)] = []
    position: Annotated[str, Field(max_length=4096)] | None = Field(default=None, description="A notation, as `azq move` takes it.")


class MovesAsked(Body):
    """What to play in some positions, and how strongly."""

    model_config = _examples(
        {"positions": [{"actions": [3, 3]}], "num_simulations": 400, "weights": "best"},
        {"positions": [{"position": "7/4x2/4x2/4o2/oo1ox2/oxxxoox x"}], "level": 900},
    )

    positions: Annotated[list[PositionAsked], Field(min_length=1, max_length=64)]
    weights: Literal["latest", "best"] | Positive | Annotated[str, Field(pattern=f"^{VERSION}(,{VERSION}){{1,7}}$")] = Field(
        default="latest", description="A version, `best`: the highest rated, or several, `3,7`: their mean."
    )
    num_simulations: Positive = Field(default=200, description="A position; at most 3,200.")
    temperature: Annotated[float, Field(ge=0, le=10)] = Field(default=0.0, description="0: always the best move.")
    level: Annotated[float, Field(ge=-10_000, le=10_000)] | None = Field(
        default=None, description="An Elo of the run's ratings: the nearest of its levels settles weights, simulations and temperature."
    )
    seed: Seed | None = Field(default=None, description="Of search and temperature; absent: another one each time.")

    @model_validator(mode="after")
    def _one_strength(self) -> MovesAsked:
        if self.level is not None and self.model_fields_set & {"weights", "num_simulations", "temperature"}:
            raise ValueError("`level` settles `weights`, `num_simulations` and `temperature`; leave them out")
        return self


class CandidateOut(BaseModel):
    """A legal move as the search saw it."""

    action: int
    text: str
    visits: int
    share: float = Field(description="Of the search's policy.")
    prior: float = Field(description="What the network alone thinks of it.")
    value: float | None = Field(description="For the player to move, -1 to 1; absent where it was not tried.")


class MoveOut(BaseModel):
    """What is played in one position, and why."""

    player: int
    action: int
    text: str
    value: float = Field(description="Of the position for the player to move, -1 to 1.")
    proven: bool
    candidates: list[CandidateOut] = Field(description="All legal moves, the best first, then by their share.")
    principal_variation: list[int] = Field(description="The best move and what is expected to follow, up to chance or what is hidden.")
    principal_variation_texts: list[str]


class MovesOut(BaseModel):
    """Answers in the order of the positions, all by one weight version."""

    weight_version: int
    num_simulations: int
    temperature: float
    elo: float | None = Field(description="Of the level that was asked for.")
    moves: list[MoveOut]


class MessageOut(BaseModel):
    """Those fields of a message that are named here."""

    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, message: Message) -> Self:
        return cls.model_validate(message)


class RunFigures(BaseModel):
    """How far a run is, and how well it plays."""

    MOST: ClassVar = 60

    games: int
    measure: str = Field(description="What its game is judged by.")
    text: str = Field(description="Its newest value.")
    way: list[float] = Field(description="Its last values by version, the oldest first.")


class RunOut(BaseModel):
    """A run."""

    name: str
    game: str
    state: RunState
    reason: str
    until: dict[str, float]
    active_s: float
    created_ms: int
    directory: str
    sections: dict[str, Any]
    network: NetworkStatus | None = Field(default=None, description="Its size now; only where one run is asked for by name.")
    figures: RunFigures | None = Field(default=None, description="Only in lists with `figures=true`.")

    @classmethod
    def of(cls, view: RunView, network: NetworkStatus | None = None) -> RunOut:
        record = view.record
        named = {"name": record.run, "game": game_of(record), "sections": plain_sections(record)}
        state = {"state": view.state, "reason": view.reason, "active_s": view.active_ms / 1000, "network": network}
        return cls.model_validate(asdict(record) | named | state)


class JobOut(BaseModel):
    """A job as the ledger knows it."""

    job_id: str
    run: str
    kind: str
    tag: str
    priority: int
    state: JobState
    attempt: int
    owner: str
    games: int
    slice_s: float
    created_ms: int
    published_ms: int
    claimed_ms: int
    lease_until_ms: int
    ended_ms: int
    error: str

    @classmethod
    def of(cls, view: JobView) -> JobOut:
        return cls.model_validate(asdict(view.job) | {name: getattr(view, name) for name in JobView.__slots__})


class WeightsOut(MessageOut):
    """One published set of weights."""

    version: int
    sha256: str
    uri: str
    step: int
    published_ms: int
    blocks: int = 0  # of their network, as the next; 0: unknown
    channels: int = 0
    elo: float | None = None  # with its 95 % interval; None: no match of them is among the newest results
    elo_low: float | None = None
    elo_high: float | None = None
    errors: int | None = None  # of the positions that they were graded on; None also where no move of the game can be one
    loss: float | None = None  # mean of their graded moves, in the unit of the graded values, in games that are graded by it
    graded_positions: int = 0
    rated_games: int = 0
    score: float | None = None  # mean of a game for one, with its 95 % interval and games
    score_low: float | None = None
    score_high: float | None = None
    scored_games: int = 0
    served_by: int = 0  # inference workers whose newest of this run they are
    size: int = 0  # bytes; 0: unknown
    serves: bool = False  # self-play follows them
    pinned: bool = False
    state: str = ""  # what became of them last: promoted, rolled_back, candidate, rejected
    opponents: dict[str, int] = {}  # games by opponent, of the newest results


class PromotionOut(MessageOut):
    """What was asked of a run's versions."""

    run: str = ""
    version: int
    deed: Deed
    reason: str
    who: str
    at_ms: int
    serving: int = 0  # the version that serves now


class EventOut(BaseModel):
    """What became of a run; `id` is empty for events that a later reader does not get, such as conditions."""

    id: str
    run: str
    kind: str
    at_ms: int
    about: dict[str, Any]


class AuditOut(MessageOut):
    """Somebody changed something, or tried to."""

    at_ms: int
    who: str = Field(description="The name of a token in the settings, or `user@host` for a command.")
    what: str = Field(description="`POST /v1/runs/first/pause`, or a command such as `azq up`.")
    address: str
    status: int = Field(description="Of the answer; 0 for a command.")
    about: str = Field(description="The run or job that came into being.")
    key: str = Field(description="`Idempotency-Key` or `X-Request-Id` of the request.")


class HealthOut(BaseModel):
    """The daemon itself."""

    status: str
    version: str | None = None  # with a token alone
    ticks: int
    failed_ticks: int


ERROR_URN = "urn:azq:error:"  # before an error's class name, a problem's `type`


class ProblemOut(BaseModel):
    """RFC 9457 problem document."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
