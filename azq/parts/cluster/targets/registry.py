"""Every target that a cluster can be rendered for. A new one is a module with a pure function, and its row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from azq.errors import ConfigError
from azq.parts.cluster.checks import refuse
from azq.parts.cluster.description import Cluster
from azq.parts.cluster.targets.compose import compose
from azq.parts.cluster.targets.files import Rendering
from azq.parts.cluster.targets.kubernetes import kubernetes
from azq.parts.cluster.targets.slurm import slurm
from azq.parts.cluster.targets.terraform_aws import terraform_aws

# Each raises `ConfigError` for a cluster that it cannot carry.
TARGETS: Mapping[str, Callable[[Cluster], Rendering]] = {
    "compose": compose,
    "kubernetes": kubernetes,
    "slurm": slurm,
    "terraform-aws": terraform_aws,
}


def render(cluster: Cluster, target: str) -> Rendering:
    """The files of a target; raises `ConfigError` for an unknown one and for a cluster that cannot work."""
    if (make := TARGETS.get(target)) is None:
        raise ConfigError(f"no target {target!r}; there are {', '.join(TARGETS)}")
    refuse(cluster)
    return make(cluster)
