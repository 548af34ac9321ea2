"""What a run is set to; these sections travel with it to every worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from azq.config.base import (
    Blocks,
    Channels,
    Factor,
    Few,
    FewOrNone,
    Fraction,
    Many,
    Natural,
    Plies,
    Positive,
    Real,
    Seconds,
    SecondsOrNever,
    Section,
    Simulations,
    Stage,
    Tag,
    Weight,
    Whole,
    ascending,
    explain,
)
from azq.errors import ConfigError


class RunConfig(Section):
    """What is trained."""

    game: str = "connect_four"
    params: dict[str, Whole | Real | str | bool] = Field(default_factory=dict)
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    tag: Tag = "cpu"  # hardware tag that its jobs ask for


class SearchStage(Stage):
    """A budget of simulations."""

    num_simulations: Simulations


class SearchConfig(Section):
    """Tree search. Gumbel: Danihelka et al., ICLR 2022. PUCT: Silver et al., Science 2018."""

    algorithm: Literal["gumbel", "puct"] = "gumbel"
    num_simulations: Simulations = 64
    leaves_per_step: Positive = 1
    batch_root: bool = False  # ask for the root's children in one step, ahead of their first visits; games without chance and secrets
    decisive_moves: bool = False  # look at each new position for an action that wins at once; games without chance and secrets
    reuse_subtree: bool = True
    max_considered_actions: Positive = 16
    gumbel_scale: Weight = 1.0
    c_visit: Real = 50.0
    c_scale: Real = 1.0
    q_range: Annotated[float, Field(gt=0.0, le=2.0)] = 2.0  # below 2: q counts by the range a node has seen, this at least; for scores
    c_puct: Real = 1.5
    fpu_reduction: Real = 0.25
    dirichlet_alpha: Factor = 1.0
    dirichlet_fraction: Fraction = 0.25
    temperature: Weight = 1.0
    temperature_plies: Plies = 10  # later plies play greedily
    determinizations: Natural = 0  # hidden hands; 0: information sets, else plain determinized search over so many worlds
    schedule: tuple[SearchStage, ...] = ()  # later budgets of self-play, in the order of the run: progressive simulation

    _order = field_validator("schedule")(ascending)


class SelfPlayConfig(Section):
    """How a self-play job makes games."""

    retired: ClassVar = {"pin_threads": None, "resend_after_s": None}

    evaluator: Literal["stream", "local", "uniform"] = "stream"
    games_in_flight: Positive = 1024  # at most
    answer_within_ms: Annotated[float, Field(ge=0.0, le=60_000.0)] = (
        0.0  # fewer games at once where an evaluation takes longer; 0: games_in_flight whatever it takes
    )
    groups: Few = 2  # halves in turn, so that search and evaluation overlap
    threads: Few = 1
    slice_s: Seconds = 60.0
    journal_s: Seconds = 5.0
    max_waiting_games: Many = 20_000  # finished games that wait for the learner before self-play stalls: they bound the broker's memory
    random_opening_plies: Plies = 0  # at most; each game draws its own number of them
    fork_share: Fraction = 0.0  # of the new games: they begin in the middle of one that this worker finished lately, with a random move
    cache_entries: Annotated[int, Field(ge=0, le=2**28)] = (
        524_288  # evaluations remembered for all groups of a job, a power of two; 0: none
    )
    merge_symmetries: bool = False  # ask for one of a position's images and turn its evaluation back


OF_ONE_KIND = {"global_heads": "resnet", "parity": "resnet", "encoders": "structured"}  # settings of a network, and the kind that has them


class NetworkConfig(Section):
    """The evaluator's network, free of batch norm."""

    kind: Literal["resnet", "mlp", "transformer", "structured"] = "resnet"
    blocks: Blocks = 4
    channels: Channels = 48
    heads: Few = 8  # of attention, in a transformer and a structured network; they divide the channels
    encoders: dict[str, Blocks] = Field(default_factory=dict)  # structured: layers by token group of the game, before the fusion's `blocks`
    auxiliary: tuple[Literal["advantage", "margin", "hidden"], ...] = ()  # further heads, of those that the game declares
    global_heads: bool = False  # of a resnet: a logit from each cell, all else pooled over the board, whose size they do not depend on
    parity: bool = False  # of a resnet: it reads whether the bits set are odd in number, too; on a board that fills, whose turn it is

    @model_validator(mode="after")
    def _sound(self) -> NetworkConfig:
        for name, kind in OF_ONE_KIND.items():
            if getattr(self, name) and self.kind != kind:
                raise ValueError(f"{name} is of kind = {kind!r}; a network of kind {self.kind!r} has none: leave it out")
        return self

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def description(self) -> dict[str, Any]:
        """What weights say of their network; without what is new and not in use, so that equal weights are equal bytes as before."""
        return self.model_dump(mode="json", exclude={name for name in OF_ONE_KIND if not getattr(self, name)})


