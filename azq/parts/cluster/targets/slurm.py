"""A cluster as jobs of Slurm: a job array a group of machines, whose tasks join the one that keeps brokers and daemon. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from azq.errors import ConfigError
from azq.parts.cluster.description import Cluster, MachineKind, SlurmOptions
from azq.parts.cluster.members import Member, creation, members_of, start_order, variables
from azq.parts.cluster.targets.files import RenderedFile, Rendering, shell_case, static

SCRIPTS = ("submit.sh", "cancel.sh")  # the others are read by jobs


def slurm(cluster: Cluster) -> Rendering:
    """All files of a folder that the nodes share; raises `ConfigError` for a cluster whose broker and daemon are not one machine."""
    members = members_of(cluster, f"{cluster.folder}/runs")
    first = members[0]
    if "daemon" not in first.roles:
        raise ConfigError(f"machines.{first.name}: in Slurm broker and daemon are one job, which lets the others in; give it both roles")
    groups = {
        name: of_group[0]
        for name in cluster.machines
        if (of_group := [candidate for candidate in members if _is_of(candidate, name, cluster)])
    }
    jobs = {f"{name}.sbatch": RenderedFile(_job(cluster, name, member, first)) for name, member in groups.items()}
    return {**static("sbatch", executable=SCRIPTS), "cluster.sh": RenderedFile(_values(cluster, groups, members)), **jobs}


def _is_of(member: Member, group: str, cluster: Cluster) -> bool:
    count = cluster.machines[group].count
    return member.name in ([group] if count == 1 else [f"{group}-{number}" for number in range(1, count + 1)])


def _values(cluster: Cluster, groups: dict[str, Member], members: Sequence[Member]) -> str:
    """What all scripts know."""
    stopped = sorted(groups.items(), key=lambda item: item[1].stage)
    runs = cluster.wanted_runs()
    lines = [
        "# shellcheck shell=bash disable=SC2034",
        f"name={cluster.name} port={cluster.port}",
        f"state={_path(f'{cluster.folder}/clusters/{cluster.name}')}",
        "# In the order in which they are stopped: group, machines, wave, seconds that they may take, roles.",
        "groups=(",
        *(
            f'    "{group} {cluster.machines[group].count} {member.stage} {cluster.slurm.of(group).drain_s} {",".join(member.roles)}"'
            for group, member in stopped
        ),
        ")",
        f"first='{next(group for group, member in groups.items() if member == members[0])}'",
        f"runs=({shlex.join(run.name for run in runs)})",
        shell_case("create", {run.name: f"azq {shlex.join(creation(run, members))}" for run in runs}),
    ]
    return "\n".join(lines) + "\n"


def _job(cluster: Cluster, group: str, member: Member, first: Member) -> str:
    """What `sbatch` reads: what the job is given, then its shell."""
    wanted, is_first = cluster.slurm.of(group), member == first
    over = {"AZQ_BUDGET__WITH_RUNS": "true"} if is_first else {}  # no nodes are held for runs that are over
    exports = [f"export {name}={_path(value)}" for name, value in (over | variables(cluster, member)).items()]
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name=azq-{cluster.name}-{group}",
        *(f"#SBATCH {option}" for option in _options(wanted, cluster.kinds[member.kind])),
        *wanted.setup,
        "set -eu",
        f"group={group} requeue={'yes' if wanted.requeue else ''}",
        *exports,
        'cd "$SLURM_SUBMIT_DIR"',
        f"set -- {' '.join(_join_words(cluster, member, first))}",
        ". ./cluster.sh",
        f". ./{'first' if is_first else 'member'}.sh",
    ]
    return "\n".join(lines) + "\n"


def _options(wanted: SlurmOptions, kind: MachineKind) -> Iterator[str]:
    yield "--nodes=1 --ntasks=1 --open-mode=append"
    named = {name: getattr(wanted, name) for name in ("partition", "account", "qos", "constraint", "time")}
    needed = {
        "cpus-per-task": kind.vcpus,
        "mem": f"{kind.memory_gb * 1024:.0f}M" if kind.memory_gb else "",
        "gres": wanted.gres or (f"gpu:{kind.gpus}" if kind.gpus else ""),
    }
    yield from (f"--{name}={value}" for name, value in (named | needed).items() if value)
    yield "--requeue" if wanted.requeue else "--no-requeue"
    yield f"--signal=B:TERM@{wanted.drain_s}"
    yield from wanted.options


def _join_words(cluster: Cluster, member: Member, first: Member) -> Iterator[str]:
    """Options of `azq join` after the address; machines of a group that are ranks count on from their first."""
    _, *words = start_order(cluster, member, first).join
    for before, word in zip(["", *words], words, strict=False):
        yield f"$(({word} + SLURM_ARRAY_TASK_ID))" if before == "--rank" and "rank" in member.roles else shlex.quote(word)


def _path(text: str) -> str:
    """A word for a shell, in which `~` is the home of who runs it."""
    return f'"$HOME"/{shlex.quote(text[2:])}' if text.startswith("~/") else shlex.quote(text)
