"""A cluster's bill: the published table to the cent, budgets, and prices that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from azq.errors import ConfigError
from azq.parts.cluster.cost import bill
from azq.parts.cluster.description import cluster_of, read_cluster

MAXOUT = Path(__file__).parents[4] / "ops" / "clusters" / "maxout.toml"


def small(**parts: object) -> dict[str, object]:
    own = {"tower": {"per_hour": 0.25, "vcpus": 16, "gpus": 1}, "laptop": {"vcpus": 4}}
    return {"cluster": {"name": "home", "hours": 10}, "kinds": own, "machines": {"all": {"kind": "tower", "roles": ["selfplay"]}}, **parts}


def test_the_published_cluster_costs_what_its_plan_says():
    found = bill(read_cluster(MAXOUT))
    assert {part.name: part.per_hour for part in found.components if part.name in ("selfplay", "inference", "training")} == {
        "selfplay": 32.64,
        "inference": 32.58,
        "training": 98.32,
    }
    assert sum(part.per_hour for part in found.components if part.name in ("broker", "store", "metrics")) == pytest.approx(0.62)
    assert (found.per_hour, found.total) == (164.16, 123.12)
    # The plan rounds the hour to 164 before it multiplies: 82 to 123, 164 to 328, 820 to 1,312.
    assert [row[3:] for row in found.scenarios] == [(82.08, 123.12), (164.16, 328.32), (820.80, 1313.28)]


def test_the_smallest_has_one_machine_of_each():
    found = bill(read_cluster(MAXOUT, smallest=True), hours=2)
    assert {part.count for part in found.components} == {1}
    assert found.per_hour == pytest.approx(8.16 + 16.29 + 98.32 + 0.62)
    assert found.total == pytest.approx(2 * found.per_hour)


@pytest.mark.parametrize(
    ("budget", "hours", "ends"),
    [({}, 10, None), ({"hours": 4}, 10, 4.0), ({"money": 1.0}, 10, 4.0), ({"money": 1.0, "hours": 3}, 10, 3.0), ({"money": 2.5}, 10, None)],
)
def test_whatever_comes_first_ends_it(budget, hours, ends):
    assert bill(cluster_of(small(budget=budget), "here"), hours).ends_after_h == ends


def test_a_price_that_is_missing_is_asked_for():
    cluster = cluster_of(small(machines={"one": {"kind": "laptop", "roles": ["selfplay"]}}), "here")
    with pytest.raises(ConfigError, match=r"no price of 'laptop' \(one\); set per_hour in \[kinds.'laptop'\]"):
        bill(cluster)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"machines": {}}, "here: machines: "),
        ({"machines": {"one": {"kind": "desk", "roles": ["selfplay"]}}}, "'desk' is not in the catalogue"),
        ({"machines": {"one": {"kind": "tower", "roles": ["cook"]}}}, "here: machines.one.roles.0: "),
        ({"machines": {"one": {"kind": "s3", "roles": ["selfplay"]}}}, "s3 is a service for 'store' and nothing else"),
        ({"machines": {"one": {"kind": "tower", "count": 2, "roles": ["selfplay"], "hosts": ["a"]}}}, "names 1 machines, count says 2"),
        ({"budget": {"euros": 3}}, "here: budget.euros: "),
        ({"cluster": {"name": "No Name"}}, "here: name: "),
    ],
)
def test_what_a_file_has_wrong_is_named_with_its_place(parts, said):
    with pytest.raises(ConfigError) as refused:
        cluster_of(small(**parts), "here")
    assert said in str(refused.value)
