"""What Kubernetes is told: kustomize builds it, its schemas take it, and it says of each role what the role needs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from commands import parsed

from azq.config.host import DaemonConfig
from azq.errors import ConfigError
from azq.parts.cluster.description import cluster_of, read_cluster
from azq.parts.cluster.targets.containers import make
from azq.parts.cluster.targets.files import write
from azq.parts.cluster.targets.kubernetes import QUEUE, kubernetes
from azq.wire import keys

MAXOUT = read_cluster(Path(__file__).parents[4] / "ops" / "clusters" / "maxout.toml")


def rendered(cluster):
    files = kubernetes(cluster)
    return [document for name, file in files.items() if name.endswith(".yaml") for document in yaml.safe_load_all(file.text)]


def built(cluster, folder):
    """What `kubectl apply -k` would send."""
    if not shutil.which("kubectl"):
        pytest.skip("no kubectl here")
    write(kubernetes(cluster), "kubernetes", folder)
    make(cluster, folder / "secrets")
    answer = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(answer.stdout))


def named(documents, kind):
    return {document["metadata"]["name"]: document for document in documents if document.get("kind") == kind}


def pods(documents):
    return {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]
        for document in documents
        if document["kind"] in ("Deployment", "StatefulSet", "Job")
    }


def test_kustomize_builds_it_and_every_reference_leads_somewhere(tmp_path):
    documents = built(MAXOUT, tmp_path)
    secrets = named(documents, "Secret")
    for pod in pods(documents).values():
        assert {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume} <= secrets.keys()
        assert {container["image"] for container in pod["containers"]} == {"azq:0.1.0"}
    (monitor,) = named(documents, "TriggerAuthentication").values()
    assert {target["name"] for target in monitor["spec"]["secretTargetRef"]} == {"monitor"} <= secrets.keys()
    assert {document["metadata"].get("namespace") for document in documents if document["kind"] != "Namespace"} == {"maxout"}
    workloads = named(documents, "Deployment") | named(documents, "StatefulSet")
    for name, budget in named(documents, "PodDisruptionBudget").items():
        selected = budget["spec"]["selector"]["matchLabels"]
        assert selected.items() <= workloads[name]["spec"]["template"]["metadata"]["labels"].items()
    for name, service in named(documents, "Service").items():
        assert service["spec"]["selector"].items() <= workloads[name]["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # the validator leaves its schemas' files to the garbage collector
def test_its_schemas_take_it(tmp_path):
    validate = pytest.importorskip("kubernetes_validate")
    for document in built(MAXOUT, tmp_path):
        if not document["apiVersion"].startswith("keda.sh/"):
            validate.validate(document, validate.latest_version(), strict=True)


def test_gpus_of_one_process_have_shared_memory_to_meet_in():
    for pod in pods(rendered(MAXOUT)).values():
        (container,) = pod["containers"]
        shared = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}} in pod["volumes"]
        several = int(container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) > 1
        assert shared == several == ({"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"])
    assert "/dev/shm" in str(pods(rendered(MAXOUT))["learner"])


def test_every_command_is_one_that_azq_takes():
    found = pods(rendered(MAXOUT))
    for name, pod in found.items():
        if name != "run":
            parsed(pod["containers"][0]["args"])
    assert found["learner"]["containers"][0]["args"] == ["learner", "--run", "beasty_bar"]


def test_each_role_gets_what_its_machines_have():
    documents = rendered(MAXOUT)
    asked = {name: pod["containers"][0]["resources"] for name, pod in pods(documents).items()}
    assert asked["learner"]["limits"] == {"memory": "1843Gi", "nvidia.com/gpu": "8"}
    assert asked["inference"]["limits"]["nvidia.com/gpu"] == "1"
    assert asked["selfplay"]["requests"] == {"cpu": "7200m", "memory": "14Gi"}
    assert named(documents, "Deployment")["inference"]["spec"]["replicas"] == 16
    assert pods(documents)["inference"]["nodeSelector"] == {"azq/machine-kind": "g5.48xlarge"}
    assert named(documents, "StatefulSet").keys() == {"control", "data", "data1", "data2", "data3", "learner"}


def test_workers_follow_their_queue_and_the_daemon_keeps_jobs_for_all_of_them():
    documents = rendered(MAXOUT)
    scaled = named(documents, "ScaledObject")["selfplay"]["spec"]
    (trigger,) = scaled["triggers"]
    assert trigger["metadata"]["listName"] == f"{keys.CELERY_PREFIX}{QUEUE}"
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (1, 96)
    deployment = named(documents, "Deployment")[scaled["scaleTargetRef"]["name"]]
    assert "replicas" not in deployment["spec"]
    (daemon,) = pods(documents)["daemon"]["containers"]
    ahead = int({each["name"]: each["value"] for each in daemon["env"]}["AZQ_DAEMON__JOBS_AHEAD"])
    assert DaemonConfig(jobs_ahead=ahead).jobs_ahead == 96


def test_every_pod_is_confined_and_watched():
    for name, pod in pods(rendered(MAXOUT)).items():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert name == "run" or {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()


def test_no_file_holds_a_secret_and_nobody_is_let_in_by_default():
    documents = rendered(MAXOUT)
    assert not named(documents, "Secret")
    policies = {name: policy["spec"] for name, policy in named(documents, "NetworkPolicy").items()}
    assert policies["nobody"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    (rule,) = policies["brokers"]["ingress"]
    assert rule["ports"] == [{"port": 6379}]
    assert all("ipBlock" not in peer for peer in rule["from"])


def test_machines_that_may_be_taken_back_are_tolerated():
    machines = {
        "all": {"kind": "desk", "roles": ["broker", "daemon", "learner", "inference"]},
        "spot": {"kind": "desk", "count": 2, "roles": ["selfplay"], "spot": True},
    }
    cluster = cluster_of(
        {"cluster": {"name": "c"}, "kinds": {"desk": {"per_hour": 0.1, "vcpus": 4, "memory_gb": 16}}, "machines": machines}, ""
    )
    found = pods(rendered(cluster))
    assert found["selfplay"]["tolerations"][0]["key"] == "azq/spot"
    assert "tolerations" not in found["learner"]


def test_a_gpu_is_given_to_one_pod():
    machines = {"all": {"kind": "tower", "roles": ["broker", "daemon", "learner", "inference", "selfplay"]}}
    kinds = {"tower": {"per_hour": 0.1, "vcpus": 4, "memory_gb": 16, "gpus": 1}}
    with pytest.raises(ConfigError, match=r"machines\.all: a GPU is one pod's"):
        kubernetes(cluster_of({"cluster": {"name": "c"}, "kinds": kinds, "machines": machines}, ""))
