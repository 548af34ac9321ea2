"""What compose is told: commands that azq knows, each role with its own secrets, health, and no right too many."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import parsed

from azq.config import load
from azq.errors import ConfigError
from azq.parts.cluster.description import cluster_of, read_cluster
from azq.parts.cluster.targets.compose import compose
from azq.parts.cluster.targets.containers import ALIVE, HEALTHY, SILENT_AFTER_S, contents, make, planes
from azq.parts.cluster.targets.registry import render
from azq.wire import acl

OPS = Path(__file__).parents[4] / "ops"
BOX = read_cluster(OPS / "clusters" / "box.toml")
GPUS: dict[str, Any] = {
    "cluster": {"name": "tower"},
    "kinds": {"tower": {"per_hour": 0.1, "vcpus": 16, "memory_gb": 64, "gpus": 3}},
    "machines": {"tower": {"kind": "tower", "roles": ["broker", "daemon", "learner", "inference", "selfplay", "gateway"]}},
    "run": {"game": "othello", "name": "big", "preset": "box-2gpu", "settings": ["search.num_simulations=64"], "until": "steps=9"},
}


def composed(cluster):
    return yaml.safe_load(compose(cluster)["compose.yaml"].text)


@pytest.mark.parametrize("cluster", [BOX, cluster_of(GPUS, "")], ids=["box", "tower"])
def test_every_command_is_one_that_azq_takes(cluster):
    for service in composed(cluster)["services"].values():
        if "command" in service:
            parsed(service["command"])
            continue
        shell, flag, script = service["entrypoint"]
        assert (shell, flag) == ("sh", "-c")
        for command in script.split(" || "):
            azq, *arguments = shlex.split(command)
            assert azq == "azq"
            parsed(arguments)


def test_the_run_is_created_as_the_file_says():
    *_, created = composed(cluster_of(GPUS, ""))["services"]["run"]["entrypoint"][2].split(" || ")
    values = parsed(shlex.split(created)[1:])
    assert (values["run"], values["game"], values["preset"], values["until"]) == ("big", "othello", "box-2gpu", "steps=9")
    assert values["settings"] == ["search.num_simulations=64"]


def test_what_the_file_sets_for_all_hosts_is_in_every_process_of_azq():
    services = composed(cluster_of({**GPUS, "settings": {"inference": {"max_batch": 512}}}, ""))["services"]
    told = {name: service["environment"].get("AZQ_INFERENCE__MAX_BATCH") for name, service in services.items() if name != "run"}
    assert told == {name: None if name in planes(cluster_of(GPUS, "")) else "512" for name in told}


@pytest.mark.parametrize("said", ["yes", "no: 1", "'\"$$x ${y}", "# a", "two\nlines", "\N{SNOWMAN}\\"])
def test_a_value_stays_what_it_is_in_yaml(said):
    services = composed(cluster_of({**GPUS, "settings": {"inference": {"device": said}}}, ""))["services"]
    assert services["selfplay"]["environment"]["AZQ_INFERENCE__DEVICE"] == said


def test_a_learner_and_the_inference_of_one_machine_share_its_gpus():
    services = composed(cluster_of(GPUS, ""))["services"]
    devices = {
        name: service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for name, service in services.items()
        if "deploy" in service
    }
    assert devices == {"learner": ["0"], "inference-1": ["1"], "inference-2": ["2"]}
    assert services["selfplay"]["scale"] == 2  # of eight cores each
    assert services["gateway"]["ports"] == ["127.0.0.1:8090:8090"]


def test_gpus_of_one_process_have_shared_memory_to_meet_in():
    machines = {
        "train": {"kind": "tower", "roles": ["broker", "daemon", "learner"]},
        "play": {"kind": "tower", "roles": ["inference", "selfplay"]},
    }
    services = composed(cluster_of({**GPUS, "machines": machines}, ""))["services"]
    assert {name: service["shm_size"] for name, service in services.items() if "shm_size" in service} == {"learner": "8g"}


def test_machines_with_gpus_are_not_one_machine():
    with pytest.raises(ConfigError, match=r"machines\.inference: compose is one machine, and 2 with GPUs are not"):
        compose(read_cluster(OPS / "clusters" / "maxout.toml"))


def test_each_service_is_watched_confined_and_reads_the_secrets_of_its_role():
    document = composed(BOX)
    for name, service in document["services"].items():
        assert service["image"].startswith("${AZQ_IMAGE:-azq:")
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        (secret,) = service["secrets"]
        assert secret["source"] in document["secrets"]
        if name != "run":
            assert service["healthcheck"]["test"][1].replace("$$", "$") == HEALTHY
            assert service["environment"]["AZQ_ALIVE_FILE"] == ALIVE
    assert document["services"]["learner"]["depends_on"]["run"] == {"condition": "service_completed_successfully"}
    assert {"control", "data"} <= document["services"]["learner"]["depends_on"].keys()


def test_health_is_the_age_of_a_file(tmp_path):
    alive = tmp_path / "alive"

    def well() -> bool:
        return subprocess.run(["sh", "-c", HEALTHY.replace(ALIVE, str(alive))], stderr=subprocess.DEVNULL, check=False).returncode == 0

    assert not well()
    alive.touch()
    assert well()
    subprocess.run(["touch", "-d", f"-{2 * SILENT_AFTER_S} seconds", alive], check=True)
    assert not well()


def test_what_a_service_reads_are_settings_of_azq(monkeypatch, tmp_path):
    make(BOX, tmp_path / "secrets")
    document = composed(BOX)
    for name, service in document["services"].items():
        with monkeypatch.context() as patched:
            for key, value in service["environment"].items():
                patched.setenv(key, value)
            folder = tmp_path / name
            folder.mkdir()
            (secret,) = service["secrets"]
            kept = tmp_path / document["secrets"][secret["source"]]["file"]
            (folder / "azq.env").write_text(kept.read_text() if name not in ("control", "data") else "")
            patched.setenv("CREDENTIALS_DIRECTORY", str(folder))
            config = load()
        if name == "learner":
            assert config.broker.control_url.startswith("redis://azq-learner:")
            assert config.broker.data_planes[0].endswith("@data:6379/0")
            assert config.store.url == "redis"
        assert bool(config.daemon.token.get_secret_value()) == (name in ("daemon", "run"))


def test_secrets_are_made_once_and_follow_the_brokers(tmp_path):
    folder = tmp_path / "secrets"
    names = make(BOX, folder)
    first = {name: (folder / name).read_text() for name in names}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {name: (folder / name).read_text() for name in make(BOX, folder)} == first
    password = first["broker.password"].strip()
    assert f"azq-worker:{acl.role_password(password, 'worker')}@control:6379" in first["worker.env"]
    assert not [name for name, text in first.items() if password in text and name != "broker.password"]
    (folder / "broker.password").write_text("short\n")
    with pytest.raises(ConfigError, match="holds no word of 16 letters"):
        make(BOX, folder)


def test_several_data_planes_are_all_told():
    told = contents("p" * 24, "t" * 24, ("control", "data", "data1"))
    assert told["inference.env"].count("@data1:6379/0") == told["inference.env"].count("@data:6379/0") == 1


def test_a_cluster_that_cannot_work_is_not_rendered():
    machines = {"all": {"kind": "tower", "roles": ["broker", "daemon", "learner", "inference"]}}
    with pytest.raises(ConfigError, match="cluster tower: machines: no machine makes games"):
        render(cluster_of({**GPUS, "machines": machines}, ""), "compose")
    with pytest.raises(ConfigError, match=r"no target 'nomad'; there are compose"):
        render(BOX, "nomad")


def test_ranks_on_machines_of_their_own_are_refused():
    more = {**GPUS["machines"], "other": {"kind": "tower", "roles": ["rank"]}}
    with pytest.raises(ConfigError, match=r"machines\.other: in containers a learner trains on the GPUs of one machine"):
        compose(cluster_of({**GPUS, "machines": more}, ""))
