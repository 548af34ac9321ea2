"""`azq cluster` and `azq cost`: what a cluster is, whether it fits, what it costs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from azq.cli.options import Answer, ConfigFile, Overrides, with_answer
from azq.errors import ConfigError, ExitCode, HostError, StateConflict

if TYPE_CHECKING:
    from azq.parts.cluster.conduct import Conductor

ClusterFile = Annotated[Path, typer.Argument(help=r"The cluster: `\[cluster]`, `\[machines.NAME]`, `\[budget]` (docs/cluster.md).")]
Local = Annotated[bool, typer.Option("--local", help="All of it as processes of this machine.")]
Patience = Annotated[float, typer.Option("--within", metavar="SECONDS", min=1.0, help="How long machines may take to be there.")]
Smallest = Annotated[bool, typer.Option("--smallest", help="One machine of each kind.")]

cluster_app = typer.Typer(no_args_is_help=True, help="Machines, their roles and what they cost, in one file.")


@with_answer
def cost(
    what: Annotated[str, typer.Argument(metavar="FILE|RUN", help="A cluster's file, or a run that has its machines counted.")],
    hours: Annotated[float | None, typer.Option("--hours", min=0.01, help="Hours, in place of the file's.")] = None,
    smallest: Smallest = False,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> Answer:
    """What a cluster will cost by its file: each part, scenarios, when its budget is spent; or a run so far, and by its projected end."""
    if Path(what).suffix or Path(what).exists():
        from azq.parts.cluster.cost import bill
        from azq.parts.cluster.description import read_cluster

        result = bill(read_cluster(Path(what), smallest), hours)
        return Answer(result.values(), result.as_text())
    from azq.config import load
    from azq.console.show import cost_of_run

    if hours is not None or smallest:
        raise ConfigError(f"--hours and --smallest are of a cluster's file, and {what!r} is a run; leave them out, or name the file")
    spent = cost_of_run(load(config, overrides or []), what)
    return Answer({"run": what, **asdict(spent)}, spent.as_text(what))


@cluster_app.command("check")
@with_answer
def check(file: ClusterFile, smallest: Smallest = False) -> Answer:
    """Whether it can work: who is missing, who is twice, who waits for whom."""
    from azq.parts.cluster.arithmetic import figures_or_general
    from azq.parts.cluster.checks import check as command
    from azq.parts.cluster.description import read_cluster

    cluster = read_cluster(file, smallest)
    result = command(cluster, figures_or_general(cluster))
    wrong = any(finding.severity == "fail" for finding in result)
    values = [{"error": finding.severity == "fail", "place": finding.rule, "text": finding.evidence} for finding in result]
    return Answer(
        {"fits": not wrong, "findings": values}, list(map(str, result)) or "No problems found.", ExitCode.CONFIG if wrong else ExitCode.OK
    )


@cluster_app.command("plan")
@with_answer
def plan(file: ClusterFile, smallest: Smallest = False) -> Answer:
    """What it would do and cost: its GPUs by their data sheets, the rest as measured, and what is assumed (docs/scale.md)."""
    from azq.parts.cluster import arithmetic
    from azq.parts.cluster.cost import bill
    from azq.parts.cluster.description import read_cluster

    cluster = read_cluster(file, smallest)
    result, steps = bill(cluster), arithmetic.plan(arithmetic.figures_of(cluster))
    lines = [f"{step.what:<40} {step.value:>14,.4g} {step.unit}" for step in steps]
    assumed = [f"- {line}" for line in arithmetic.ASSUMED]
    values = {"bill": result.values(), "steps": steps, "assumptions": arithmetic.ASSUMED}
    return Answer(values, [*lines, "assumed:", *assumed, *result.as_text()])


@cluster_app.command("render")
@with_answer
def render(
    file: ClusterFile,
    target: Annotated[
        str, typer.Option("--target", help="What it is to run on: compose, kubernetes, slurm, terraform-aws (docs/cluster.md).")
    ],
    out: Annotated[Path, typer.Option("--out", help="A new or empty folder, or one that was rendered for this target before.")],
    force: Annotated[bool, typer.Option("--force", help="Replace rendered files that somebody changed.")] = False,
    smallest: Smallest = False,
) -> Answer:
    """Write what a cluster's provider or scheduler reads: all files of it, or none."""
    from azq.parts.cluster.description import read_cluster
    from azq.parts.cluster.targets.files import write
    from azq.parts.cluster.targets.registry import render as command

    files = command(read_cluster(file, smallest), target)
    changed = write(files, target, out, force=force)
    summary = f"{out}: {len(files)} files for {target}, {len(changed)} written or removed"
    return Answer({"target": target, "folder": str(out), "files": list(files), "changed": changed}, summary)


