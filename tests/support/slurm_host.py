"""A Slurm of one host, in a folder and on ports of its own: munge, controller and node as processes of a test."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from waiting import PATIENCE_S, until

from azq.host.fronts import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"

# Jobs share the node's cores, whatever there are; a job that is queued again waits seconds rather than minutes.
CONFIGURATION = """
ClusterName=azq
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
SlurmctldPort={port}
SlurmdPort={next}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def why_not() -> str:
    """Why no Slurm can be started here; empty where it can."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]:
        return f"no {missing[0]}"
    return "" if os.geteuid() == 0 else "Slurm's node starts jobs for others, which only root may"


class SlurmHost:
    """Commands of Slurm for the host that runs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def __call__(self, *command: str, within_s: float = PATIENCE_S) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=within_s, check=False)
        assert done.returncode == 0, f"{command[0]}: {done.stderr}\n{done.stdout}"
        return done.stdout

    def jobs(self, name: str = "") -> list[str]:
        """States of the tasks that are queued or at work."""
        return self("squeue", "--noheader", "--array", "--format=%T", *([f"--name={name}"] if name else [])).split()


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[SlurmHost]:
    """A Slurm that takes jobs; its processes end with the context."""
    host, port = socket.gethostname().partition(".")[0], free_port(2)
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(host=host, folder=folder, port=port, next=port + 1))
    with contextlib.ExitStack() as processes:
        processes.enter_context(_started(_munge(folder), folder / "munged.log"))
        until((folder / "munge" / "socket").exists, "munge's socket")
        found = SlurmHost(folder)
        for name in ("slurmctld", "slurmd"):
            processes.enter_context(_started([name, "-D"], folder / f"{name}.log", found.environment))
        until(lambda: "idle" in _nodes(found), "a node that takes jobs")
        yield found


def _munge(folder: Path) -> list[str]:
    own = folder / "munge"
    own.mkdir()
    (own / "key").touch(0o600)
    (own / "key").write_bytes(secrets.token_bytes(128))
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return ["munged", "--foreground", "--force", *(f"--{option}={own / file}" for option, file in files.items())]


def _nodes(found: SlurmHost) -> str:
    done = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, env=found.environment, check=False)
    return done.stdout


@contextlib.contextmanager
def _started(command: list[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment or {**os.environ, "PATH": PATH})
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
