"""What a host's processes are set to: brokers and their addresses, store, daemon, workers, inference."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from azq.config.base import (
    Few,
    FewOrNone,
    Fraction,
    Many,
    Natural,
    Positive,
    Real,
    Seconds,
    SecondsOrNever,
    Section,
    Tag,
    Url,
    Urls,
    Whole,
)
from azq.prices import catalogue, price_of

SHORTEST_TOKEN = 8  # characters
DRAIN_S = 900.0  # longest time for the last evaluations of a fleet that ends, before its machines do
CA_OPTION = "ssl_ca_certs"
TLS_SCHEME = "rediss"  # of the addresses of brokers that speak TLS


def trusting(url: str, anchors: str) -> str:
    """A `rediss://` address that is verified with a PEM file; other addresses as they are, and one that names a file already."""
    parts = urlsplit(url)
    if parts.scheme != TLS_SCHEME or CA_OPTION in parts.query:
        return url
    options = [*parse_qsl(parts.query, keep_blank_values=True), (CA_OPTION, anchors)]
    return urlunsplit(parts._replace(query=urlencode(options, safe="/")))


def plain(url: str) -> str:
    """An address without what `trusting` adds, user and password included."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query="")) if parts.scheme == TLS_SCHEME else url


def with_user(url: str, user: str, password: str) -> str:
    """An address with its user and password replaced."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{parts.netloc.rpartition('@')[2]}"))


def data_settings(urls: Sequence[str], prefix: str = "") -> dict[str, str | tuple[str, ...]]:
    """The settings that name data planes: one has a separate key."""
    return {f"{prefix}data_url": urls[0]} if len(urls) == 1 else {f"{prefix}data_urls": tuple(urls)}


def password_in(url: str) -> str:
    """The password in an address; empty where there is none."""
    return unquote(urlsplit(url).password or "")


class BrokerConfig(Section):
    """Where the control plane (durable) and the data plane (evaluation streams) are."""

    retired: ClassVar = {"connect_timeout_s": 5.0, "shards_per_run": None}

    control_url: Url = ""  # empty: an embedded server is started by `azq up`
    data_url: Url = ""  # empty: likewise; may equal control_url
    public_control_url: Url = ""  # how other machines reach them, where that differs; sent to joining machines without password
    public_data_url: Url = ""
    data_urls: Urls = ()  # several data planes, in one order on all hosts and new ones last; replaces data_url
    public_data_urls: Urls = ()
    data_shards: Few = 1  # embedded data planes that `azq up` starts
    tls_ca: Path | None = None  # PEM, for rediss:// addresses: the server's own certificate or its authority's; unset: the system's

    @model_validator(mode="before")
    @classmethod
    def _trusting(cls, values: Any) -> Any:
        """Addresses carry the file that they are verified with, so that an address is all it takes to connect."""
        if not isinstance(values, dict) or not values.get("tls_ca"):
            return values
        anchors = str(Path(values["tls_ca"]).absolute())
        single = {name: trusting(values[name], anchors) for name in ("control_url", "data_url") if isinstance(values.get(name), str)}
        several = values.get("data_urls")
        listed = {"data_urls": [trusting(url, anchors) for url in several]} if isinstance(several, list | tuple) else {}
        return {**values, **single, **listed}

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

    retired: ClassVar = {"chunk_bytes": 8 * 1024 * 1024, "timeout_s": None}

    url: Url = "file"
    # What of a run: `all` adds games and checkpoints, so that the learner's host may die; `auto` is `all` behind a bucket or a file:// URL.
    keep: Literal["auto", "weights", "all"] = "auto"
    # Of the fsspec file system, as endpoint_url, key, secret; texts are masked.
    options: dict[str, bool | Whole | Real | SecretStr] = Field(default_factory=dict)

    def revealed_options(self) -> dict[str, bool | int | float | str]:
        """The options with their secrets: for the file system, never for a log."""
        return {name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in self.options.items()}


def _hard_to_guess(token: SecretStr) -> SecretStr:
    if len(token.get_secret_value()) < SHORTEST_TOKEN:
        raise ValueError(f"a token has at least {SHORTEST_TOKEN} characters; make one with `openssl rand -hex 16`")
    return token


class TokenConfig(Section):
    """One bearer token of the REST interface and what it may do."""

    token: Annotated[SecretStr, AfterValidator(_hard_to_guess)]
    scope: Literal["read", "operate", "worker"] = "read"  # operate includes read, read includes worker


class ListenConfig(Section):
    """Where a process answers browsers, and how."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0  # 0: any free one
    tls_certificate: Path | None = None  # PEM, the whole chain; both or none
    tls_key: Path | None = None
    plaintext: bool = False  # http beyond loopback, where a proxy or the network itself encrypts: tokens can be read on the way

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together; set both or none")
        return self