@cluster_app.command("secrets")
@with_answer
def secrets(
    file: ClusterFile,
    out: Annotated[Path, typer.Option("--out", help="The folder `secrets` beside what was rendered.")],
    smallest: Smallest = False,
) -> Answer:
    """Make what containers show each other: a password, a token, and from them a file a role. Those that are there are kept."""
    from azq.parts.cluster.description import read_cluster
    from azq.parts.cluster.targets.containers import make

    names = make(read_cluster(file, smallest), out)
    return Answer({"folder": str(out), "files": names}, f"{out}: {', '.join(names)}; keep them out of version control")


@cluster_app.command("translate")
@with_answer
def translate(
    file: Annotated[Path, typer.Argument(help="A training cluster's settings in YAML.")],
    out: Annotated[Path | None, typer.Option("--out", help="The cluster's file to write: machines, budget, run.")] = None,
    game: Annotated[str, typer.Option("--game", help="Of the run, where no key of the file is one game's.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> Answer:
    """What each key of another system's settings becomes here; with `--out`, as a cluster's file."""
    from azq.files import write_output
    from azq.parts.cluster.foreign import cluster_text, read_foreign, settings_of

    mappings = read_foreign(file)
    if out is not None:
        text = cluster_text(mappings, out.stem, file.name, game)
        if out.exists() and out.read_text("utf-8") != text and not force:
            raise StateConflict(f"{out} exists and says something else; name another with --out, or lose it with --force")
        write_output(out, text.encode())
    next_step = [f"{out}: the cluster; `azq cluster check {out}`"] if out else []
    return Answer({"settings": settings_of(mappings), "keys": mappings}, [*map(str, mappings), *next_step])


@cluster_app.command("up")
@with_answer
def up(file: ClusterFile, local: Local = False, smallest: Smallest = False, within: Patience = 120.0) -> Answer:
    """Start what is missing of a cluster on its hosts, over ssh, and wait until it is whole; again: mend it."""
    conductor = _conductor(file, local, smallest)
    with conductor.alone():
        try:
            missing = conductor.up(within)
        except KeyboardInterrupt:
            typer.echo(f"interrupted: `azq cluster up {file}` goes on, `azq cluster down {file}` undoes what is there", err=True)
            raise
    if missing:
        summary = "; ".join(f"{name}: {', '.join(what)}" for name, what in missing.items())
        raise HostError(f"the cluster is not whole: {summary}; `azq cluster up {file}` tries again, `azq cluster down {file}` undoes it")
    result = conductor.status()
    return Answer(result, _status_lines(result))


@cluster_app.command("status")
@with_answer
def status(file: ClusterFile, local: Local = False, smallest: Smallest = False) -> Answer:
    """What each machine of a cluster does, and what is missing; exit code 15 where something is."""
    result = _conductor(file, local, smallest).status()
    return Answer(result, _status_lines(result), ExitCode.OK if result["whole"] else ExitCode.HOST)


@cluster_app.command("down")
@with_answer
def down(file: ClusterFile, local: Local = False, smallest: Smallest = False) -> Answer:
    """Drain a cluster and stop it: games go back, learners save, then brokers end; whom it does not reach it tells."""
    conductor = _conductor(file, local, smallest)
    with conductor.alone():
        lost = conductor.down()
    if lost:
        summary = "; ".join(f"{name}: {why}" for name, why in lost.items())
        raise HostError(f"not reached, and perhaps at work: {summary}; `azq cluster down {file}` tries again")
    return Answer({"down": True}, "all machines are stopped")


@cluster_app.command("member", hidden=True)
def member() -> None:
    """Answer an order that comes as JSON on standard input."""
    import sys

    import msgspec

    from azq.errors import ConfigError
    from azq.host.join.member import MemberOrder, answer

    try:
        order = msgspec.json.decode(sys.stdin.buffer.read(), type=MemberOrder)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"standard input holds no order of this azq: {error}; install one version on all hosts") from None
    sys.stdout.buffer.write(msgspec.json.encode(answer(order)) + b"\n")


def _conductor(file: Path, local: bool, smallest: bool) -> Conductor:
    from azq.config import load
    from azq.parts.cluster.conduct import Conductor
    from azq.parts.cluster.description import read_cluster

    cluster = read_cluster(file, smallest)
    return Conductor(cluster, file, lambda line: typer.echo(line, err=True), str(load().home.absolute()) if local else "")


def _status_lines(result: dict[str, Any]) -> list[str]:
    lines = []
    for row in result["machines"]:
        lines.append(f"{row['name']:<20} {row['host']:<22} {','.join(row['roles']):<26} {'; '.join(row['missing']) or 'works'}")
    for name, run in result["runs"].items():
        lines.append(f"run {name}: {run['state']}, {run['games']} games learned from, version {run['version']}")
    lines += [f"{name}: was started, and is no longer in the file; `azq cluster down` stops it" for name in result["strays"]]
    return lines


COMMANDS = {"cluster": cluster_app, "cost": cost}
