"""Settings that humans write: `azq.toml`, `AZQ_SECTION__KEY` in the environment, `--set section.key=value`.

Later sources win in that order. Machine sections (`broker`, `store`, `daemon`, `worker`, `inference`) describe this host;
run sections (`run`, `search`, `selfplay`, `network`, `learner`, `arena`) travel with the run to every worker.
Functions elsewhere take the section they need, never the whole.
"""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, DotEnvSettingsSource, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from azq.errors import ConfigError

RUN_NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,63}$"
TAG_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,31}$"

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0)]
Tag = Annotated[str, Field(pattern=TAG_PATTERN)]
StageT = TypeVar("StageT", bound="Stage")


class Section(BaseModel):
    """A group of settings; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Stage(Section):
    """What changes from a share of the run's horizon on."""

    at: Fraction


def _ascending(stages: tuple[StageT, ...]) -> tuple[StageT, ...]:
    if any(later.at <= sooner.at for sooner, later in itertools.pairwise(stages)):
        raise ValueError("its stages are not in the order of the run; let `at` grow from one to the next")
    return stages


class BrokerConfig(Section):
    """Where the control plane (durable) and the data plane (evaluation streams) are."""

    control_url: str = ""  # empty: an embedded server is started by `azq up`
    data_url: str = ""  # empty: likewise; may equal control_url
    public_control_url: str = ""  # how other machines reach them, where that differs: told to whoever joins, without password
    public_data_url: str = ""
    data_urls: tuple[str, ...] = ()  # several data planes, in one order on all hosts and new ones last; replaces data_url
    public_data_urls: tuple[str, ...] = ()
    data_shards: Positive = 1  # embedded data planes that `azq up` starts
    shards_per_run: Annotated[int, Field(ge=0)] = 0  # data planes that carry one run's evaluations; 0: all
    connect_timeout_s: Seconds = 5.0

    @model_validator(mode="after")
    def _one_list(self) -> BrokerConfig:
        if self.data_urls and self.data_url:
            raise ValueError("data_url and data_urls are both set; keep one")
        return self

    @property
    def data_planes(self) -> tuple[str, ...]:
        """Addresses of all data planes; the control plane's where none is set, and empty where there is not even that."""
        return self.data_urls or tuple(url for url in (self.data_url or self.control_url,) if url)


class StoreConfig(Section):
    """Where blobs (weights) live: `file` (the run's folder), `redis` (the control plane) or any fsspec URL."""

    url: str = "file"
    chunk_bytes: Annotated[int, Field(ge=1024)] = 8 * 1024 * 1024  # larger blobs are kept in chunks, except in folders
    timeout_s: Seconds = 30.0  # one operation of a store behind a network
    options: dict[str, bool | int | float | SecretStr] = {}  # of the fsspec file system, as endpoint_url, key, secret; texts are masked

    def revealed_options(self) -> dict[str, bool | int | float | str]:
        """The options with their secrets: for the file system, never for a log."""
        return {name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in self.options.items()}


class TokenConfig(Section):
    """One bearer token of the REST interface and what it may do."""

    token: Annotated[SecretStr, Field(min_length=8)]
    scope: Literal["read", "operate", "worker"] = "read"  # operate includes read, read includes worker


class DaemonConfig(Section):
    """The operations daemon and its REST interface."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    token: SecretStr = SecretStr("")  # may do everything; this one or another is required when host is not loopback
    tokens: dict[Tag, TokenConfig] = {}  # by name; names may show in logs
    rate_per_s: Annotated[float, Field(gt=0.0)] = 1000.0  # requests of one token, or of one address where there is none
    rate_burst: Positive = 2000
    event_streams: Positive = 64  # open at once
    tls_certificate: Path | None = None  # PEM, the whole chain; both or none
    tls_key: Path | None = None
    tick_s: Seconds = 0.5
    lease_s: Seconds = 20.0
    unclaimed_s: Seconds = 15.0  # a published job nobody claimed for so long is published again
    max_attempts: Positive = 4
    history_every_s: Seconds = 5.0  # between two points of the charts
    jobs_ahead: Positive = 1  # queued jobs kept beyond what live workers hold, per tag

    @model_validator(mode="after")
    def _sound(self) -> DaemonConfig:
        secrets = [self.token, *(entry.token for entry in self.tokens.values())]
        given = [secret.get_secret_value() for secret in secrets if secret.get_secret_value()]
        if len(set(given)) < len(given):
            raise ValueError("two names share one token; give each its own")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together; set both or none")
        return self


class WorkerConfig(Section):
    """This host's Celery workers."""

    tags: tuple[Tag, ...] = ()  # added to the detected ones
    concurrency: Positive = 1  # jobs at once in one worker
    engines: tuple[str, ...] = ()  # commands of GTP engines that evaluation jobs may start on this host, as in `gtp:<command>`
    heartbeat_s: Seconds = 2.0
    heartbeat_life_s: Seconds = 8.0