class DaemonConfig(ListenConfig):
    """The operations daemon and its REST interface."""

    retired: ClassVar = {
        "history_every_s": 5.0,
        "rate_burst": 2000,
        "event_streams_each": 48,
        "move_searches": 2,
        "move_queue": 16,
        "move_simulations": 3200,
        "tick_s": 0.5,
        "unclaimed_s": 15.0,
        "rate_per_s": None,
        "event_streams": None,
        "max_runs": None,
        "max_queued_jobs": None,
        "max_attempts": None,
    }

    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    token: SecretStr = SecretStr("")  # may do everything; this one or another is required when host is not loopback
    tokens: dict[Tag, TokenConfig] = Field(default_factory=dict)  # by name; names may show in logs
    lease_s: Seconds = 20.0
    jobs_ahead: Few = 1  # queued jobs kept beyond what live workers hold, per tag

    @model_validator(mode="after")
    def _sound(self) -> DaemonConfig:
        secrets = [self.token, *(entry.token for entry in self.tokens.values())]
        given = [secret.get_secret_value() for secret in secrets if secret.get_secret_value()]
        if self.token.get_secret_value():
            _hard_to_guess(self.token)
        if len(set(given)) < len(given):
            raise ValueError("two names share one token; give each its own")
        return self


def _network(text: str) -> str:
    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        raise ValueError(f"{text} is neither an address nor a network; write 127.0.0.1 or 10.0.0.0/8") from None


class GatewayConfig(ListenConfig):
    """The gateway, by which browsers' tabs make games."""

    retired: ClassVar = {
        "games_per_hour_each": 200_000,
        "max_tabs_each": None,
        "jobs": None,
        "silent_after_s": None,
        "late_after_s": None,
        "batch_after_s": None,
    }

    port: Annotated[int, Field(ge=0, le=65535)] = 8090
    url: str = ""  # how people reach it, for links and behind a proxy; empty: host and port
    proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = ()  # addresses or networks whose X-Forwarded headers count
    max_tabs: Positive = 2000  # of which one address has 64, or a thirtieth where that is more
    invited_only: bool = False  # new devices need an invitation; `azq volunteers invite`
    keys_per_day: Positive = 50  # new devices from one address
    games_per_hour: Many = 20_000  # of one device; ten times as many from one address


class WorkerConfig(Section):
    """This host's Celery workers."""

    retired: ClassVar = {"heartbeat_life_s": None}

    tags: tuple[Tag, ...] = ()  # added to the detected ones
    concurrency: FewOrNone = 0  # jobs at once in one worker; 0: as many as suit the machine in `azq up`, one elsewhere
    game_files: tuple[Path, ...] = ()  # Python files, or folders of them, that runs may have as games on this host
    evaluator: Literal["auto", "stream", "local"] = "auto"  # whom self-play of runs with the stream asks here; local: its own processes.
    # auto: inference workers of this host over their sockets where there are no others; they themselves in `azq up` where a CPU infers and
    # the network is a perceptron, whose passes cost less than being asked for
    engines: tuple[str, ...] = ()  # commands of GTP engines that evaluation jobs may start on this host, as in `gtp:<command>`
    heartbeat_s: Seconds = 2.0

    @property
    def heartbeat_life_s(self) -> float:
        """How long a process counts as alive after its last heartbeat."""
        return 4 * self.heartbeat_s


def _without_int16(precision: object) -> object:
    return "int8" if precision == "int16" else precision  # which earlier versions had on CPUs with AVX2


