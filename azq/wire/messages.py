"""Every message that crosses a process boundary: frozen structs, written by machines, msgpack on the wire.

Letters: L leaves, P bytes of a packed observation, A actions, V values per leaf, T plies.
Arrays travel as raw little-endian bytes; their shapes follow from the counts beside them.
`SCHEMA` changes whenever a field changes meaning or frames look different; `azq.wire.codec` writes that and reads `READABLE`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from azq.wire.kinds import Kind

SCHEMA = 3
DENSE = 2  # records with whole policies alone
UNCHECKED = 1  # frames without a checksum, of the same messages: those of older azqs, and those that scripts on the server write
READABLE = (UNCHECKED, DENSE, SCHEMA)
LATEST = 0  # weight version that asks for the one that serves: the newest, or whichever `PromotionEvent` names
BROWSER_PREFIX = "browser:"  # of a sample's worker that is a contributor's browser; his id follows


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all messages; the codec writes `[SCHEMA, checksum, body]`."""


class EvalRequest(Message, frozen=True):
    """Leaves to evaluate, one message per half-batch."""

    request_id: int
    client: str  # replies go to the reply list of this name
    weight_version: int  # LATEST, or pinned for a match
    count: int  # L
    packed: bytes  # uint8 (L, P)
    sent_ms: int  # sender's clock, for latency metrics only
    sends: int = 1  # how often it was sent, this time included
    legal: bytes = b""  # bits (L, ceil(A / 8)), little-endian, of the actions whose logits are wanted; empty: all


class EvalReply(Message, frozen=True):
    """Evaluations in the request's order, or a named failure."""

    request_id: int
    weight_version: int
    count: int  # L
    logits: bytes  # float16 (L, A), or only those wanted, leaf after leaf
    values: bytes  # float16 (L, V)
    error: str = ""
    final: bool = False  # with an error: do not retry: no worker can answer this


class GameRecord(Message, frozen=True):
    """A game in flight, as any worker can adopt it."""

    uid: int  # number of the game in its run, from 1
    actions: bytes = b""  # uint16 (T,)
    policies: bytes = b""  # float16 (T, A), or of them what `support` names
    root_values: bytes = b""  # float32 (T, V)
    simulations: bytes = b""  # uint16 (T,)
    weight_versions: bytes = b""  # uint32 (T,)
    support: bytes = b""  # bits (T, ceil(A / 8)), little-endian, of the actions whose entries are in `policies`; empty: all


class SampleEvent(Message, frozen=True):
    """A finished game."""

    record: GameRecord
    returns: tuple[float, ...]
    worker: str
    finished_ms: int
    luck: int = 0  # number that a gateway had its random numbers drawn by; 0: the game's own


class WeightEvent(Message, frozen=True):
    """New weights: immutable, named by hash, monotone version."""

    run: str
    version: int  # from 1
    sha256: str
    uri: str
    step: int
    published_ms: int
    blocks: int = 0  # of the network they are for; 0: older weights, whose event does not say
    channels: int = 0
    samples_sha256: str = ""  # in lockstep: of the samples that were new since the version before, in no order
    order_sha256: str = ""  # and of the batches that were drawn since then, one after the other
    size: int = 0  # bytes; 0: older weights, whose event does not say
    samples: int = 0  # in the log when they were published; 0: none, or older weights, whose event does not say


Deed = Literal["promoted", "rolled_back", "pinned", "unpinned", "candidate", "rejected"]


class PromotionEvent(Message, frozen=True):
    """Something became of a version: it serves from now on, or is tried against the one that serves, or was not good enough."""

    version: int  # of what was unpinned, the one that was pinned
    deed: Deed  # the last pin goes before whatever is promoted, until it is taken back
    reason: str
    who: str  # a token's name, or "daemon"
    at_ms: int


class ModelEvent(Message, frozen=True):
    """Weights as a network that browsers run, and what it answers on L positions of the game."""

    version: int
    sha256: str
    uri: str
    size: int  # bytes
    positions: bytes  # uint8 (L, P)
    logits: bytes  # float32 (L, A)
    values: bytes  # float32 (L, V)
    tolerance: float  # of each number, absolute


class Job(Message, frozen=True):
    """A unit of queued work; `payload` is the encoded `MatchSpec` or `GradeSpec` of an eval job."""

    job_id: str  # "<run>:<number>"; empty until the ledger has given it one
    run: str
    kind: Kind
    tag: str
    priority: int = 6  # 0 most urgent, 9 least
    games: int = 0
    slice_s: float = 0.0
    payload: bytes = b""
    stall_s: float = 0.0  # how long in all its slice may wait for the limiter, or for first weights, before it gives games and slot back

    @property
    def queue(self) -> str:
        """The Celery queue that it waits in, also where its tag is malformed and none carries it."""
        return f"{self.kind}.{self.tag}"


