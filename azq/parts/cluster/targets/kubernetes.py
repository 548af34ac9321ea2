"""A cluster as objects of Kubernetes, put together by kustomize: the templates in `kustomize/`, and their values. Pure.

Self-play follows its queue by KEDA, for an autoscaler by itself sees no queue's length. While a run wants more games the daemon keeps as
many jobs waiting as there may be workers; once it is over, paused or ahead of its learner none waits, and one worker stays: without any, no
jobs are made.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from azq.errors import ConfigError
from azq.parts.cluster.description import Cluster
from azq.parts.cluster.targets.containers import (
    BROKER_PORT,
    CONTROL,
    DAEMON_PORT,
    GATEWAY_PORT,
    HEALTHY,
    HOME,
    IMAGE,
    PASSWORD,
    SECRETS,
    SHARED_MEMORY,
    TAG,
    ContainerProcess,
    creation,
    processes,
)
from azq.parts.cluster.targets.files import RenderedFile, Rendering, filled
from azq.wire import keys
from azq.wire.kinds import Kind, queue_name

KIND_LABEL, SPOT_TAINT = "azq/machine-kind", "azq/spot"
QUEUE = queue_name(Kind.SELFPLAY, TAG)
STATEFUL = {"broker": 20, "learner": 200}  # roles that keep something, and their disk in GB
PORTS = {"broker": BROKER_PORT, "daemon": DAEMON_PORT, "gateway": GATEWAY_PORT}
LEAST = {"broker": (1, 4), "daemon": (1, 2), "gateway": (1, 2), "learner": (2, 8), "worker": (1, 2), "inference": (1, 4)}  # cores, GB
SINGLE = ("broker", "daemon", "learner")  # moved when somebody says so; of the others a quarter may be missing at a time
MOST_AHEAD = 1024  # daemon.jobs_ahead takes no more
_template = partial(filled, "kustomize")


def kubernetes(cluster: Cluster) -> Rendering:
    """A kustomization and the files that it names; secrets come from files that `azq cluster secrets` makes."""
    for name, group in cluster.machines.items():
        if {"learner", "inference"} <= set(group.roles) and cluster.kinds[group.kind].gpus == 1:
            raise ConfigError(f"machines.{name}: a GPU is one pod's, and learner and inference are two; give inference separate machines")
    chosen_processes = list(processes(cluster))
    pull = "IfNotPresent" if cluster.image else "Never"
    ports = {f"{role}_port": port for role, port in PORTS.items()}
    ours = {"matchExpressions": [{"key": "azq/role", "operator": "Exists"}]}
    run = _template("run.yaml", pull=pull, creation=creation(cluster), secrets=SECRETS)
    files = {
        "namespace.yaml": _template("namespace.yaml", cluster=cluster.name),
        "brokers.yaml": _workloads(chosen_processes, pull, "broker"),
        "daemon.yaml": _workloads(chosen_processes, pull, "daemon", "gateway") + run,
        "learner.yaml": _workloads(chosen_processes, pull, "learner"),
        "workers.yaml": _workloads(chosen_processes, pull, "worker", "inference"),
        "scaling.yaml": _template("monitor.yaml") + "".join(map(_scaled, filter(_scales, chosen_processes))),
        "network.yaml": _template("network.yaml", ours=ours, **ports),
    }
    wanted = {"kustomization.yaml": _kustomization(cluster, list(files), chosen_processes), **files, ".gitignore": "secrets/\n"}
    return {name: RenderedFile(text) for name, text in wanted.items()}


def _kustomization(cluster: Cluster, resources: list[str], chosen_processes: list[ContainerProcess]) -> str:
    roles = dict.fromkeys(str(process.role) for process in chosen_processes if process.role != "broker")
    name, _, digest = cluster.image.partition("@")
    image = {"newName": name, "digest": digest} if digest else {"newTag": IMAGE.partition(":")[2]}
    facts = {"cluster": cluster.name, "image": {"name": "azq", **image}, "resources": resources, "password": f"secrets/{PASSWORD}"}
    secrets = [f"- {{name: {role}, files: [azq.env=secrets/{role}.env]}}\n" for role in (*roles, "client")]
    return _template("kustomization.yaml", **facts) + "".join(secrets)


def _workloads(chosen_processes: list[ContainerProcess], pull: str, *roles: str) -> str:
    """What runs processes of these roles, and their services."""
    most = min(MOST_AHEAD, sum(process.count for process in chosen_processes if _scales(process)))
    chosen = [process for process in chosen_processes if process.role in roles]
    return "".join(part for process in chosen for part in (_workload(process, pull, most), _service(process)))


def _scales(process: ContainerProcess) -> bool:
    return QUEUE in process.arguments


def _labels(process: ContainerProcess) -> dict[str, str]:
    return {"app.kubernetes.io/name": process.name, "azq/role": str(process.role)}


def _workload(process: ContainerProcess, pull: str, most: int) -> str:
    disk_gb = STATEFUL.get(process.role)
    environment = process.environment() | ({"AZQ_DAEMON__JOBS_AHEAD": str(max(1, most))} if process.role == "daemon" else {})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{disk_gb}Gi"}}}
    taints = [*([SPOT_TAINT] if process.spot else []), *(["nvidia.com/gpu"] if process.gpus else [])]
    alive = ["sh", "-c", HEALTHY]
    probe = {"httpGet": {"path": "/readyz", "port": DAEMON_PORT}, "periodSeconds": 5}
    return _template(
        "workload.yaml",
        kind="StatefulSet" if disk_gb else "Deployment",
        name=process.name,
        role=process.role,
        replicas=None if _scales(process) else process.count,  # the number of those that scale is KEDA's
        kept_by=process.name if disk_gb else None,
        strategy={"type": "Recreate"} if process.role == "daemon" else None,  # its lock refuses a second
        labels=_labels(process),
        grace_s=process.grace_s,
        nodes={KIND_LABEL: process.kind} if process.kind else None,
        tolerations=[{"key": taint, "operator": "Exists", "effect": "NoSchedule"} for taint in taints] or None,
        pull=pull,
        arguments=process.arguments,
        env=[{"name": name, "value": value} for name, value in environment.items()],
        listens=[{"containerPort": PORTS[process.role]}] if process.role in PORTS else None,
        alive=alive,
        ready=probe if process.role == "daemon" else {"exec": {"command": alive}, "periodSeconds": 10},
        resources=_resources(process),
        home=HOME,
        secrets=SECRETS,
        scratch=None if disk_gb else {"name": "runs", "emptyDir": {}},
        shared={"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}} if process.gpus > 1 else None,
        shared_mount={"name": "shm", "mountPath": "/dev/shm"} if process.gpus > 1 else None,
        missing=0 if process.role in SINGLE else "25%",
        claims=[{"metadata": {"name": "runs"}, "spec": claim}] if disk_gb else None,
    )


def _resources(process: ContainerProcess) -> dict[str, Any]:
    """What its share of the machine is, less a tenth for the node's own; a bound on memory, none on cores."""
    least_cores, least_gb = LEAST[process.role]
    memory = f"{max(least_gb, int(process.memory_gb * 0.9))}Gi"
    gpus = {"nvidia.com/gpu": str(process.gpus)} if process.gpus else {}
    cores = f"{max(1000 * least_cores, int(process.cores * 900))}m"
    return {"requests": {"cpu": cores, "memory": memory, **gpus}, "limits": {"memory": memory, **gpus}}


def _service(process: ContainerProcess) -> str:
    port = PORTS.get(process.role)
    if port is None and process.role not in STATEFUL:
        return ""
    ports, ip = ([{"port": port}], None) if port else (None, "None")
    return _template("service.yaml", name=process.name, labels=_labels(process), ports=ports, ip=ip)


def _scaled(process: ContainerProcess) -> str:
    address, queue = f"{CONTROL}:{BROKER_PORT}", keys.CELERY_PREFIX + QUEUE
    return _template("scaled.yaml", name=process.name, most=process.count, address=address, queue=queue)
