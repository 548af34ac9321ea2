"""Settings that humans write: `azq.toml`, `AZQ_SECTION__KEY` in the environment, `--set section.key=value`.

Later sources win in that order. Machine sections (`broker`, `store`, `daemon`, `worker`, `inference`, `gateway`, `tracking`, `tracing`,
`machine`, `budget`) describe this host; run sections (`run`, `search`, `selfplay`, `network`, `learner`, `arena`, `volunteers`) travel
with the run to every worker.
Functions elsewhere take the section they need, never the whole.
"""

from azq.config.base import RUN_NAME_PATTERN, TAG_PATTERN, Tag
from azq.config.host import (
    BrokerConfig,
    BudgetConfig,
    DaemonConfig,
    GatewayConfig,
    InferenceConfig,
    ListenConfig,
    MachineConfig,
    NoticesConfig,
    StoreConfig,
    TokenConfig,
    TrackingConfig,
    WorkerConfig,
)
from azq.config.loading import Config, forget_environment, load, merge, parse_overrides, parse_params
from azq.config.run import (
    ArenaConfig,
    LearnerConfig,
    NetworkConfig,
    RankSettings,
    RateStage,
    RunConfig,
    RunSections,
    SearchConfig,
    SearchStage,
    SelfPlayConfig,
    VolunteersConfig,
    dump_run,
    parse_run,
)

__all__ = [
    "RUN_NAME_PATTERN", "TAG_PATTERN", "ArenaConfig", "BrokerConfig", "BudgetConfig", "Config", "DaemonConfig", "GatewayConfig",
    "InferenceConfig", "LearnerConfig", "ListenConfig", "MachineConfig", "NetworkConfig", "NoticesConfig", "RankSettings", "RateStage",
    "RunConfig", "RunSections", "SearchConfig", "SearchStage", "SelfPlayConfig", "StoreConfig", "Tag", "TokenConfig", "TrackingConfig",
    "VolunteersConfig", "WorkerConfig", "dump_run", "forget_environment", "load", "merge", "parse_overrides", "parse_params", "parse_run",
]  # fmt: skip
