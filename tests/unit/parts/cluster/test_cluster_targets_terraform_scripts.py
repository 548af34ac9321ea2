"""Launch and shutdown against a Terraform and an AWS that only note what they are asked: once, again, and when something fails."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from azq.parts.cluster.description import read_cluster
from azq.parts.cluster.targets.files import static, write
from azq.parts.cluster.targets.registry import render
from azq.waiting import until

TERRAFORM = """#!/bin/sh
echo "terraform $*" >>"$LOG"
[ "$1" = output ] || exit 0
[ "$(cat "$(dirname "$LOG")/running")" = yes ] || { [ "$3" = trainer_id ] && exit 1; }
case $3 in
    machines) echo '["a-0/i-1","b-0/i-2"]' ;;
    redis_url) printf rediss://10.0.0.10:6379/0 ;;
    *) printf %s "$3" ;;
esac
"""
AWS = """#!/bin/sh
echo "aws $*" >>"$LOG"
case "$1 $2" in
    "s3api head-object") case " $READY " in *" ${6#health/} "*) ;; *) exit 1 ;; esac ;;
    "ssm send-command") [ -n "$DRAIN" ] && echo command-1 ;;
    "ssm get-command-invocation") echo "$DRAIN" ;;
    "sts get-caller-identity") [ -z "$NOBODY" ] ;;