class InferenceConfig(Section):
    """This host's inference worker."""

    retired: ClassVar = {"claim_after_s": None, "resident_versions": None}

    device: str = "auto"
    devices: tuple[str, ...] = ()  # of `azq up`, a worker each; empty: by its device plan
    precision: Annotated[Literal["auto", "float32", "bfloat16", "int8"], BeforeValidator(_without_int16)] = "auto"
    max_batch: Positive = 8192  # on a CPU a batch is 4096 at most, and larger requests are evaluated in pieces
    batch: Natural = 0  # leaves that a batch waits for; 0: chosen by measurement at the start
    deadline_ms: Annotated[float, Field(ge=0.0, le=60_000.0)] | Literal["auto"] = "auto"  # at most; auto: a part of what a batch takes
    # torch.compile. auto: on a GPU, by a process beside, where a compiler is; true: in the worker, whose start takes longer; and on CPUs
    compile: bool | Literal["auto"] = "auto"
    fused: bool = True  # on a GPU cuDNN's fused convolutions are tried; false where a driver breaks on them
    threads: FewOrNone = 0  # 0: chosen by measurement at the start


class TrackingConfig(Section):
    """Where this host's learners send curves and settings; services' addresses and keys are in the environment."""

    retired: ClassVar = {"weights_every_s": 600.0}

    backends: tuple[Literal["tensorboard", "wandb"], ...] = ("tensorboard",)


class TracingConfig(Section):
    """Where this host's processes send spans of the games that are followed: a file of OTLP JSON lines, or a collector."""

    to: Url = ""  # a path, or as http://127.0.0.1:4318/v1/traces (extra `otel`); empty: no game is followed
    share: Fraction = 0.001  # of games


Money = Annotated[float, Field(ge=0.0, le=1e9)]
Limit = Annotated[float, Field(gt=0.0, le=1e9)]


class MachineConfig(Section):
    """What this machine is, what it costs, and what ends it."""

    retired: ClassVar = {"notice_every_s": 2.0}

    kind: str = ""  # as in azq's catalogue of prices
    per_hour: Money | None = None  # what it costs; unset: the catalogue's price of its kind
    hours: Limit | None = None  # since its start; then its dead-man timer ends it, whatever the network does; unset: never
    margin_s: SecondsOrNever = 1200.0  # that the timer waits beyond `hours`; longer than the last evaluations may take (900 s)
    lost_after_s: SecondsOrNever = 0.0  # no daemon was heard of for so long: the timer ends it; 0: never
    poweroff_command: tuple[str, ...] = ()  # run after its azq has drained and ended; none: the machine stays on
    metadata_url: Url = ""  # where its provider says that it takes the machine back, as http://169.254.169.254; empty: it is not polled

    def facts(self) -> dict[str, Any]:
        """What its heartbeats say of it."""
        return {"machine_kind": self.kind, "per_hour": price_of(self.kind) if self.per_hour is None else self.per_hour}


class BudgetConfig(Section):
    """What the whole fleet may cost, as its daemon guards it: whatever comes first."""

    retired: ClassVar = {"drain_s": None}

    hours: Limit | None = None  # of wall time in which some machine was there
    money: Limit | None = None
    services: dict[Tag, Money] = Field(default_factory=dict)  # what else it pays for by the hour, as a provider's brokers or metrics
    currency: str = Field(default_factory=lambda: str(catalogue()["currency"]))  # of all prices; nothing is converted
    with_runs: bool = False  # machines end, too, once no run is running or paused any more


def _web_address(address: SecretStr) -> SecretStr:
    if address.get_secret_value() and not address.get_secret_value().startswith(("http://", "https://")):
        raise ValueError("a webhook is an address that begins with https:// or http://")
    return address


class NoticesConfig(Section):
    """Where notices go when a run ends or a fault lasts."""

    webhook: Annotated[SecretStr, AfterValidator(_web_address)] = SecretStr("")  # gets each as JSON by POST; empty: no notices


class HostSections(Section):
    """Everything that is set on a host and stays there."""

    home: Path = Path("runs")  # folder that holds every run
    broker: BrokerConfig = BrokerConfig()
    store: StoreConfig = StoreConfig()
    daemon: DaemonConfig = DaemonConfig()
    worker: WorkerConfig = WorkerConfig()
    inference: InferenceConfig = InferenceConfig()
    gateway: GatewayConfig = GatewayConfig()
    tracking: TrackingConfig = TrackingConfig()
    tracing: TracingConfig = TracingConfig()
    machine: MachineConfig = MachineConfig()
    budget: BudgetConfig = BudgetConfig()
    notices: NoticesConfig = NoticesConfig()
