"""What is missing, twice, misplaced or too little in a cluster is found, and nothing in one that fits."""

from __future__ import annotations

from typing import Any

import pytest

from azq.errors import ConfigError
from azq.parts.cluster.arithmetic import read_figures
from azq.parts.cluster.checks import check, refuse
from azq.parts.cluster.description import cluster_of

FIGURES = read_figures()[0]
KINDS = {
    "box": {"per_hour": 1.0, "vcpus": 64, "gpus": 2},
    "cpu": {"per_hour": 0.5, "vcpus": 32},
    "tiny": {"per_hour": 0.1, "vcpus": 2},
}
FITS: dict[str, Any] = {
    "middle": {"kind": "tiny", "roles": ["broker", "daemon"]},
    "train": {"kind": "box", "roles": ["learner", "inference"]},
    "play": {"kind": "cpu", "count": 2, "roles": ["selfplay"]},
}


RUN = {"game": "othello", "preset": "gpu", "until": "steps=9"}


def findings(machines: dict[str, Any], **parts: object) -> list[str]:
    data = {"cluster": {"name": "c", "hours": 10}, "kinds": KINDS, "machines": machines, "run": RUN, **parts}
    return [f"{finding.severity}: {finding.rule}: {finding.evidence}" for finding in check(cluster_of(data, "here"), FIGURES)]


def test_a_cluster_that_fits_has_no_findings():
    assert findings(FITS) == []


@pytest.mark.parametrize("role", ["broker", "daemon", "learner", "inference", "selfplay"])
def test_a_role_that_nobody_has_is_an_error(role):
    machines = {name: {**group, "roles": [each for each in group["roles"] if each != role] or ["metrics"]} for name, group in FITS.items()}
    (first, *rest) = findings(machines)
    assert first.startswith("fail: machines: ")
    assert first.endswith(f"{role!r}")
    assert not any(line.startswith("fail") for line in rest)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"train": {"kind": "box", "count": 2, "roles": ["learner", "inference"]}}, "fail: machines.train: there is one learner"),
        ({"more": {"kind": "tiny", "roles": ["daemon"]}}, "fail: machines.middle, more: there is one daemon"),
        ({"middle": {"kind": "tiny", "roles": ["broker", "daemon"], "spot": True}}, "warn: machines.middle: broker, daemon on machines"),
        ({"play": {"kind": "cpu", "count": 2, "roles": ["selfplay"], "spot": True}}, None),
        ({"more": {"kind": "cpu", "roles": ["inference"]}}, "warn: machines.more: cpu has no GPU"),
        ({"more": {"kind": "box", "count": 3, "roles": ["selfplay"]}}, "warn: machines.more: 6 GPUs that no role uses: selfplay"),
        ({"play": {"kind": "tiny", "roles": ["selfplay"]}}, "warn: machines: 2 GPUs evaluate what 8 cores search, and 2 play"),
        ({"more": {"kind": "box", "count": 8, "roles": ["inference", "selfplay"]}}, "warn: machines: 18 GPUs need 5 data brokers"),
    ],
)
def test_what_does_not_fit_is_said(changed, said):
    assert [line for line in findings({**FITS, **changed}) if said is None or line.startswith(said)] == findings({**FITS, **changed})
    assert bool(findings({**FITS, **changed})) == (said is not None)


def test_who_is_there_twice_is_told_what_the_others_may_be():
    [learners] = findings({**FITS, "train": {"kind": "box", "count": 2, "roles": ["learner", "inference"]}})
    assert learners.endswith("make it one machine, and give the others 'rank'")
    [daemons] = findings({**FITS, "more": {"kind": "tiny", "roles": ["daemon"]}})
    assert daemons.endswith("make it one machine, a separate group")


ENDLESS = 'nothing ends it, and an hour costs 2.10 USD: say until = "steps=N", or minutes, games, money'


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"game": "othello", "preset": "gpu"}, f"run othello: {ENDLESS}"),
        ({**RUN, "until": "moons=3"}, "run othello: --until 'moons=3' is not one of"),
        ({**RUN, "preset": ""}, "run othello: its preset is for two cores without a GPU, and 4 GPUs infer and train"),
        ({"game": "connect_four", "preset": "sprint", "until": "steps=9"}, "run connect_four: preset 'sprint' is for two cores"),
        ({**RUN, "preset": "big"}, "run othello: othello has no preset 'big'"),
        ({**RUN, "settings": ["search.simulations=3"]}, "run othello: "),
        ({**RUN, "preset": "box-8gpu"}, None),
        ({**RUN, "game": "games/own.py:Own", "preset": "", "name": "own"}, None),
    ],
)
def test_a_run_that_costs_has_an_end_and_settings_for_its_machines(run, said):
    found = findings(FITS, run=run)
    assert len(found) == (said is not None)
    assert all(line.startswith(f"fail: {said}") for line in found)


