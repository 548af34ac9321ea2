"""Keys: two runs never share one, and all keys of a run fall into one slot."""

from __future__ import annotations

import inspect
import re

from hypothesis import given
from hypothesis import strategies as st

from azq.config import RUN_NAME_PATTERN
from azq.wire import keys

OF_RUNS = [
    function
    for name, function in inspect.getmembers(keys, inspect.isfunction)
    if next(iter(inspect.signature(function).parameters)) == "name"
]
run_names = st.from_regex(re.compile(RUN_NAME_PATTERN), fullmatch=True)


def keys_of(run: str) -> set[str]:
    return {
        function(run, 7) if len(inspect.signature(function).parameters) == 2 else function(run)  # type: ignore[call-arg]
        for function in OF_RUNS
    }


@given(run_names, run_names)
def test_runs_share_no_key(one, other):
    assert len(keys_of(one)) == len(OF_RUNS) >= 15
    if one != other:
        assert not keys_of(one) & keys_of(other)


@given(run_names)
def test_all_keys_of_a_run_fall_into_one_slot(run):
    assert {key[key.index("{") : key.index("}") + 1] for key in keys_of(run)} == {f"{{{run}}}"}
    assert all(key.startswith("azq:") for key in keys_of(run))


def test_every_key_is_described():
    described = inspect.getdoc(keys) or ""
    for key in keys_of("run"):
        assert key.removesuffix("7").removesuffix(":") in described, key
    for key in (keys.RUNS, keys.DEAD, keys.DEAD_COUNT, keys.DAEMON, "azq:blob:", keys.BEAT_PREFIX, "azq:reply:"):
        assert key in described, key