class InferenceConfig(Section):
    """This host's inference worker."""

    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    max_batch: Positive = 4096
    batch: Annotated[int, Field(ge=0)] = 0  # leaves that a batch waits for; 0: chosen by measurement at the start
    deadline_ms: Annotated[float, Field(ge=0.0)] | Literal["auto"] = "auto"  # at most; auto: a part of what a batch takes
    compile: bool = False  # torch.compile: where torch evaluates, some networks gain and the start takes longer
    threads: Annotated[int, Field(ge=0)] = 0  # 0: chosen by measurement at the start
    resident_versions: Positive = 8
    claim_after_s: Seconds = 2.0


class RunConfig(Section):
    """What is trained."""

    game: str = "connect_four"
    params: dict[str, int | float | str | bool] = {}
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    tag: Tag = "cpu"  # hardware tag that its jobs ask for


class SearchStage(Stage):
    """A budget of simulations."""

    num_simulations: Positive


class SearchConfig(Section):
    """Tree search. Gumbel: Danihelka et al., ICLR 2022. PUCT: Silver et al., Science 2018."""

    algorithm: Literal["gumbel", "puct"] = "gumbel"
    num_simulations: Positive = 64
    leaves_per_step: Positive = 1
    reuse_subtree: bool = True
    max_considered_actions: Positive = 16
    gumbel_scale: Annotated[float, Field(ge=0.0)] = 1.0
    c_visit: float = 50.0
    c_scale: float = 1.0
    c_puct: float = 1.5
    fpu_reduction: float = 0.25
    dirichlet_alpha: Annotated[float, Field(gt=0.0)] = 1.0
    dirichlet_fraction: Fraction = 0.25
    temperature: Annotated[float, Field(ge=0.0)] = 1.0
    temperature_plies: Annotated[int, Field(ge=0)] = 10  # later plies play greedily
    determinizations: Annotated[int, Field(ge=0)] = (
        0  # hidden hands; 0: information sets, else plain determinized search over so many worlds
    )
    schedule: tuple[SearchStage, ...] = ()  # later budgets of self-play, in the order of the run: progressive simulation

    _order = field_validator("schedule")(_ascending)


class SelfPlayConfig(Section):
    """How a self-play job makes games."""

    evaluator: Literal["stream", "local", "uniform"] = "stream"
    games_in_flight: Positive = 1024
    groups: Positive = 2  # halves in turn, so that search and evaluation overlap
    threads: Positive = 1
    pin_threads: bool = False  # a worker's children keep to cores of their own, as many as they have threads
    slice_s: Seconds = 60.0
    journal_s: Seconds = 5.0
    resend_after_s: Seconds = 5.0
    max_waiting_games: Positive = 20_000  # finished games that wait for the learner before self-play stalls: they bound the broker's memory
    random_opening_plies: Annotated[int, Field(ge=0)] = 0  # at most; each game draws its own number of them
    cache_entries: Annotated[int, Field(ge=0)] = 524_288  # evaluations remembered for all groups of a job, a power of two; 0: none
    merge_symmetries: bool = False  # ask for one of a position's images and turn its evaluation back


class NetworkConfig(Section):
    """The evaluator's network, free of batch norm."""

    kind: Literal["resnet", "mlp", "transformer"] = "resnet"
    blocks: Positive = 4
    channels: Positive = 48
    heads: Positive = 8  # of a transformer's attention; they divide the channels
    auxiliary: tuple[Literal["reply", "margin", "hidden"], ...] = ()  # further heads, of those that the game declares


class NetworkStage(Stage):
    """A size of the network, never below the one before."""

    blocks: Positive
    channels: Positive