def test_a_cluster_without_a_run_would_train_connect_four_for_ever_and_is_refused():
    data = {"cluster": {"name": "c"}, "kinds": KINDS, "machines": FITS}
    assert [finding.rule for finding in check(cluster_of(data, "here"), FIGURES) if finding.severity == "fail"] == ["run connect_four"] * 2


def test_each_further_run_is_looked_at_and_what_costs_nothing_may_go_on():
    assert findings(FITS, runs=[{"game": "hex", "preset": "gpu"}]) == [f"fail: run hex: {ENDLESS}"]
    free = {name: {**kind, "per_hour": 0.0} for name, kind in KINDS.items()}
    assert findings(FITS, kinds=free, run={"game": "othello", "preset": "gpu"}) == []


def test_a_budget_that_ends_it_early_is_said():
    assert findings(FITS, budget={"money": 4.2}) == ["warn: budget: is spent after 2.00 h of the 10 h asked for; the cluster ends then"]


@pytest.mark.parametrize(("settings", "errors"), [({}, 0), ({"machine": {"margin_s": 600}}, 1)])
def test_a_timer_with_less_patience_than_the_last_evaluations_is_an_error(settings, errors):
    found = [
        text for text in findings(FITS, budget={"hours": 20}, settings=settings) if text.startswith("fail: settings.machine.margin_s: ")
    ]
    assert len(found) == errors
    assert findings(FITS, settings=settings) == []


def test_a_providers_broker_has_one_password_for_all():
    machines = {**FITS, "middle": {"kind": "tiny", "roles": ["daemon"]}, "cache": {"kind": "cache", "roles": ["broker"]}}
    (note,) = findings(machines, kinds={**KINDS, "cache": {"per_hour": 0.5, "service": "broker"}})
    assert note.startswith("warn: machines.cache: cache has one password")


def test_every_error_is_refused_and_no_note():
    data = {"cluster": {"name": "c"}, "kinds": KINDS, "machines": FITS, "run": RUN}
    refuse(cluster_of({**data, "machines": {**FITS, "more": {"kind": "cpu", "roles": ["inference"]}}}, ""))
    two = {"train": FITS["train"], "play": FITS["play"]}
    with pytest.raises(ConfigError) as told:
        refuse(cluster_of({**data, "machines": two}, ""))
    nobody = (
        "nothing carries jobs and leaves: give some machines the role 'broker'",
        "no machine sends jobs: give some machines the role 'daemon'",
    )
    assert str(told.value) == f"cluster c: machines: {nobody[0]}; machines: {nobody[1]}"


@pytest.mark.parametrize(
    ("run", "budget", "said"),
    [
        (RUN, {}, None),
        ({**RUN, "until": ""}, {}, "an hour costs 1.10"),  # what has a price counts
        (RUN, {"hours": 5.0}, None),
        (RUN, {"money": 5.0}, "no price of 'cpu'"),
    ],
)
def test_a_missing_price_is_refused_where_money_is_to_end_it(run, budget, said):
    kinds = {**KINDS, "cpu": {"vcpus": 32}}
    cluster = cluster_of({"cluster": {"name": "c"}, "kinds": kinds, "machines": FITS, "run": run, "budget": budget}, "")
    if said is None:
        refuse(cluster)
    else:
        with pytest.raises(ConfigError, match=said):
            refuse(cluster)


def test_as_many_cores_as_the_gpus_need_are_enough():
    cluster = cluster_of({"cluster": {"name": "c"}, "kinds": KINDS, "machines": FITS, "run": RUN}, "")
    assert check(cluster, {**FIGURES, "search_cores_per_gpu": 32.0}) == []  # 64 play, for two GPUs


def test_each_run_is_looked_at():
    runs = [{**RUN, "name": "odd", "settings": ["search.num_simulations=x"]}, {**RUN, "name": "endless", "until": ""}]
    assert [line.split(":")[1] for line in findings(FITS, run=RUN, runs=runs)] == [" run odd", " run endless"]