class MatchSpec(Message, frozen=True):
    """Two players, named as in `azq.arena.players`; groups of games that share their luck, `first` once in every seat."""

    first: str
    second: str
    games: int
    num_simulations: int
    opening_plies: int
    seed: int
    first_game: int = 0  # of a part: its first game's place in the whole match, of `of_games`; both rounded up to whole groups
    of_games: int = 0  # 0: a whole match
    sprt: tuple[float, ...] = ()  # elo0, elo1, alpha, beta of the test that may end the whole match early
    trial: bool = False  # of a candidate for promotion against the best


class GradeSpec(Message, frozen=True):
    """Moves of one set of weights on positions whose best moves are known."""

    weight_version: int
    positions: int
    num_simulations: int
    seed: int


class MatchResult(Message, frozen=True):
    """Seen from the first player."""

    spec: MatchSpec
    first: str  # players with `latest` resolved to a version
    second: str
    wins: int  # with more than two seats: games with the best result alone, shared, and neither
    draws: int
    losses: int
    finished_ms: int
    seats: int = 2  # the second player took all but one; 1: a game for one, which each played with the same luck, won by the higher score
    share: float = 0.0  # mean share of first place: 1, 1/k where k share it, 0
    points: float = 0.0  # mean result a game in the game's unit (backgammon: points; for one player: the mean score)
    points_se: float = 0.0  # its standard error; 0 where there are too few games to tell
    error: str = ""  # why there was no match: the engine that failed, where, and what to do
    worker: str = ""  # who played it, "<host>:<pid>"; empty: browsers' tabs, or an older azq
    second_points: float = 0.0  # of a game for one: the second player's mean score, and its standard error
    second_points_se: float = 0.0
    gap_se: float = 0.0  # of the difference of both, game by game with the same luck

    @property
    def games(self) -> int:
        """Games played; 0 where an engine's failure ended the match."""
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """The first player's share of the points: draws as a half, a shared first place by its share; 0 without games."""
        return self.share if self.seats > 2 else (self.wins + self.draws / 2) / max(1, self.games)


class GradeResult(Message, frozen=True):
    """How many of the graded moves lost a result class, and how much the moves lost."""

    weight_version: int
    num_simulations: int
    positions: int
    errors: int
    finished_ms: int
    by_class: dict[str, tuple[int, int]] = {}  # class name -> (errors, positions)
    mean_loss: float = 0.0  # in the unit of the graded values
    loss_by_class: dict[str, float] = {}  # class name -> mean loss
    marks: bytes = b""  # an `azq.ratings.positions.PositionMark` of each of the game's positions


class RunEvent(Message, frozen=True):
    """Something became of a run or of one of its jobs; written in the same step as the change itself."""

    # "run.<state>", "run.restored", "job.queued", "job.leased", "job.requeued", "job.<final state>", "game.set_aside", "ledger.mended"
    kind: str
    at_ms: int
    about: dict[str, str]  # what it concerns: job, kind, tag, attempt, owner, error, reason


class AuditLine(Message, frozen=True):
    """Somebody changed something, or tried to."""

    at_ms: int
    who: str  # name of a token in the settings, or a user of this machine with his host
    what: str  # "POST /v1/runs/first/pause", or a command: "azq up"
    address: str = ""  # where a request came from
    status: int = 0  # of its answer; 0: no request
    about: str = ""  # the run or job that came into being
    key: str = ""  # Idempotency-Key or X-Request-Id of the request


class EvalRound(Message, frozen=True):
    """The newest evaluation round that the daemon asked for; kept so that a restarted daemon does not ask again."""

    weight_version: int
    asked_ms: int
    step: int = 0  # of these weights


class Heartbeat(Message, frozen=True):
    """A process says it lives; kept in the control plane with a life of seconds."""

    role: str  # "selfplay" | "eval" | "inference" | "learner" | "daemon"
    worker: str  # "<role>@<host>:<pid>" or the Celery node name
    host: str
    pid: int
    version: str  # azq's
    schema: int
    started_ms: int
    sent_ms: int
    run: str = ""
    queues: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    slots: int = 1  # jobs it can hold at once
    rates: dict[str, float] = {}  # names are those of azq.metrics
    weight_versions: dict[str, int] = {}  # run -> newest version it serves or plays with
    unserved: dict[str, str] = {}  # run -> why an inference worker does not serve it; some, where there are many
    note: str = ""  # what an operator should know of it, as `recording graphs: 3 of 20`, `served by: eager, at most 4096 leaves`
    machine_kind: str = ""  # of its host, as in the catalogue of prices
    per_hour: float | None = None  # what its host costs; None: unknown
    leaving: str = ""  # why its host gives its work back and takes no more; empty: it does not
    by_run: dict[str, tuple[float, float, float]] = {}  # of an inference worker: evaluations/s, leaves of a pass, share of time in passes


