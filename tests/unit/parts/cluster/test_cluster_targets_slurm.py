"""What Slurm is told: what each job is given, words that azq knows, no secrets; and what the scripts ask of a Slurm that only notes it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import parsed

from azq.errors import ConfigError
from azq.parts.cluster.description import Cluster, cluster_of
from azq.parts.cluster.targets.files import write
from azq.parts.cluster.targets.registry import render

MACHINES: dict[str, Any] = {
    "head": {"kind": "cpu", "roles": ["broker", "daemon", "eval"]},
    "trainer": {"kind": "gpu", "roles": ["learner"]},
    "ranks": {"kind": "gpu", "count": 2, "roles": ["rank"]},
    "leaves": {"kind": "gpu", "count": 2, "roles": ["inference"]},
    "players": {"kind": "cpu", "count": 3, "roles": ["selfplay"], "concurrency": 4},
    "bucket": {"kind": "s3", "roles": ["store"]},
}
SLURM = {
    "partition": "short",
    "account": "go",
    "time": "1-00:00:00",
    "setup": ["module load cuda/12"],
    "groups": {"leaves": {"partition": "gpu", "gres": "gpu:a100:4", "options": ["--exclusive"]}, "players": {"requeue": False}},
}
SQUEUE = '#!/bin/sh\necho "squeue $*" >>"$LOG"\ncase " $* " in *" --name=azq-lab-$THERE "*) printf "0\\n2\\n" ;; esac\n'
SBATCH = '#!/bin/sh\necho "sbatch $*" >>"$LOG"\necho 7\n'
SCANCEL = '#!/bin/sh\necho "scancel $*" >>"$LOG"\n'


def lab(machines: dict[str, Any] = MACHINES, folder: str = "/home/ada/azq", **slurm: Any) -> Cluster:
    kinds = {"cpu": {"per_hour": 0.0, "vcpus": 16, "memory_gb": 62.5}, "gpu": {"per_hour": 0.0, "vcpus": 32, "gpus": 4}}
    run = {"game": "othello", "name": "big", "preset": "gpu", "until": "steps=9", "settings": ["search.num_simulations=64"]}
    data = {"cluster": {"name": "lab", "folder": folder}, "kinds": kinds, "machines": machines, "run": run, "slurm": SLURM | slurm}
    return cluster_of(data, "lab.toml")


def job(group: str, cluster: Cluster | None = None) -> str:
    return render(cluster or lab(), "slurm")[f"{group}.sbatch"].text


def options(group: str) -> set[str]:
    return {word for line in job(group).splitlines() if line.startswith("#SBATCH ") for word in line.split()[1:]}


def test_a_job_is_given_what_its_machine_has_and_its_group_wants() -> None:
    assert {"--partition=short", "--account=go", "--time=1-00:00:00", "--cpus-per-task=16", "--mem=64000M"} <= options("players")
    assert {"--partition=gpu", "--account=go", "--gres=gpu:a100:4", "--cpus-per-task=32", "--exclusive"} <= options("leaves")
    assert "--gres=gpu:4" in options("trainer")
    assert ("--requeue" in options("leaves"), "--no-requeue" in options("players")) == (True, True)
    assert "--signal=B:TERM@180" in options("head")
    assert job("head").index("module load cuda/12") < job("head").index("set -eu")


@pytest.mark.parametrize("group", ["head", "trainer", "ranks", "leaves", "players"])
def test_every_job_joins_with_words_that_azq_takes(group: str) -> None:
    (words,) = re.findall(r"^set -- (.*)$", job(group), re.MULTILINE)
    values = parsed(["join", "rediss://head:6379/0", *shlex.split(words.replace("$((1 + SLURM_ARRAY_TASK_ID))", "2"))])
    assert values["roles"].split(",") == MACHINES[group]["roles"]
    assert values["rank"] == {"trainer": 0, "ranks": 2}.get(group)
    assert values["concurrency"] == MACHINES[group].get("concurrency")
    assert list(values["run"] or ()) == (["big"] if group in ("trainer", "ranks") else [])


def test_the_run_is_created_with_as_many_ranks_as_there_are() -> None:
    (created,) = re.findall(r"big\) azq (.*) ;;", render(lab(), "slurm")["cluster.sh"].text)
    values = parsed(shlex.split(created))
    assert (values["run"], values["game"], values["until"]) == ("big", "othello", "steps=9")
    assert values["settings"] == ["search.num_simulations=64", "learner.ranks=3"]


def test_the_home_of_who_runs_it_is_meant_by_a_tilde() -> None:
    files = render(lab(folder="~/my azq"), "slurm")
    assert """state="$HOME"/'my azq/clusters/lab'""" in files["cluster.sh"].text
    assert """export AZQ_HOME="$HOME"/'my azq/runs'""" in files["leaves.sbatch"].text


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        (lambda: lab(time="1 hour"), "slurm.time"),
        (lambda: lab(groups={"player": {}}), r"slurm\.groups\.player: there is no \[machines\.player\]"),
        (lambda: lab({**MACHINES, "head": {"kind": "cpu", "roles": ["broker"]}, "d": {"kind": "cpu", "roles": ["daemon"]}}), "one job"),
    ],
)
def test_what_slurm_cannot_carry_is_refused(cluster: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        render(cluster(), "slurm")


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    write(render(lab(folder=str(tmp_path / "azq")), "slurm"), "slurm", tmp_path / "out")
    (tmp_path / "bin").mkdir()
    for name, text in {"squeue": SQUEUE, "sbatch": SBATCH, "scancel": SCANCEL}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def call(desk: Path, script: str, there: str = "nobody") -> tuple[int, list[str], str]:
    """Its exit code, what it asked for, what it complained of."""
    (desk / "log").write_text("")
    environment = {"PATH": f"{desk / 'bin'}:{os.environ['PATH']}", "LOG": str(desk / "log"), "THERE": there}
    done = subprocess.run([desk / "out" / script], capture_output=True, text=True, env=environment, cwd="/", check=False)
    return done.returncode, (desk / "log").read_text().splitlines(), done.stderr


def test_what_is_there_is_not_submitted_again(desk: Path) -> None:
    code, asked, _ = call(desk, "submit.sh")
    submitted = [line for line in asked if line.startswith("sbatch")]
    assert (code, len(submitted)) == (0, 5)
    assert submitted[0].endswith("head.sbatch")  # whom the others wait for
    assert "--array=0,1,2" in next(line for line in submitted if "players" in line)
    assert all("--export=NONE" in line for line in submitted)
    _, asked, _ = call(desk, "submit.sh", there="players")
    assert "--array=1 " in next(line for line in asked if line.startswith("sbatch") and "players" in line)
    assert (desk / "azq" / "clusters" / "lab").stat().st_mode & 0o077 == 0


def test_who_is_needed_last_is_cancelled_last_and_then_nothing_is_submitted_beside_it(desk: Path) -> None:
    assert call(desk, "cancel.sh")[0] == 1  # nothing was submitted
    call(desk, "submit.sh")
    code, asked, _ = call(desk, "cancel.sh")
    drained = [line.rpartition("azq-lab-")[2] for line in asked if "--signal=TERM --batch" in line]
    assert code == 0
    assert drained[0] == "players"
    assert set(drained[1:3]) == {"trainer", "ranks"}
    assert drained[3:] == ["leaves", "head"]
    code, asked, said = call(desk, "submit.sh", there="head")
    assert (code, [line for line in asked if line.startswith("sbatch")]) == (1, [])
    assert "azq-lab-head is ending" in said
    assert call(desk, "submit.sh")[0] == 0


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="no shellcheck here")
def test_the_scripts_are_sound(desk: Path) -> None:
    scripts = ["submit.sh", "cancel.sh", *sorted(path.name for path in (desk / "out").glob("*.sbatch"))]
    subprocess.run(["shellcheck", "--external-sources", *scripts], check=True, cwd=desk / "out")
