"""Every number that a human or a run's record sets has an end on both sides."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel

from azq.config import Config, RunSections, parse_run
from azq.errors import ConfigError


def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A group of settings and all groups within it."""
    yield model
    for field in model.model_fields.values():
        for kind in models_in(field.annotation):
            yield from sections(kind)


def models_in(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for inner in get_args(hint):
        yield from models_in(inner)


def unbounded(hint: Any, marks: tuple[object, ...] = ()) -> Iterator[str]:
    """The numbers in a type that lack a lower or an upper end."""
    if get_origin(hint) is Annotated:
        inner, *more = get_args(hint)
        yield from unbounded(inner, tuple(mark for field in more for mark in getattr(field, "metadata", ())))
    elif hint in (int, float):
        if not any(isinstance(mark, Ge | Gt) for mark in marks) or not any(isinstance(mark, Le | Lt) for mark in marks):
            yield hint.__name__
    elif get_origin(hint) in (Union, types.UnionType, tuple, list, dict):
        for inner in get_args(hint):
            yield from unbounded(inner)


NUMBERS = [
    (f"{model.__name__}.{name}", hint)
    for model in dict.fromkeys(sections(Config))
    for name, hint in get_type_hints(model, include_extras=True).items()
    if name in model.model_fields
]


@pytest.mark.parametrize(("name", "hint"), NUMBERS, ids=[name for name, _ in NUMBERS])
def test_every_number_has_both_ends(name: str, hint: Any) -> None:
    assert not list(unbounded(hint)), name


def test_this_looks_at_all_of_them() -> None:
    names = {name for name, _ in NUMBERS}
    assert {
        "SelfPlayConfig.games_in_flight",
        "NetworkConfig.blocks",
        "DaemonConfig.lease_s",
        "TokenConfig.scope",
        "RunConfig.params",
    } <= names
    assert list(unbounded(dict[str, int | float | str])) == ["int", "float"]


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("selfplay", "games_in_flight", 10**12),
        ("network", "blocks", 10**9),
        ("selfplay", "threads", 10**6),
        ("learner", "max_window", 10**15),
        ("selfplay", "slice_s", 1e300),
        ("search", "c_puct", float("inf")),
        ("search", "c_puct", float("nan")),
        ("run", "params", {"size": 2**64}),
    ],
)
def test_a_stranger_cannot_ask_for_all_of_a_host(section: str, key: str, value: object) -> None:
    assert parse_run({}, "test") == RunSections()
    with pytest.raises(ConfigError, match=rf"{section}\.{key}"):
        parse_run({section: {key: value}}, "test")
