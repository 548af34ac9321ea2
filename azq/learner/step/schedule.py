"""The learning rate and the network at a share of the run's horizon. Pure functions."""

from __future__ import annotations

from azq.config import LearnerConfig, NetworkConfig, NetworkStage


def learning_rate(config: LearnerConfig, step: int, progress: float) -> float:
    """Linear warm-up over `warmup_steps`, then a drop by `lr_drop_factor` at each share of the horizon in `lr_drops`."""
    warm = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    drops = sum(progress >= share for share in config.lr_drops)
    return float(config.learning_rate * warm * config.lr_drop_factor**drops)


def networks(network: NetworkConfig, config: LearnerConfig) -> list[NetworkConfig]:
    """The networks that a run goes through, the first one first."""
    return [network, *(network.model_copy(update={"blocks": stage.blocks, "channels": stage.channels}) for stage in config.growth)]


def network_at(network: NetworkConfig, config: LearnerConfig, progress: float) -> NetworkConfig:
    """What `network` has grown to at this share of the horizon; a horizon that moves away makes nothing smaller."""
    sizes: list[NetworkConfig | NetworkStage] = [network, *(stage for stage in config.growth if stage.at <= progress)]
    return network.model_copy(update={"blocks": max(size.blocks for size in sizes), "channels": max(size.channels for size in sizes)})
