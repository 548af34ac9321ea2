"""A cluster on one machine with containers: `compose.yaml`, for docker and podman. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from azq.cluster.description import Cluster
from azq.cluster.targets.containers import (
    DAEMON_PORT,
    GATEWAY_PORT,
    HEALTHY,
    HOME,
    IMAGE,
    PASSWORD,
    SECRETS,
    ContainerProcess,
    as_yaml,
    creation,
    planes,
    processes,
)
from azq.cluster.targets.files import RenderedFile, Rendering
from azq.errors import ConfigError

HEAD = """Cluster {name} on this machine: `azq cluster secrets FILE --out secrets` once, then `docker compose up -d`; the dashboard is at
http://127.0.0.1:8080, its token in secrets/daemon.token. `docker compose up -d --scale selfplay=4` has more games made.
The image is the cluster's `image`; without one what ops/containers/build.sh made here, or AZQ_IMAGE names, is never pulled."""
PUBLISHED = {"daemon": DAEMON_PORT, "gateway": GATEWAY_PORT}
SETUP = "run"


def compose(cluster: Cluster) -> Rendering:
    """`compose.yaml`; each service reads the secrets of its own role alone."""
    for name, group in cluster.machines.items():
        if cluster.kinds[group.kind].gpus and group.count > 1:
            raise ConfigError(
                f"machines.{name}: compose is one machine, and {group.count} with GPUs are not; --smallest renders one of each"
            )
    found = {each.name: each for process in processes(cluster) for each in _by_gpu(process)}
    common, brokers = _contained(cluster.image), {plane: {"condition": "service_healthy"} for plane in planes(cluster)}
    services = {name: _service(process, common, brokers) for name, process in found.items()}
    roles = dict.fromkeys(str(process.role) for process in found.values() if process.role != "broker")
    document = {
        "name": cluster.name,
        "x-azq": common,
        "x-brokers": brokers,
        "services": {**services, SETUP: _setup(cluster, common)},
        "volumes": {"runs": {}, **{plane: {} for plane in planes(cluster)}},
        "secrets": {name: {"file": f"./secrets/{file}"} for name, file in _secret_files(tuple(roles)).items()},
    }
    text = as_yaml(document, head=HEAD.format(name=cluster.name))
    for dumped, written in {"'<<'": "<<", "id001": "azq", "id002": "brokers"}.items():  # what services share is written once
        text = text.replace(dumped, written)
    return {"compose.yaml": RenderedFile(text), ".gitignore": RenderedFile("secrets/\n")}


def _by_gpu(process: ContainerProcess) -> list[ContainerProcess]:
    """A service for each GPU, for copies of one would all see the same."""
    if process.role != "inference" or not process.gpus or process.count == 1:
        return [process]
    first, count = process.gpu, process.count
    return [replace(process, name=f"{process.name}-{gpu}", gpu=gpu, count=1) for gpu in range(first, first + count)]


def _secret_files(roles: tuple[str, ...]) -> dict[str, str]:
    return {"broker": PASSWORD, **{role: f"{role}.env" for role in roles}, "client": "client.env"}


def _service(process: ContainerProcess, common: dict[str, Any], brokers: dict[str, Any]) -> dict[str, Any]:
    served = PUBLISHED.get(process.role)
    waits: dict[str, Any] = {} if process.role == "broker" else {"depends_on": brokers}
    if process.role == "learner":
        waits = {"depends_on": {"<<": brokers, SETUP: {"condition": "service_completed_successfully"}}}
    return {
        "<<": common,
        "command": list(process.arguments),
        "environment": process.environment(),
        "scale": process.count,
        "stop_grace_period": f"{process.grace_s}s",
        **({"ports": [f"127.0.0.1:{served}:{served}"]} if served else {}),
        "volumes": [f"{process.name if process.role == 'broker' else 'runs'}:{HOME}"],
        "secrets": [_secret("broker", PASSWORD) if process.role == "broker" else _secret(process.role, "azq.env")],
        **waits,
        **({"deploy": {"resources": {"reservations": {"devices": [_gpus(process)]}}}} if process.gpus else {}),
    }


def _setup(cluster: Cluster, common: dict[str, Any]) -> dict[str, Any]:
    return {
        "<<": common,
        "entrypoint": ["sh", "-c", creation(cluster)],
        "environment": {"CREDENTIALS_DIRECTORY": SECRETS},
        "restart": "on-failure",
        "healthcheck": {"disable": True},
        "secrets": [_secret("client", "azq.env")],
        "depends_on": {"daemon": {"condition": "service_healthy"}},
    }


def _contained(image: str) -> dict[str, Any]:
    """What all services have in common: the image, when it is well, and no right that azq does not need."""
    return {
        **({"image": image} if image else {"image": f"${{AZQ_IMAGE:-{IMAGE}}}", "pull_policy": "never"}),
        "restart": "unless-stopped",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "healthcheck": {"test": ["CMD-SHELL", HEALTHY.replace("$", "$$")], "interval": "10s", "timeout": "5s", "start_period": "300s"},
    }


def _secret(name: str, file: str) -> dict[str, str]:
    return {"source": name, "target": f"{SECRETS}/{file}"}


def _gpus(process: ContainerProcess) -> dict[str, Any]:
    return {"driver": "nvidia", "device_ids": [str(process.gpu + number) for number in range(process.gpus)], "capabilities": ["gpu"]}
