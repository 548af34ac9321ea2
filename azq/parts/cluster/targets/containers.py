"""What runs in containers for a cluster: a process of azq each, by the role whose rights it has, and the secrets of each role."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from azq import __version__
from azq.errors import ConfigError
from azq.files import make_folders, publish_file
from azq.host.brokers import read_password
from azq.parts.cluster.arithmetic import broker_count, read_figures
from azq.parts.cluster.description import Cluster, MachineGroup, MachineKind, Role, as_variables
from azq.wire import acl, keys
from azq.wire.kinds import Kind, queue_name
from azq.wire.shards import data_names

IMAGE = f"azq:{__version__}"
CONTROL = "control"
BROKER_PORT, DAEMON_PORT, GATEWAY_PORT = 6379, 8080, 8090
HOME = "/var/lib/azq/runs"
SECRETS = "/run/secrets"  # where azq looks for `azq.env`, as in systemd's credentials
PASSWORD = "broker.password"
ALIVE = "/tmp/azq-alive"
SILENT_AFTER_S = 20  # twice what a process may be silent under systemd
TAG = "cpu"  # of jobs: what every worker has
SHARED_MEMORY = "8Gi"  # of /dev/shm, where NCCL and a learner's ranks meet: engines give 64 MB
POD_CORES = 8  # that one self-play container searches with
SCALED: tuple[Role, ...] = ("selfplay", "eval", "inference", "gateway")
GRACE_S = {"worker": 60, "learner": 150, "inference": 45, "broker": 60}  # as the units of systemd, and a little more

HEALTHY = f"test $(($(date +%s) - $(stat -c %Y {ALIVE}))) -lt {SILENT_AFTER_S}"


@dataclass(frozen=True, slots=True)
class ContainerProcess:
    """One command, how often, and what it needs."""

    name: str
    role: keys.Role | str  # whose secrets it reads; `broker`: the owner's password
    arguments: tuple[str, ...]  # behind `azq`
    count: int = 1
    cores: int = 0  # 0: as many as there are
    memory_gb: float = 0.0
    gpus: int = 0
    gpu: int = 0  # the first of them on its machine
    kind: str = ""  # of its machines
    spot: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)  # of all hosts, as variables

    @property
    def grace_s(self) -> int:
        return GRACE_S.get(self.role, 30)

    def environment(self) -> dict[str, str]:
        common = {"AZQ_HOME": HOME, "AZQ_LOG": "json", "AZQ_ALIVE_FILE": ALIVE}
        if self.role == "broker":
            return common
        listens = {
            role: {f"AZQ_{role.upper()}__HOST": "0.0.0.0", f"AZQ_{role.upper()}__PLAINTEXT": "true"} for role in ("daemon", "gateway")
        }
        return {**common, **self.settings, "CREDENTIALS_DIRECTORY": SECRETS, "AZQ_STORE__URL": "redis", **listens.get(self.role, {})}


def planes(cluster: Cluster) -> tuple[str, ...]:
    """The brokers, which are hosts by these names: the control plane and as many data planes as the GPUs' leaves need."""
    gpus = cluster.total("inference", "gpus")
    return (CONTROL, *data_names(max(1, broker_count(read_figures()[0], gpus)) if gpus else 1))


def processes(cluster: Cluster) -> list[ContainerProcess]:
    """Everything but the creation of the run, brokers first; raises `ConfigError` for ranks on separate machines."""
    return [replace(process, settings=as_variables(cluster.settings)) for process in _processes(cluster)]


def _processes(cluster: Cluster) -> Iterator[ContainerProcess]:
    if alone := [name for name, group in cluster.of_role("rank").items() if "learner" not in group.roles]:
        raise ConfigError(
            f"machines.{alone[0]}: in containers a learner trains on the GPUs of one machine; give rank to the learner's alone"
        )
    for plane in planes(cluster):
        arguments = ("broker", "--plane", plane, "--listen", f"0.0.0.0:{BROKER_PORT}", "--password-file", f"{SECRETS}/{PASSWORD}")
        yield ContainerProcess(plane, "broker", arguments)
    yield ContainerProcess("daemon", "daemon", ("daemon",))
    (learns,) = cluster.of_role("learner").values()
    kind = cluster.kinds[learns.kind]
    gpus = learner_gpus(learns, kind)
    part = gpus / kind.gpus if gpus else 1 / len(learns.roles)
    yield ContainerProcess(
        "learner",
        "learner",
        ("learner", "--run", cluster.run.name),
        cores=int(kind.vcpus * part),
        memory_gb=kind.memory_gb * part,
        gpus=gpus,
        kind=learns.kind,
        spot=learns.spot,
    )
    for role in SCALED:
        groups = cluster.of_role(role)
        for group_name, group in groups.items():
            yield _of_group(cluster, role, f"{role}-{group_name}" if len(groups) > 1 else role, group)


