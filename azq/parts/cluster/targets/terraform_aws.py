"""A cluster in AWS by Terraform: modules that are the same for every cluster, and the values of this one. Pure."""

from __future__ import annotations

import json
import shlex
from typing import Any

from azq.config import merge
from azq.config.loading import to_toml
from azq.errors import ConfigError
from azq.parts.cluster.checks import margin_s_of
from azq.parts.cluster.cost import bill
from azq.parts.cluster.description import Cluster, MachineGroup, Role
from azq.parts.cluster.members import budget_of
from azq.parts.cluster.targets.files import RenderedFile, Rendering, static

VALUES = "cluster.auto.tfvars.json"
HEAD: tuple[Role, ...] = ("daemon", "learner")  # one machine has both, and the broker unless that is a service
WITH_HEAD: tuple[Role, ...] = (*HEAD, "broker", "rank", "gateway")
JOINING: tuple[Role, ...] = ("selfplay", "eval", "inference")
EFA_GBPS = 400.0  # kinds with so much have Amazon's own network cards


def terraform_aws(cluster: Cluster) -> Rendering:
    """All files of a folder in which `launch_cluster.sh` is run; raises `ConfigError` for machines that are not AWS's or stand wrong."""
    hosts = {name: group for name, group in cluster.machines.items() if not cluster.kinds[group.kind].service}
    if foreign := [name for name, group in hosts.items() if cluster.kinds[group.kind].provider != "aws"]:
        raise ConfigError(f'machines.{foreign[0]}: {hosts[foreign[0]].kind} is no kind of AWS; say provider = "aws" in [kinds]')
    head = _head(cluster, hosts)
    values = {
        "cluster_name": cluster.name,
        "groups": {name: _group(cluster, group, name == head) for name, group in hosts.items()},
        **_broker(cluster, head),
        "run": {"name": cluster.run.name, "create": shlex.join(cluster.run.created_by())},
        "max_hours": _timer_h(cluster),
        "budget": cluster.budget.money or 0,
    }
    ignored = RenderedFile(".terraform/\n*.tfstate*\nterraform.tfvars\nazq.tar.gz\n")
    return {**static("terraform"), VALUES: RenderedFile(json.dumps(values, indent=2) + "\n"), ".gitignore": ignored}


def _head(cluster: Cluster, hosts: dict[str, MachineGroup]) -> str:
    """The group of the one machine that others join."""
    (head,) = cluster.of_role("daemon")
    if head not in cluster.of_role("learner"):
        raise ConfigError(f"machines.{head}: in AWS daemon and learner are one machine, which lets the others in; give it both roles")
    for name, group in hosts.items():
        if name != head and (misplaced := [role for role in group.roles if role in WITH_HEAD]):
            raise ConfigError(f"machines.{name}: {misplaced[0]} is {head}'s in AWS, beside daemon and learner, or a service's")
    return head


def _group(cluster: Cluster, group: MachineGroup, head: bool) -> dict[str, Any]:
    kind = cluster.kinds[group.kind]
    return {
        "instance_type": group.kind,
        "count": group.count,
        "roles": [role for role in group.roles if role in JOINING],
        "gpus": kind.gpus,
        "per_hour": kind.per_hour,
        "efa": kind.network_gbps >= EFA_GBPS,
        "spot": group.spot,
        "head": head,
        "settings": _settings(cluster) if head else _join_words(cluster, group),
    }


def _settings(cluster: Cluster) -> list[str]:
    """Lines of the head's azq.toml, below those that its first boot writes."""
    own = {"broker", "store"} & cluster.settings.keys() or cluster.settings.get("machine", {}).keys() - {"margin_s"}
    if own:
        raise ConfigError(f"settings: {', '.join(sorted(own))}: a host's first boot in AWS says that itself; leave it out of [settings]")
    guarded = {key: value for key, value in budget_of(cluster).items() if value not in (None, {})}
    sections = merge({"budget": guarded} if guarded else {}, cluster.settings)
    return to_toml({section: values for section, values in sections.items() if section != "machine"}).splitlines()


def _join_words(cluster: Cluster, group: MachineGroup) -> list[str]:
    """The same for a machine that joins, as words of `azq join`."""
    overrides = [
        f"--set={section}.{key}={value if isinstance(value, str) else json.dumps(value)}"
        for section, values in cluster.settings.items()
        if section != "machine"
        for key, value in values.items()
    ]
    return [shlex.quote(word) for word in (*overrides, *([f"--concurrency={group.concurrency}"] if group.concurrency else []))]


def _broker(cluster: Cluster, head: str) -> dict[str, Any]:
    """ElastiCache's nodes, or nothing where the head has the brokers."""
    (name, group), *more = cluster.of_role("broker").items()
    if more:
        raise ConfigError(f"machines.{more[0][0]}: brokers are one group's in AWS, {name}'s")
    return {} if name == head else {"broker_node_type": group.kind, "broker_nodes": group.count}


def _timer_h(cluster: Cluster) -> float:
    """When a host ends itself: after the budget is spent and the last evaluations had their time; 0 where there is no budget."""
    per_hour = bill(cluster).per_hour
    by_money = cluster.budget.money / per_hour if cluster.budget.money and per_hour else None
    spent_h = min((limit for limit in (cluster.budget.hours, by_money) if limit), default=None)
    return 0.0 if spent_h is None else round(spent_h + margin_s_of(cluster) / 3600, 2)