class LearnerConfig(Section):
    """Training."""

    device: str = "auto"
    batch_size: Positive = 512
    learning_rate: Annotated[float, Field(gt=0.0)] = 2e-3
    lr_drops: tuple[Fraction, ...] = (0.6, 0.85)  # shares of the run's horizon
    lr_drop_factor: Annotated[float, Field(gt=0.0, le=1.0)] = 0.2
    warmup_steps: Annotated[int, Field(ge=0)] = 100
    weight_decay: Annotated[float, Field(ge=0.0)] = 1e-4
    value_weight: Annotated[float, Field(gt=0.0)] = 1.0
    outcome_weight: Annotated[float, Field(ge=0.0)] = 0.5  # loss of the outcome head, where the game has one
    reply_weight: Annotated[float, Field(ge=0.0)] = 0.15  # losses of the auxiliary heads in network.auxiliary
    margin_weight: Annotated[float, Field(ge=0.0)] = 0.25
    hidden_weight: Annotated[float, Field(ge=0.0)] = 0.5
    root_value_fraction: Fraction = 0.25  # share of the search's value in the value target, the rest is the game's result
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.995
    samples_per_insert: Annotated[float, Field(gt=0.0)] = 2.0
    limiter_slack: Positive = 200_000  # samples self-play may run ahead before it stalls; the learner never runs ahead
    min_window: Positive = 8_192  # samples before the first step
    max_window: Positive = 1_000_000
    window_fraction: Fraction = 0.5  # the newest share of all samples, once above min_window
    publish_every_s: Seconds = 10.0
    checkpoint_every_s: Seconds = 60.0
    symmetries: bool = True
    threads: Annotated[int, Field(ge=0)] = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    growth: tuple[NetworkStage, ...] = ()  # later sizes of the network, in the order of the run
    prefetch_batches: Annotated[int, Field(ge=0)] = 2  # gathered ahead by a thread; 0: each when its step begins
    ranks: Positive = 1  # processes that train together, one a GPU; batch_size is that of all of them
    sync_every: Positive = 1  # steps; 1: gradients each step, more: weights after so many steps
    compression: Literal["none", "fp16", "powersgd"] = "none"  # of gradients between ranks
    most_ratio: Annotated[float, Field(ge=1.0)] = 2.0  # between the shares of a batch that the fastest and the slowest rank get
    rank_timeout_s: Seconds = 6.0  # a rank that others wait for so long is dropped

    _order = field_validator("growth")(_ascending)

    @model_validator(mode="after")
    def _sound(self) -> LearnerConfig:
        if self.sync_every > 1 and self.compression != "none":
            raise ValueError("compression is of gradients, which are not sent where sync_every > 1; set one of the two")
        if self.batch_size < self.ranks:
            raise ValueError(f"batch_size {self.batch_size} is less than a sample for each of {self.ranks} ranks; raise it")
        return self


class ArenaConfig(Section):
    """Evaluation jobs that follow a run."""

    every_s: Annotated[float, Field(ge=0.0)] = 120.0  # 0: never
    num_simulations: Positive = 64
    games: Positive = 40  # per match, colours swapped in pairs
    opponents: tuple[str, ...] = ("previous", "uct:100")
    grade_positions: Annotated[int, Field(ge=0)] = 200  # graded positions per evaluation, where the game has a set
    opening_plies: Annotated[int, Field(ge=0)] = 4  # random plies before a match game


def _check_growth(network: NetworkConfig, learner: LearnerConfig) -> None:
    """Raises ValueError for stages that shrink the network, or that widen a transformer, whose norms see every channel."""
    sizes = [(network.blocks, network.channels), *((stage.blocks, stage.channels) for stage in learner.growth)]
    for (blocks, channels), (more_blocks, more_channels) in itertools.pairwise(sizes):
        if more_blocks < blocks or more_channels < channels:
            raise ValueError(f"learner.growth goes from {blocks}x{channels} to {more_blocks}x{more_channels}; a network only grows")
        if network.kind == "transformer" and more_channels > channels:
            raise ValueError(f"learner.growth widens a transformer to {more_channels} channels; it only grows by blocks")