def learner_gpus(group: MachineGroup, kind: MachineKind) -> int:
    """All of its machine, or one where the others infer."""
    return min(kind.gpus, 1) if "inference" in group.roles else kind.gpus


def _of_group(cluster: Cluster, role: Role, name: str, group: MachineGroup) -> ContainerProcess:
    kind = cluster.kinds[group.kind]
    there = partial(ContainerProcess, name, kind=group.kind, spot=group.spot)
    if role == "gateway":
        return there("gateway", ("gateway",), group.count)
    if role == "inference":
        first = learner_gpus(group, kind) % max(1, kind.gpus) if "learner" in group.roles else 0
        gpus, of = kind.gpus - first, max(1, kind.gpus)
        device = ("inference", "--device", "cuda:0" if gpus else "cpu")
        cores, memory_gb = max(1, kind.vcpus // of), kind.memory_gb / of
        return there("inference", device, group.count * max(1, gpus), cores=cores, memory_gb=memory_gb, gpus=min(gpus, 1), gpu=first)
    queue = ("worker", "--queues", queue_name(Kind(role), TAG))
    if role == "eval":
        return there("worker", queue, group.count, cores=1)
    cores = max(1, min(POD_CORES, kind.vcpus))
    memory_gb = kind.memory_gb * cores / max(1, kind.vcpus)
    count = group.count * max(1, kind.vcpus // cores)
    return there("worker", (*queue, "--concurrency", str(cores)), count, cores=cores, memory_gb=memory_gb)


def creation(cluster: Cluster) -> str:
    """A shell's command that creates the run where there is none yet."""
    at = f"--url http://daemon:{DAEMON_PORT}"
    return f"azq runs show {cluster.run.name} {at} || {shlex.join(cluster.run.created_by())} {at}"


TOKEN = "daemon.token"


def make(cluster: Cluster, folder: Path) -> list[str]:
    """Writes them below a folder that only its owner enters, keeps password and token that are there; returns the names.

    A container's user is another than the folder's owner: the files are readable, the folder is not.
    Raises `ConfigError` where the folder cannot be written or holds something else under these names.
    """
    try:
        make_folders(folder)
        os.chmod(folder, 0o700)
        for name in (PASSWORD, TOKEN):
            if not (folder / name).exists():
                publish_file(folder / name, f"{secrets.token_hex(24)}\n".encode())
        files = contents(read_password(folder / PASSWORD), read_password(folder / TOKEN), planes(cluster))
        for name, text in files.items():
            publish_file(folder / name, text.encode())
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error}; name another folder") from None
    return [PASSWORD, TOKEN, *files]


def contents(password: str, token: str, hosts: tuple[str, ...]) -> Mapping[str, str]:
    """What each role reads as `azq.env`: its own user at the brokers, and for the daemon and its clients the token. Pure."""
    rest = f"AZQ_DAEMON__TOKEN={token}\n"
    files = {f"{role}.env": _addresses(role, password, hosts) + (rest if role == "daemon" else "") for role in keys.AZQ_ROLES}
    # What reads a queue's length has the rights of the monitor, which writes nothing.
    monitor = f"username={acl.role_user('flower')}\npassword={acl.role_password(password, 'flower')}\n"
    return {**files, "client.env": rest, "monitor.env": monitor}


def _addresses(role: keys.Role, password: str, hosts: tuple[str, ...]) -> str:
    login = f"{acl.role_user(role)}:{acl.role_password(password, role)}"
    control, *data = [f"redis://{login}@{host}:{BROKER_PORT}/0" for host in hosts]
    return f"AZQ_BROKER__CONTROL_URL={control}\nAZQ_BROKER__DATA_URLS={json.dumps(data)}\n"
