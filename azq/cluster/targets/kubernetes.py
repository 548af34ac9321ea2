"""A cluster as objects of Kubernetes, put together by kustomize. Pure.

Self-play follows its queue by KEDA, for an autoscaler by itself sees no queue's length. While a run wants more games the daemon keeps as
many jobs waiting as there may be workers; once it is over, paused or ahead of its learner none waits, and one worker stays: without any, no
jobs are made.
"""

from __future__ import annotations

from typing import Any

from azq.cluster.description import Cluster
from azq.cluster.targets.containers import (
    BROKER_PORT,
    CONTROL,
    DAEMON_PORT,
    GATEWAY_PORT,
    HEALTHY,
    HOME,
    IMAGE,
    PASSWORD,
    SECRETS,
    TAG,
    ContainerProcess,
    as_yaml,
    creation,
    processes,
)
from azq.cluster.targets.files import RenderedFile, Rendering
from azq.errors import ConfigError
from azq.wire import keys
from azq.wire.kinds import Kind, queue_name

Object = dict[str, Any]

HEAD = """Cluster {name} in Kubernetes: `azq cluster secrets FILE --out secrets` beside this file once, then `kubectl apply -k .`
KEDA (keda.sh) has to be there. `kubectl -n {name} port-forward deploy/daemon 8080` shows the dashboard at http://127.0.0.1:8080.
Nodes carry the label {label} with the kind that the cluster's file names; spot ones may have the taint azq/spot."""
KIND_LABEL, SPOT_TAINT = "azq/machine-kind", "azq/spot"
QUEUE = queue_name(Kind.SELFPLAY, TAG)
STATEFUL = {"broker": 20, "learner": 200}  # roles that keep something, and their disk in GB
PORTS = {"broker": BROKER_PORT, "daemon": DAEMON_PORT, "gateway": GATEWAY_PORT}
LEAST = {"broker": (1, 4), "daemon": (1, 2), "gateway": (1, 2), "learner": (2, 8), "worker": (1, 2), "inference": (1, 4)}  # cores, GB
USER = 10001  # of the image
LONGEST_START_S = 600  # a long log is read, a large file is loaded
COOL_DOWN_S = 120  # between the last waiting job and the end of the workers
MONITOR = "monitor"
MOST_AHEAD = 1024  # daemon.jobs_ahead takes no more


def kubernetes(cluster: Cluster) -> Rendering:
    """A kustomization and the files that it names; secrets come from files that `azq cluster secrets` makes."""
    for name, group in cluster.machines.items():
        if {"learner", "inference"} <= set(group.roles) and cluster.kinds[group.kind].gpus == 1:
            raise ConfigError(f"machines.{name}: a GPU is one pod's, and learner and inference are two; give inference machines of its own")
    found = list(processes(cluster))
    files = {
        "namespace.yaml": [_namespace(cluster.name)],
        "brokers.yaml": _workloads(found, cluster, "broker"),
        "daemon.yaml": [*_workloads(found, cluster, "daemon", "gateway"), _setup(cluster)],
        "learner.yaml": _workloads(found, cluster, "learner"),
        "workers.yaml": _workloads(found, cluster, "worker", "inference"),
        "scaling.yaml": [_monitor(), *(_scaled(process) for process in found if _scales(process))],
        "network.yaml": _network(),
    }
    head = HEAD.format(name=cluster.name, label=KIND_LABEL)
    return {
        "kustomization.yaml": RenderedFile(as_yaml(_kustomization(cluster, list(files), found), head=head)),
        **{name: RenderedFile(as_yaml(*objects)) for name, objects in files.items()},
        ".gitignore": RenderedFile("secrets/\n"),
    }


def _kustomization(cluster: Cluster, resources: list[str], found: list[ContainerProcess]) -> Object:
    roles = dict.fromkeys(str(process.role) for process in found if process.role != "broker")
    name, _, digest = cluster.image.partition("@")
    own = [{"name": role, "files": [f"azq.env=secrets/{role}.env"]} for role in (*roles, "client")]
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": cluster.name,
        "labels": [{"pairs": {"app.kubernetes.io/part-of": "azq"}}],
        "images": [{"name": "azq", "newName": name, "digest": digest} if digest else {"name": "azq", "newTag": IMAGE.partition(":")[2]}],
        "resources": resources,
        "secretGenerator": [
            {"name": "broker", "files": [f"secrets/{PASSWORD}"]},
            {"name": MONITOR, "envs": [f"secrets/{MONITOR}.env"], "options": {"disableNameSuffixHash": True}},  # KEDA's objects name it
            *own,
        ],
    }