class RateStage(Stage):
    """What the learning rate is multiplied by."""

    factor: Factor


class RankSettings(Section):
    """How processes train together, whatever they train."""

    retired: ClassVar = {"most_ratio": None, "rank_errors": None}

    sync_every: Positive = 1  # steps; 1: gradients each step, more: weights after so many steps
    compression: Literal["none", "fp16", "topk"] = "none"  # of gradients between ranks
    compression_ratio: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # bytes that topk sends / those of whole gradients
    rank_timeout_s: Seconds = 6.0  # a rank that others wait for so long, and for five of its longest steps of late, is dropped

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.sync_every > 1 and self.compression != "none":
            raise ValueError("compression is of gradients, which are not sent where sync_every > 1; set one of the two")
        return self


class LearnerConfig(RankSettings):
    """Training."""

    retired: ClassVar = {
        **RankSettings.retired,
        "prefetch_batches": None,
        "primary": "",
        "discount": 1.0,
        "population": 1,
        "population_every_steps": None,
        "soft_weight": None,
        "reply_weight": None,
        "lr_drop_factor": 0.2,
        "growth": [],
        "shard": "none",
        "compression_rank": None,
        "window_fraction": 0.5,
        "outcome_weight": 0.5,
        "advantage_weight": 0.25,
        "margin_weight": 0.25,
        "hidden_weight": 0.5,
    }

    device: str = "auto"
    batch_size: Positive = 512
    micro_batch: Natural = 0  # most samples of one pass, whose gradients add up to a batch's; 0: a batch. Halved where memory runs out
    learning_rate: Factor = 2e-3
    muon_rate: Weight = 0.0  # of the matrices of the network's blocks, moved by Muon; what changes learning_rate changes it alike; 0: AdamW
    lr_drops: tuple[Fraction, ...] = (0.6, 0.85)  # shares of the run's horizon at which the rate drops to a fifth
    lr_schedule: tuple[RateStage, ...] = ()  # factors of the rate, in the order of the run, beside those drops
    warmup_steps: Natural = 100
    weight_decay: Weight = 1e-4
    value_weight: Factor = 1.0
    value_scaling: Literal["none", "spread"] = "none"  # spread: the value's error counts in the spread of its targets; for scores
    root_value_fraction: Fraction = 0.25  # share of the search's value in the value target, the rest is the game's result
    td_lambda: Fraction = 1.0  # below 1, TD(lambda): the search's values at later plies take the place of so much of that result
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.995
    samples_per_insert: Factor = 2.0
    limiter_slack: Many = 200_000  # samples self-play may run ahead before it stalls; the learner never runs ahead
    min_window: Many = 8_192  # samples before the first step
    max_window: Many = 1_000_000  # samples drawn from: the newest half of all, within these two bounds
    publish_every_s: Seconds = 10.0
    checkpoint_every_s: Seconds = 60.0
    publish_every_steps: Natural = 0  # also at each multiple of so many steps; 0: by time alone
    checkpoint_every_steps: Natural = 0
    symmetries: bool = True
    threads: FewOrNone = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False  # torch.compile, which takes a minute when training begins; used where a step is then measured to be faster
    freeze: Literal["none", "trunk"] = "none"  # what does not learn; trunk: all but the heads, for weights that came from elsewhere
    ranks: Few = 1  # processes that train together, one a GPU; batch_size is that of all of them
    devices: tuple[str, ...] = ()  # of one host's ranks, rank 0's first, such as cuda:0 and cuda:2; they count the ranks; none: device
    lockstep_games: Natural = 0  # of each version, all played with it and learned from in order before the next one; 0: off
    lockstep_steps: Positive = 16  # of training from a version to the next, in lockstep

    _order = field_validator("lr_schedule")(ascending)

    @model_validator(mode="before")
    @classmethod
    def _count_devices(cls, values: Any) -> Any:
        """As many ranks as devices where only these are given."""
        if isinstance(values, dict) and values.get("devices") and "ranks" not in values:
            return {**values, "ranks": len(values["devices"])}
        return values

    @model_validator(mode="after")
    def _sound(self) -> LearnerConfig:
        _check_devices(self)
        if self.batch_size < self.ranks:
            raise ValueError(f"batch_size {self.batch_size} is less than a sample for each of {self.ranks} ranks; raise it")
        return self

    def version_for(self, uid: int) -> int:
        """The weight version that a game is played with in lockstep; 0, the newest, without lockstep."""
        return 1 + (uid - 1) // self.lockstep_games if self.lockstep_games else 0


