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
    return {function(run, 7) if len(inspect.signature(function).parameters) == 2 else function(run) for function in OF_RUNS}


@given(run_names, run_names)
def test_runs_share_no_key(one, other):
    assert len(keys_of(one)) == len(OF_RUNS) >= 15
    if one != other:
        assert not keys_of(one) & keys_of(other)


@given(run_names)
def test_all_keys_of_a_run_fall_into_one_slot(run):
    assert {key[key.index("{") : key.index("}") + 1] for key in keys_of(run)} == {f"{{{run}}}"}
    assert all(key.startswith("azq:") for key in keys_of(run))


def matches(pattern: str, key: str) -> bool:
    named = re.sub(r"<[^>]*>", "\0", pattern.replace("{run}", "{ttt}"))
    return re.fullmatch(re.escape(named).replace("\0", ".+"), key) is not None


def test_every_key_has_its_row_in_the_table():
    made = {*keys_of("ttt"), keys.blob("ab"), keys.blob_chunk("ab", "c"), keys.beat("w"), keys.reply("c"), keys.pinned("k")}
    made |= {
        value
        for name, value in vars(keys).items()
        if name.isupper() and isinstance(value, str) and value.startswith("azq:") and value[-1] != ":"
    }
    for key in made:
        rows = [row.pattern for row in keys.TABLE if matches(row.pattern, key)]
        assert rows if not key.endswith(":") else True, key
        assert len(rows) <= 2, (key, rows)
    assert len({row.pattern for row in keys.TABLE}) == len(keys.TABLE)


def test_the_owners_keys_are_written_by_the_daemon_alone_and_weights_by_no_machine_that_plays():
    writers = {row.pattern: {role for role, right in row.rights.items() if "w" in right} for row in keys.TABLE}
    for pattern in ("azq:runs", "azq:{run}:run", "azq:schema", "azq:daemon", "azq:fleet"):
        assert writers[pattern] == {"daemon"}
    assert writers["azq:{run}:weights"] == {"learner", "daemon"}  # which deletes them with their run
    for pattern in ("azq:blob:<sha256>", "azq:{azq:blob:<sha256>}:<name>"):
        assert writers[pattern] == {"learner", "daemon", "gateway"}  # which keeps networks for browsers there
    assert writers["azq:machines"] == set()
