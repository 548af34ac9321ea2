"""A cluster on one machine with containers: `compose.yaml`, for docker and podman, from the templates in `compose/`. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from azq.errors import ConfigError
from azq.parts.cluster.description import Cluster
from azq.parts.cluster.targets.containers import (
    DAEMON_PORT,
    GATEWAY_PORT,
    HEALTHY,
    HOME,
    IMAGE,
    PASSWORD,
    SECRETS,
    SHARED_MEMORY,
    ContainerProcess,
    creation,
    planes,
    processes,
)
from azq.parts.cluster.targets.files import RenderedFile, Rendering, filled

PUBLISHED = {"daemon": DAEMON_PORT, "gateway": GATEWAY_PORT}
_template = partial(filled, "compose")


def compose(cluster: Cluster) -> Rendering:
    """`compose.yaml`; each service reads the secrets of its role alone."""
    for name, group in cluster.machines.items():
        if cluster.kinds[group.kind].gpus and group.count > 1:
            raise ConfigError(
                f"machines.{name}: compose is one machine, and {group.count} with GPUs are not; --smallest renders one of each"
            )
    services = {service.name: service for process in processes(cluster) for service in _by_gpu(process)}
    roles = dict.fromkeys(str(process.role) for process in services.values() if process.role != "broker")
    files = {"broker": PASSWORD, **{role: f"{role}.env" for role in (*roles, "client")}}
    head = _template(
        "compose.yaml",
        name=cluster.name,
        image=cluster.image or f"${{AZQ_IMAGE:-{IMAGE}}}",
        pull=None if cluster.image else "never",
        alive=["CMD-SHELL", HEALTHY.replace("$", "$$")],
        volumes={"runs": {}, **{plane: {} for plane in planes(cluster)}},
        secrets={name: {"file": f"./secrets/{file}"} for name, file in files.items()},
        creation=creation(cluster),
        credentials=SECRETS,
        secret=_secret("client", "azq.env"),
    )
    brokers = {plane: {"condition": "service_healthy"} for plane in planes(cluster)}
    text = head + "".join(_service(process, brokers) for process in services.values())
    return {"compose.yaml": RenderedFile(text), ".gitignore": RenderedFile("secrets/\n")}


def _by_gpu(process: ContainerProcess) -> list[ContainerProcess]:
    """A service for each GPU, for copies of one would all see the same."""
    if process.role != "inference" or not process.gpus or process.count == 1:
        return [process]
    first, count = process.gpu, process.count
    return [replace(process, name=f"{process.name}-{gpu}", gpu=gpu, count=1) for gpu in range(first, first + count)]


def _service(process: ContainerProcess, brokers: dict[str, Any]) -> str:
    served, is_broker = PUBLISHED.get(process.role), process.role == "broker"
    created = {"run": {"condition": "service_completed_successfully"}} if process.role == "learner" else {}
    return _template(
        "service.yaml",
        name=process.name,
        command=process.arguments,
        environment=process.environment(),
        scale=process.count,
        grace=f"{process.grace_s}s",
        ports=[f"127.0.0.1:{served}:{served}"] if served else None,
        volumes=[f"{process.name if is_broker else 'runs'}:{HOME}"],
        secret=_secret("broker", PASSWORD) if is_broker else _secret(process.role, "azq.env"),
        after=None if is_broker else {**brokers, **created},
        shared=SHARED_MEMORY.replace("Gi", "g") if process.gpus > 1 else None,
        deploy={"resources": {"reservations": {"devices": [_gpus(process)]}}} if process.gpus else None,
    )


def _secret(name: str, file: str) -> dict[str, str]:
    return {"source": name, "target": f"{SECRETS}/{file}"}


def _gpus(process: ContainerProcess) -> dict[str, Any]:
    return {"driver": "nvidia", "device_ids": [str(process.gpu + number) for number in range(process.gpus)], "capabilities": ["gpu"]}