def _check_devices(config: LearnerConfig) -> None:
    """Raises `ValueError` for devices that no ranks can have."""
    devices = config.devices
    for name in devices:
        if not re.fullmatch(r"cpu|mps|cuda:(0|[1-9][0-9]{0,3})", name):
            raise ValueError(f"devices name {name!r}; each is cpu, mps or a GPU with its number, such as cuda:0")
        if name != "cpu" and devices.count(name) > 1:
            raise ValueError(f"devices name {name} more than once; ranks share nothing but cpu")
    if len({name.partition(":")[0] for name in devices}) > 1:
        raise ValueError(f"devices {', '.join(devices)} are of several kinds, whose ranks cannot talk to each other; name one kind")
    if devices and config.device != "auto":
        raise ValueError(f"device is {config.device!r} and devices are named; set one of the two")
    if devices and config.ranks != len(devices):
        raise ValueError(f"ranks is {config.ranks}, devices are {len(devices)}; leave ranks out, devices count them")


Elo = Annotated[float, Field(ge=-10_000, le=10_000)]


class ArenaConfig(Section):
    """Evaluation jobs that follow a run."""

    retired: ClassVar = {
        "games_per_job": None,
        "sprt_alpha": None,
        "sprt_beta": None,
        "promotion_elo": None,
        "grade_every_s": None,
        "grade_every_steps": None,
        "promotion_threshold": None,
        "final_games": None,
    }

    every_s: SecondsOrNever = 120.0  # less while the run is young: 20, 40, 80 ... s; 0: never
    every_steps: Natural = 0  # also once weights are published so many steps after the ones evaluated last; 0: by time alone
    num_simulations: Simulations = 64
    games: Positive = 40  # per match, colours swapped in pairs
    sprt: tuple[()] | tuple[Elo, Elo] = ()  # elo0, elo1: a match in parts ends once it is clear which; none: all games are played
    opponents: tuple[str, ...] = ("previous", "uct:100")
    grade_positions: Natural = 200  # graded positions per evaluation, where the game has a set
    opening_plies: Plies = 4  # random plies before a match game
    promotion: Literal["off", "sprt", "games"] = "off"  # what a version must pass before self-play follows it; off: every one serves
    promotion_games: Positive = 400  # of a candidate against the best; under sprt at most, and rejected when these decide nothing

    @property
    def promotes(self) -> bool:
        """Whether versions serve only once they were promoted."""
        return self.promotion != "off"

    @property
    def evaluates(self) -> bool:
        """Whether a run is evaluated at all."""
        return self.every_s > 0 or self.every_steps > 0

    @model_validator(mode="after")
    def _decides(self) -> ArenaConfig:
        if self.sprt and not self.sprt[0] < self.sprt[1]:
            raise ValueError(f"arena.sprt = [{self.sprt[0]:g}, {self.sprt[1]:g}] can decide nothing; elo0 comes first and is smaller")
        return self


class VolunteersConfig(Section):
    """What a run lets browsers' tabs do for it."""

    retired: ClassVar = {"least_quality": None, "games_at_once": None}

    kinds: tuple[
        Literal["selfplay", "eval"], ...
    ] = ()  # of jobs that tabs take on; eval: matches between versions; none: they have nothing of the run
    num_simulations: Annotated[int, Field(ge=0, le=65_535)] = 0  # of a move; 0: as servers search
    slice_s: Seconds = 600.0  # after which a job hands out no more games, and ends with its last one


class RunSections(Section):
    """Everything a worker needs to know of a run, on whatever host it is."""

    run: RunConfig = RunConfig()
    search: SearchConfig = SearchConfig()
    selfplay: SelfPlayConfig = SelfPlayConfig()
    network: NetworkConfig = NetworkConfig()
    learner: LearnerConfig = LearnerConfig()
    arena: ArenaConfig = ArenaConfig()
    volunteers: VolunteersConfig = VolunteersConfig()

    @model_validator(mode="after")
    def _in_lockstep(self) -> RunSections:
        """What a game or step of lockstep depends on is its number alone, never the time."""
        others = {
            "learner.ranks": self.learner.ranks > 1,
            "learner.lr_drops": self.learner.lr_drops,
            "learner.lr_schedule by `at`": any(stage.at is not None for stage in self.learner.lr_schedule),
            "search.schedule": self.search.schedule,
            "search.reuse_subtree": self.search.reuse_subtree,
            "selfplay.fork_share": self.selfplay.fork_share,
            "volunteers.kinds": self.volunteers.kinds,
            "arena.promotion": self.arena.promotes,
        }
        if self.learner.lockstep_games and (wrong := [name for name, value in others.items() if value]):
            raise ValueError(f"learner.lockstep_games goes with none of {', '.join(wrong)}; set them to 0, 1, [], off or false")
        return self


def dump_run(sections: RunSections) -> dict[str, Any]:
    """Plain values of a run's sections, ready for TOML, JSON or msgpack."""
    return sections.model_dump(mode="json")


def parse_run(values: Mapping[str, Any], source: str) -> RunSections:
    """The run's sections from plain values; `ConfigError` names `source` where they do not fit."""
    try:
        return RunSections.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, source)) from None