def _namespace(name: str) -> Object:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _workloads(found: list[ContainerProcess], cluster: Cluster, *roles: str) -> list[Object]:
    """What runs processes of these roles, their services, and how many of each may be missing at a time."""
    most = min(MOST_AHEAD, sum(process.count for process in found if _scales(process)))
    return [
        part
        for process in found
        if process.role in roles
        for part in (_workload(process, cluster, most), *_service(process), _disruption(process))
    ]


def _scales(process: ContainerProcess) -> bool:
    return QUEUE in process.arguments


def _labels(process: ContainerProcess) -> dict[str, str]:
    return {"app.kubernetes.io/name": process.name, "azq/role": str(process.role)}


def _workload(process: ContainerProcess, cluster: Cluster, most: int) -> Object:
    stateful = STATEFUL.get(process.role)
    spec: Object = {
        **({} if _scales(process) else {"replicas": process.count}),  # the number of those that scale is KEDA's
        "selector": {"matchLabels": _labels(process)},
        "template": {"metadata": {"labels": _labels(process)}, "spec": _pod(process, cluster, most)},
    }
    if not stateful:
        only_one: Object = {"strategy": {"type": "Recreate"}} if process.role == "daemon" else {}  # its lock refuses a second
        return _object("apps/v1", "Deployment", process.name, {**spec, **only_one})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": f"{stateful}Gi"}}}
    claims = {"volumeClaimTemplates": [{"metadata": {"name": "runs"}, "spec": claim}]}
    return _object("apps/v1", "StatefulSet", process.name, {"serviceName": process.name, **spec, **claims})


def _pod(process: ContainerProcess, cluster: Cluster, most: int) -> Object:
    environment = process.environment()
    if process.role == "daemon":
        environment["AZQ_DAEMON__JOBS_AHEAD"] = str(max(1, most))
    scratch: list[Object] = [] if process.role in STATEFUL else [{"name": "runs", "emptyDir": {}}]
    spot = [{"key": SPOT_TAINT, "operator": "Exists", "effect": "NoSchedule"}] if process.spot else []
    gpu = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}] if process.gpus else []
    return {
        **_confined(process.grace_s),
        **({"nodeSelector": {KIND_LABEL: process.kind}} if process.kind else {}),
        **({"tolerations": [*spot, *gpu]} if spot or gpu else {}),
        "containers": [
            {
                "name": "azq",
                **_image(cluster),
                "args": list(process.arguments),
                "env": [{"name": name, "value": value} for name, value in environment.items()],
                **({"ports": [{"containerPort": PORTS[process.role]}]} if process.role in PORTS else {}),
                **_probes(process),
                "resources": _resources(process),
                "securityContext": _RIGHTLESS,
                "volumeMounts": [_mounted("runs", HOME), _mounted("tmp", "/tmp"), _mounted("secrets", SECRETS, readOnly=True)],
            }
        ],
        "volumes": [*scratch, {"name": "tmp", "emptyDir": {}}, {"name": "secrets", "secret": {"secretName": str(process.role)}}],
    }


def _image(cluster: Cluster) -> Object:
    """What kustomization.yaml names: by its hash, or as nodes have it."""
    return {"image": "azq", "imagePullPolicy": "IfNotPresent" if cluster.image else "Never"}