esac
"""


@dataclass
class Desk:
    folder: Path

    def run(self, script: str, *arguments: str, running: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "running").write_text("yes" if running else "no")
        (self.folder / "log").write_text("")
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "LOG": str(self.folder / "log"), "AZQ_POLL_S": "0", "AZQ_WAIT_S": "0", "AZQ_TRIES": "2", **variables}
        return subprocess.run([self.folder / script, *arguments], capture_output=True, text=True, env=environment, cwd="/", check=False)

    @property
    def asked(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "bin").mkdir()
    files = {name: file.text for name, file in static("terraform").items() if name.endswith("_cluster.sh")}
    for name, text in {**files, "bin/terraform": TERRAFORM, "bin/aws": AWS}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return Desk(tmp_path)


def test_launch_applies_waits_for_every_host_and_says_where_the_dashboard_is(desk):
    (desk.folder / "azq.tar.gz").write_text("source")
    for _ in range(2):  # it may be run again
        answer = desk.run("launch_cluster.sh", "--source", str(desk.folder / "azq.tar.gz"), READY="a-0/i-1 b-0/i-2")
        assert answer.returncode == 0, answer.stderr
        assert "terraform apply -input=false -auto-approve -var running=true" in desk.asked
        assert any(line.startswith("aws s3 cp") and line.endswith("azq.tar.gz s3://bucket/azq.tar.gz") for line in desk.asked)
        assert "b-0/i-2 is ready (2 of 2)" in answer.stdout
        told = json.loads((desk.folder / "source.auto.tfvars.json").read_text())
        assert told == {"source_sha256": hashlib.sha256(b"source").hexdigest()}
        assert "rediss://10.0.0.10:6379/0" in answer.stdout
        assert "http://127.0.0.1:8080/" in answer.stdout
        assert "--target trainer_id" in answer.stdout


def test_a_host_that_never_comes_is_named_with_what_it_costs(desk):
    answer = desk.run("launch_cluster.sh", READY="a-0/i-1")
    assert answer.returncode == 1
    assert "b-0/i-2 is not ready after 0 s (1 of 2 are)" in answer.stderr
    assert "ssm start-session --target i-2" in answer.stderr
    assert "shutdown_cluster.sh" in answer.stderr


def test_nothing_is_launched_without_credentials(desk):
    answer = desk.run("launch_cluster.sh", NOBODY="1")
    assert (answer.returncode, answer.stderr) == (2, "aws has no credentials: aws configure\n")
    assert not [line for line in desk.asked if "apply" in line]


def test_shutdown_drains_before_it_takes_away(desk):
    answer = desk.run("shutdown_cluster.sh", DRAIN="Success")
    assert answer.returncode == 0, answer.stderr
    (sent,) = [place for place, line in enumerate(desk.asked) if "send-command" in line]
    assert desk.asked[-1] == "terraform apply -input=false -auto-approve -var running=false"
    assert "systemctl stop" in desk.asked[sent]
    assert "s3 sync" in desk.asked[sent]
    assert answer.stdout.splitlines() == ["drained; the runs are in s3://bucket/state", "nothing costs by the hour any more"]


@pytest.mark.parametrize("drain", ["", "Failed", "InProgress"])
def test_a_trainer_that_does_not_drain_is_not_taken_away_unless_it_must(desk, drain):
    answer = desk.run("shutdown_cluster.sh", DRAIN=drain)
    assert answer.returncode == 1
    assert "--now" in answer.stderr
    assert not [line for line in desk.asked if "apply" in line]
    assert desk.run("shutdown_cluster.sh", "--now", DRAIN=drain).returncode == 0
    assert desk.asked[-1].endswith("-var running=false")
    assert not [line for line in desk.asked if "send-command" in line]


def test_a_cluster_that_is_gone_is_shut_down_again(desk):
    answer = desk.run("shutdown_cluster.sh", running=False)
    assert answer.returncode == 0
    assert not [line for line in desk.asked if "ssm" in line]


def test_words_that_a_script_does_not_know_are_refused(desk):
    for script in ("launch_cluster.sh", "shutdown_cluster.sh"):
        assert desk.run(script, "--force").returncode == 2
        assert desk.asked == []


CLUSTERS = Path(__file__).parents[4] / "ops" / "clusters"


@pytest.mark.slow
def test_a_plans_own_yaml_is_launched_and_shut_down_by_the_words_that_it_uses(desk, tmp_path):
    """`launch_cluster.sh --config configs/cluster_maxout.yaml`, then `shutdown_cluster.sh`: both twice."""
    work = tmp_path / "work"
    work.mkdir()
    path = os.pathsep.join([str(desk.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    run = partial(subprocess.run, capture_output=True, text=True, check=False, cwd=work)
    said = {
        "PATH": path,
        "LOG": str(desk.folder / "log"),
        "AZQ_POLL_S": "0",
        "READY": "a-0/i-1 b-0/i-2",
        "DRAIN": "Success",
        "HOME": str(tmp_path),
    }
    (desk.folder / "running").write_text("yes")
    for _ in range(2):
        up = run([CLUSTERS / "launch_cluster.sh", "--config", CLUSTERS / "cluster_maxout.yaml"], env=said)
        assert up.returncode == 0, up.stderr
        assert "164.16 USD" in up.stdout
        assert "b-0/i-2 is ready (2 of 2)" in up.stdout
        assert "azq.tar.gz s3://bucket/azq.tar.gz" in "\n".join(desk.asked)
    values = json.loads((work / "cluster-aws" / "cluster.auto.tfvars.json").read_text())
    assert "--game beasty_bar --preset gpu,structured --until steps=2000" in values["run"]["create"]
    for _ in range(2):
        down = run([CLUSTERS / "shutdown_cluster.sh"], env=said)
        assert (down.returncode, down.stdout.splitlines()[-1]) == (0, "nothing costs by the hour any more")
    assert run([CLUSTERS / "launch_cluster.sh", "--with", "x"], env=said).returncode == 2


MOCK = Path(__file__).parents[3] / "support" / "mock_cloud.py"
TALKING = """#!/bin/sh
case "$1 $2" in
    "ssm send-command") echo command-1 ;;
    "ssm get-command-invocation") echo Success ;;
esac
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[str]:
    """The address of a mock of AWS."""
    pytest.importorskip("moto.server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told = [sys.executable, str(MOCK), str(port), str(tmp_path / "calls")]
    with subprocess.Popen(told, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as mock:
        until(lambda: mock.poll() is not None or _answers(port), "the mock of AWS", PATIENCE_S)
        yield f"http://127.0.0.1:{port}"
        mock.terminate()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def machines_in(cloud: str) -> set[str]:
    import boto3

    found = boto3.client("ec2", endpoint_url=cloud).describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])
    names = [tag["Value"] for held in found["Reservations"] for each in held["Instances"] for tag in each["Tags"] if tag["Key"] == "Name"]
    assert len(names) == len(set(names))
    return set(names)