class Fleet(Message, frozen=True):
    """What the live daemon tells a machine that joins; holds no secret."""

    version: str  # azq's
    control_url: str  # as other machines reach it, without password; empty: they cannot
    data_url: str
    store_url: str
    lease_s: float
    heartbeat_s: float
    heartbeat_life_s: float
    sent_ms: int
    data_urls: tuple[str, ...] = ()  # all data planes, where there are several; data_url is the first
    unused: int = 0  # the place of a setting of earlier versions, which still read and write it
    over: str = ""  # why all machines end now, once they have drained; empty: they go on
    host: str = ""  # of the daemon
    inference_hosts: tuple[str, ...] = ()  # where live inference workers are


class RunRecord(Message, frozen=True):
    """A run as the control plane keeps it."""

    run: str
    sections: bytes  # JSON of azq.config.RunSections
    until: dict[str, float]  # any of minutes, games, steps, money; empty: no end
    directory: str  # of the run on the learner's host
    created_ms: int


class WantedRuns(Message, frozen=True):
    """Runs that inference workers are to serve whatever their state: somebody wants moves of them."""

    runs: tuple[str, ...]


class RankStatus(msgspec.Struct, frozen=True, array_like=True):
    """One of the processes that train a network together, as heartbeats and the learner's status have it; times are of one step."""

    rank: int = 0
    state: str = ""  # trains, waits, away, or left_out for its errors
    host: str = ""
    device: str = ""
    rows: int = 0  # of a step
    samples_per_s: float = 0.0  # if it never waited
    batch_s: float = 0.0
    sync_s: float = 0.0  # of it, waiting for others
    memory_bytes: int = 0  # that its process has of the device
    micro_batch: int = 0  # most samples of one pass; 0: all of its rows
    errors: int = 0
    reason: str = ""  # of the last error
    seen_ms: int = 0  # its last sign of life; 0: never
    state_bytes: int = 0  # of weights, gradients, optimiser and average, as far as it holds them


class LearnerStatus(Message, frozen=True):
    """What the learner says of itself after each publish interval; also the limiter's verdict."""

    step: int
    samples_inserted: int
    samples_consumed: int
    games_inserted: int
    duplicates_dropped: int
    window: int
    loss_policy: float
    loss_value: float
    learning_rate: float
    weight_version: int
    stall_selfplay: bool
    waiting: bool  # the learner itself is stalled by the limiter
    samples_per_s: float
    sent_ms: int
    progress: float = 0.0  # of the run's horizon, 0..1
    ranks: int = 1  # that should train together
    ranks_healthy: int = 1  # that do
    rank_failures: int = 0  # ranks lost since this learner's start
    batch_s: float = 0.0  # one training step
    sync_s: float = 0.0  # of it, waiting for other ranks
    scaling_efficiency: float = 1.0  # samples a second / what the ranks would do if none waited for another
    members: tuple[float, ...] = ()  # none; earlier versions had populations in this place
    each_rank: tuple[RankStatus, ...] = ()  # by number; empty: it trains alone
    games_alone: int = 0  # acknowledged, and on its own disk alone, though the run's store is to keep games


class RankBeat(Message, frozen=True):
    """A rank that is not the learner says it lives; kept in the control plane with a life of seconds."""

    rank: int  # from 1
    name: str  # of its process
    free: bool  # waits for an epoch to join; else it is in one
    sent_ms: int
    status: RankStatus = RankStatus()  # what it knows of itself


class RankTable(Message, frozen=True):
    """Who trains together, by the learner, which is rank 0 and not named."""

    epoch: int = 0  # grows with each change
    host: str = ""  # of rank 0
    port: int = 0  # not used any more: 0
    members: tuple[tuple[int, str], ...] = ()  # (rank, name of its process), by rank
    meeting: str = ""  # the file in the run's folder where the members meet; empty: not now


class HistoryPoint(Message, frozen=True):
    """A running run's figures at one moment; rates and means are those of the live table, from the counters of the points before."""

    at_ms: int
    games_per_s: float = 0.0
    simulations_per_s: float = 0.0
    evaluations_per_s: float = 0.0
    mean_batch: float = 0.0
    network_busy: float = 0.0
    policy_lag: float = 0.0
    samples_per_s: float = 0.0
    loss_policy: float = 0.0  # tells nothing while `step` is 0
    loss_value: float = 0.0
    open_games: int = 0
    samples: int = 0
    step: int = 0  # 0: no learner has begun
    weight_version: int = 0
    spent: dict[str, float] = {}  # share of wall time by "<role>_<phase>", phases as in azq.phases
    games: int = 0  # finished
    cores: dict[str, float] = {}  # CPU by role, of processes that tell their phases
    active_ms: int = 0  # time spent running; 0: a point of an older azq, without the counters below
    simulations: int = 0  # of self-play, as the next two
    evaluations: int = 0
    requests: int = 0
    trained: int = 0  # samples trained on
    steps_per_s: float = 0.0


class DeadLetter(Message, frozen=True):
    """A frame that did not decode, kept for inspection."""

    stream: str
    entry_id: str
    reason: str
    frame: bytes
    received_ms: int