_RIGHTLESS: Object = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def _confined(grace_s: int) -> Object:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _probes(process: ContainerProcess) -> Object:
    alive: Object = {"exec": {"command": ["sh", "-c", HEALTHY]}, "periodSeconds": 10}
    ready: Object = {"httpGet": {"path": "/readyz", "port": DAEMON_PORT}, "periodSeconds": 5} if process.role == "daemon" else alive
    return {
        "startupProbe": {**alive, "failureThreshold": LONGEST_START_S // 10},
        "livenessProbe": {**alive, "failureThreshold": 2},
        "readinessProbe": ready,
    }


def _resources(process: ContainerProcess) -> Object:
    """What its share of the machine is, less a tenth for the node's own; a bound on memory, none on cores."""
    least_cores, least_gb = LEAST[process.role]
    memory = f"{max(least_gb, int(process.memory_gb * 0.9))}Gi"
    gpus = {"nvidia.com/gpu": str(process.gpus)} if process.gpus else {}
    cores = f"{max(1000 * least_cores, int(process.cores * 900))}m"
    return {"requests": {"cpu": cores, "memory": memory, **gpus}, "limits": {"memory": memory, **gpus}}


def _mounted(name: str, path: str, **more: Any) -> Object:
    return {"name": name, "mountPath": path, **more}


def _service(process: ContainerProcess) -> list[Object]:
    if process.role not in PORTS and process.role not in STATEFUL:
        return []
    ports = {"ports": [{"port": PORTS[process.role]}]} if process.role in PORTS else {"clusterIP": "None"}
    return [_object("v1", "Service", process.name, {"selector": _labels(process), **ports})]


def _disruption(process: ContainerProcess) -> Object:
    """Brokers, daemon and learner are moved when somebody says so; of the others a quarter at a time."""
    single = process.role in ("broker", "daemon", "learner")
    missing = {"maxUnavailable": 0 if single else "25%"}
    return _object("policy/v1", "PodDisruptionBudget", process.name, {**missing, "selector": {"matchLabels": _labels(process)}})


def _setup(cluster: Cluster) -> Object:
    container = {
        "name": "azq",
        **_image(cluster),
        "command": ["sh", "-c", creation(cluster)],
        "env": [{"name": "CREDENTIALS_DIRECTORY", "value": SECRETS}],
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": _RIGHTLESS,
        "volumeMounts": [_mounted("secrets", SECRETS, readOnly=True), _mounted("tmp", "/tmp")],
    }
    volumes = [{"name": "secrets", "secret": {"secretName": "client"}}, {"name": "tmp", "emptyDir": {}}]
    pod = {**_confined(30), "restartPolicy": "OnFailure", "containers": [container], "volumes": volumes}
    labels = {"app.kubernetes.io/name": "run", "azq/role": "client"}
    return _object("batch/v1", "Job", "run", {"backoffLimit": 30, "template": {"metadata": {"labels": labels}, "spec": pod}})


def _monitor() -> Object:
    targets = [{"parameter": name, "name": MONITOR, "key": name} for name in ("username", "password")]
    return _object("keda.sh/v1alpha1", "TriggerAuthentication", MONITOR, {"secretTargetRef": targets})


def _scaled(process: ContainerProcess) -> Object:
    trigger = {
        "type": "redis",
        "metadata": {
            "address": f"{CONTROL}:{BROKER_PORT}",
            "listName": keys.CELERY_PREFIX + QUEUE,
            "listLength": "1",
            "databaseIndex": "0",
        },
        "authenticationRef": {"name": MONITOR},
    }
    bounds = {"minReplicaCount": 1, "maxReplicaCount": process.count, "cooldownPeriod": COOL_DOWN_S}
    return _object(
        "keda.sh/v1alpha1", "ScaledObject", process.name, {"scaleTargetRef": {"name": process.name}, **bounds, "triggers": [trigger]}
    )


def _network() -> list[Object]:
    """Nobody talks to anybody, but all to brokers and names, clients to the daemon, KEDA to the control plane, browsers to the gateway."""
    all_pods: Object = {"podSelector": {}}
    ours: Object = {"podSelector": {"matchExpressions": [{"key": "azq/role", "operator": "Exists"}]}}
    keda: Object = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return [
        _policy("nobody", all_pods["podSelector"], {"policyTypes": ["Ingress", "Egress"]}),
        _policy(
            "inside",
            all_pods["podSelector"],
            {"policyTypes": ["Egress"], "egress": [{"to": [ours]}, {"to": [{"namespaceSelector": {}}], "ports": names}]},
        ),
        _policy("brokers", _of_role("broker"), {"ingress": [{"from": [ours, keda], "ports": [{"port": BROKER_PORT}]}]}),
        _policy("daemon", _of_role("daemon"), {"ingress": [{"from": [ours], "ports": [{"port": DAEMON_PORT}]}]}),
        _policy("gateway", _of_role("gateway"), {"ingress": [{"ports": [{"port": GATEWAY_PORT}]}]}),
    ]


def _of_role(role: str) -> Object:
    return {"matchLabels": {"azq/role": role}}


def _policy(name: str, pods: Object, rules: Object) -> Object:
    return _object("networking.k8s.io/v1", "NetworkPolicy", name, {"podSelector": pods, **({"policyTypes": ["Ingress"]} | rules)})


def _object(version: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
