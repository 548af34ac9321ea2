"""Whether a cluster can work as its file says: who is missing, who is twice, who feeds whom, what the budget allows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from azq.config.host import DRAIN_S, MachineConfig
from azq.errors import ConfigError
from azq.findings import Finding
from azq.goals import Goals
from azq.parts.cluster.arithmetic import broker_count, read_figures
from azq.parts.cluster.cost import bill
from azq.parts.cluster.description import Cluster, Role
from azq.presets import for_gpus

NEEDED: Mapping[Role, str] = {
    "broker": "nothing carries jobs and leaves",
    "daemon": "no machine sends jobs",
    "learner": "no machine learns",
    "selfplay": "no machine makes games",
    "inference": "no machine evaluates leaves",
}
SINGLE: tuple[Role, ...] = ("daemon", "learner")
STEADY: tuple[Role, ...] = ("broker", "daemon", "learner")
ON_GPUS: tuple[Role, ...] = ("inference", "learner", "rank")


def check(cluster: Cluster, figures: Mapping[str, float]) -> list[Finding]:
    """Errors first; raises `ConfigError` where a price is missing. `figures` are those of `azq.parts.cluster.arithmetic`."""
    findings = [
        *_missing(cluster),
        *_twice(cluster),
        *_misplaced(cluster),
        *_fed(cluster, figures),
        *_budgeted(cluster),
        *_cut_short(cluster),
        *_runs(cluster),
    ]
    return sorted(findings, key=lambda finding: finding.severity != "fail")


def refuse(cluster: Cluster) -> None:
    """Raises `ConfigError` with the errors of a cluster; a price that is missing is one where money is to end it."""
    if cluster.budget.money is None:
        free = {name: kind.model_copy(update={"per_hour": kind.per_hour or 0.0}) for name, kind in cluster.kinds.items()}
        cluster = cluster.model_copy(update={"kinds": free})
    if wrong := [f"{finding.rule}: {finding.evidence}" for finding in check(cluster, read_figures()[0]) if finding.severity == "fail"]:
        raise ConfigError(f"cluster {cluster.name}: {'; '.join(wrong)}")


def _missing(cluster: Cluster) -> Iterator[Finding]:
    for role, what in NEEDED.items():
        if not cluster.of_role(role):
            yield Finding("machines", "fail", f"{what}: give some machines the role {role!r}")


def _twice(cluster: Cluster) -> Iterator[Finding]:
    for role in SINGLE:
        groups = cluster.of_role(role)
        if sum(group.count for group in groups.values()) > 1:
            remedy = "and give the others 'rank'" if role == "learner" else "a separate group"
            yield Finding(f"machines.{', '.join(groups)}", "fail", f"there is one {role} in a cluster; make it one machine, {remedy}")


def _misplaced(cluster: Cluster) -> Iterator[Finding]:
    for name, group in cluster.machines.items():
        kind = cluster.kinds[group.kind]
        if group.spot and (lost := [role for role in STEADY if role in group.roles]):
            yield Finding(
                f"machines.{name}",
                "warn",
                f"{', '.join(lost)} on machines that the provider may take back; all waits until they are there again",
            )
        if kind.service == "broker":
            text = (
                f"{group.kind} has one password: each machine may do what the owner may; brokers on a machine give each its roles' rights"
            )
            yield Finding(f"machines.{name}", "warn", text)
        if not kind.service and not kind.gpus and "inference" in group.roles:
            yield Finding(f"machines.{name}", "warn", f"{group.kind} has no GPU; its cores evaluate leaves")
        if kind.gpus and not any(role in ON_GPUS for role in group.roles):
            yield Finding(f"machines.{name}", "warn", f"{group.count * kind.gpus} GPUs that no role uses: {', '.join(group.roles)}")


def _fed(cluster: Cluster, figures: Mapping[str, float]) -> Iterator[Finding]:
    gpus, cores = cluster.total("inference", "gpus"), cluster.total("selfplay", "vcpus")
    needed = gpus * figures["search_cores_per_gpu"]
    if gpus and needed > cores:
        yield Finding("machines", "warn", f"{gpus} GPUs evaluate what {needed:.0f} cores search, and {cores} play: the GPUs wait")
    brokers = sum(group.count for group in cluster.of_role("broker").values())
    if gpus and brokers and (wanted := broker_count(figures, gpus)) > brokers:
        yield Finding(
            "machines",
            "warn",
            f"{gpus} GPUs need {wanted} data brokers, each a core of one machine; larger requests need fewer (selfplay.games_in_flight)",
        )


def _budgeted(cluster: Cluster) -> Iterator[Finding]:
    if (ends := bill(cluster).ends_after_h) is not None:
        yield Finding("budget", "warn", f"is spent after {ends:.2f} h of the {cluster.hours:g} h asked for; the cluster ends then")


def _cut_short(cluster: Cluster) -> Iterator[Finding]:
    """Both count from `budget.hours`: a timer with less patience ends machines whose last evaluations still run."""
    margin_s = margin_s_of(cluster)
    if cluster.budget.hours and margin_s <= DRAIN_S:
        text = f"a machine's timer waits {margin_s:g} s and the last evaluations may take {DRAIN_S:g} s: make it longer"
        yield Finding("settings.machine.margin_s", "fail", text)


def _runs(cluster: Cluster) -> Iterator[Finding]:
    """A run that costs money ends by itself, and machines with GPUs do not train as two cores would."""
    per_hour, gpus = bill(cluster).per_hour, cluster.total("inference", "gpus") + cluster.total("learner", "gpus")
    for run in cluster.wanted_runs():
        place = f"run {run.name}"
        try:
            run.sections()
            endless = not Goals.parse(run.until).until
        except ConfigError as error:
            yield Finding(place, "fail", str(error))
            continue
        if per_hour and endless:
            text = f'nothing ends it, and an hour costs {per_hour:,.2f} {cluster.currency}: say until = "steps=N", or minutes, games, money'
            yield Finding(place, "fail", text)
        if gpus and not for_gpus(run.game, run.preset):
            there = f"preset {run.preset!r}" if run.preset else "its preset"
            text = f'{there} is for two cores without a GPU, and {gpus} GPUs infer and train: say preset = "gpu"'
            yield Finding(place, "fail", text)


def margin_s_of(cluster: Cluster) -> float:
    """How long a machine's own timer waits beyond the budget's time, in seconds."""
    return _number(cluster, "machine", "margin_s", MachineConfig.model_fields["margin_s"].default)


def _number(cluster: Cluster, section: str, key: str, default: float) -> float:
    """A number of the hosts' settings."""
    value = cluster.settings.get(section, {}).get(key, default)
    return float(value) if isinstance(value, (int, float)) else default  # what is no number, the host's settings refuse