def may(cloud: str, machine: str, action: str, key: str) -> bool:
    """Whether a machine's role has a right at an object of the bucket."""
    import boto3

    iam = boto3.client("iam", endpoint_url=cloud)
    (name,) = iam.list_role_policies(RoleName=machine)["PolicyNames"]
    as_list = [
        [each] if isinstance(each, str) else each
        for said in iam.get_role_policy(RoleName=machine, PolicyName=name)["PolicyDocument"]["Statement"]
        for each in (said["Action"], said["Resource"])
    ]
    rights = zip(as_list[::2], as_list[1::2], strict=True)
    return any(
        action in actions and any(fnmatch(f"arn:aws:s3:::maxout-123456789012/{key}", one) for one in places) for actions, places in rights
    )


@pytest.mark.release
@pytest.mark.skipif(not shutil.which("terraform"), reason="no terraform here")
def test_a_cluster_comes_is_listed_and_goes_in_a_mock_of_aws_twice(tmp_path, cloud, monkeypatch):
    """By the scripts with a real Terraform: no machine is replaced by a second launch, and nothing that runs stays after a shutdown."""
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1", "ENDPOINT_URL": cloud}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_S3_USE_PATH_STYLE", "true")
    folder = tmp_path / "aws"
    write(render(read_cluster(CLUSTERS / "maxout.toml", smallest=True), "terraform-aws"), "terraform-aws", folder)
    (folder / "terraform.tfvars").write_text("".join(f'{of}_ami = "ami-03cf127a"\n' for of in ("selfplay", "inference", "training")))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "aws").write_text(TALKING)
    (tmp_path / "bin" / "aws").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    run = partial(subprocess.run, capture_output=True, text=True, check=False, cwd=folder)
    if (answer := run(["terraform", "init", "-input=false"])).returncode:
        pytest.skip(f"no provider of AWS here (TF_CLI_ARGS_init=-plugin-dir=FOLDER names one): {answer.stderr.strip()[-200:]}")
    wanted = {"maxout-selfplay-0", "maxout-inference-0", "maxout-training-0"}
    for launches in (("one", "another"), ("another",)):  # azq.tar.gz, which may change while machines work
        for text in launches:
            (tmp_path / "azq.tar.gz").write_text(text)
            up = run([folder / "launch_cluster.sh", "--source", str(tmp_path / "azq.tar.gz")])
            assert up.returncode == 0, up.stdout[-3000:] + up.stderr
            assert re.search(r"Resources: \d+ added, \d+ changed, 0 destroyed", up.stdout)
            assert not re.search(r"aws_instance\S+: Modifying", up.stdout)
            assert machines_in(cloud) == wanted
        assert [
            may(cloud, "maxout-selfplay-0", f"s3:{what}", "weights/a.safetensors") for what in ("GetObject", "PutObject", "DeleteObject")
        ] == [True, False, False]
        assert [may(cloud, name, "s3:PutObject", "azq.tar.gz") for name in sorted(wanted)] == [False, False, False]
        assert [may(cloud, "maxout-training-0", "s3:PutObject", f"{place}/a") for place in ("weights", "state", "health/selfplay-0")] == [
            True,
            True,
            False,
        ]
        down = run([folder / "shutdown_cluster.sh"])
        assert (down.returncode, down.stdout.splitlines()[-1]) == (0, "nothing costs by the hour any more"), (
            down.stdout[-3000:] + down.stderr
        )
        assert machines_in(cloud) == set()
    gone = run(["terraform", "destroy", "-input=false", "-auto-approve", "-no-color"])
    assert gone.returncode == 0, gone.stderr
    assert json.loads((folder / "terraform.tfstate").read_text())["resources"] == []


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="no shellcheck here")
def test_the_scripts_are_sound(desk):
    builder = Path(__file__).parents[4] / "ops" / "containers" / "build.sh"
    subprocess.run(["shellcheck", builder, *CLUSTERS.glob("*.sh"), *desk.folder.glob("*.sh")], check=True)