class RunSections(Section):
    """Everything a worker needs to know of a run, on whatever host it is."""

    run: RunConfig = RunConfig()
    search: SearchConfig = SearchConfig()
    selfplay: SelfPlayConfig = SelfPlayConfig()
    network: NetworkConfig = NetworkConfig()
    learner: LearnerConfig = LearnerConfig()
    arena: ArenaConfig = ArenaConfig()

    @model_validator(mode="after")
    def _sound(self) -> RunSections:
        _check_growth(self.network, self.learner)
        return self


class Config(BaseSettings):
    """All settings of one azq process."""

    model_config = SettingsConfigDict(env_prefix="AZQ_", env_nested_delimiter="__", extra="forbid", frozen=True)

    home: Path = Path("runs")  # folder that holds every run
    broker: BrokerConfig = BrokerConfig()
    store: StoreConfig = StoreConfig()
    daemon: DaemonConfig = DaemonConfig()
    worker: WorkerConfig = WorkerConfig()
    inference: InferenceConfig = InferenceConfig()
    run: RunConfig = RunConfig()
    search: SearchConfig = SearchConfig()
    selfplay: SelfPlayConfig = SelfPlayConfig()
    network: NetworkConfig = NetworkConfig()
    learner: LearnerConfig = LearnerConfig()
    arena: ArenaConfig = ArenaConfig()

    @model_validator(mode="after")
    def _sound(self) -> Config:
        _check_growth(self.network, self.learner)
        return self

    def run_sections(self) -> RunSections:
        """The part of the settings that travels with a run."""
        return RunSections(**{name: getattr(self, name) for name in RunSections.model_fields})


def load(path: Path | None = None, overrides: Iterable[str] = (), base: Mapping[str, Any] | None = None) -> Config:
    """Settings from a TOML file, a service's credentials, the environment and `section.key=value` overrides, in that order.

    `base` holds values below the file's (a preset, a stored run). Without `path`, `azq.toml` is read where it exists.
    Raises `ConfigError` naming the key, the source and the remedy.
    """
    file = path or Path("azq.toml")
    values: dict[str, Any] = merge({}, base or {})
    if file.is_file():
        values = merge(values, _read_toml(file))
    elif path is not None:
        raise ConfigError(f"no configuration file at {path}; create it or drop --config")
    below = values

    class Layered(Config):
        """Overrides over the environment over the file over the base; later sources are deeply merged."""

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            credentials = DotEnvSettingsSource(settings_cls, env_file=_credentials())
            return (init_settings, env_settings, credentials, InitSettingsSource(settings_cls, init_kwargs=below))

    try:
        return Layered(**parse_overrides(overrides))
    except ValidationError as error:
        raise ConfigError(_explain(error, file)) from None


def _credentials() -> Path | None:
    """`AZQ_` lines that systemd handed to this service with LoadCredential=azq.env."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    file = Path(folder) / "azq.env" if folder else None
    return file if file is not None and file.is_file() else None


def dump_run(sections: RunSections) -> dict[str, Any]:
    """Plain values of a run's sections, ready for TOML, JSON or msgpack."""
    return sections.model_dump(mode="json")


def parse_run(values: Mapping[str, Any], source: str) -> RunSections:
    """The run's sections from plain values; `ConfigError` names `source` where they do not fit."""
    try:
        return RunSections.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, source)) from None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} is not readable TOML: {error}; mend the file") from None


def parse_params(texts: Iterable[str]) -> dict[str, Any]:
    """`size=6` and the like as a game's parameters; raises `ConfigError` for what has no '='."""
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--param {text!r} is not of the form key=value")
        values[key.strip()] = _parse_value(value.strip())
    return values


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """`search.num_simulations=32` and the like as nested values; raises `ConfigError` for what is not of that form."""
    changes: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise ConfigError(f"--set {text!r} is not of the form section.key=value")
        nested: Any = _parse_value(value.strip())
        for part in reversed(parts):
            nested = {part: nested}
        changes = merge(changes, nested)
    return changes


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values, those of `high` over those of `low`."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _explain(error: ValidationError, source: object) -> str:
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in item["loc"]) or "(top level)"
        what = "unknown key" if item["type"] == "extra_forbidden" else item["msg"]
        problems.append(f"{key}: {what}")
    return f"configuration ({source}, environment or --set) is wrong: {'; '.join(problems)}; `azq config show` lists every key"
