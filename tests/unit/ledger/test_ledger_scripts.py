"""The scripts as text: what Python asks for is there with the keys and constants that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from azq.ledger import scripts

PACKAGE = Path(scripts.__file__).parent
GROUPS = ("runs", "jobs", "games", "learner", "mend")


def commands(group: str) -> set[str]:
    return set(re.findall(r"^function commands\.(\w+)\(", scripts.source(group), re.MULTILINE))


def test_each_command_that_python_asks_for_exists_and_each_that_exists_is_asked_for() -> None:
    text = "".join(path.read_text("utf-8") for path in PACKAGE.glob("*.py"))
    asked = set(re.findall(rf'"((?:{"|".join(GROUPS)})\.\w+)"', text))
    assert asked == {f"{group}.{name}" for group in GROUPS for name in commands(group)}


@pytest.mark.parametrize("group", GROUPS)
def test_a_script_gets_the_keys_and_constants_that_it_names_and_no_others(group: str) -> None:
    header, _, body = scripts.source(group).partition("-- What all scripts begin with")
    given = set(re.findall(r"^local (\w+) = ", header, re.MULTILINE))
    own = set(re.findall(r"^local ([A-Z_]+)\b", body, re.MULTILINE)) | {"ONCE", "JOB", "HELD", "FIRST"}
    code = re.sub(r"--.*|'[^']*'", "", body)
    assert given - set(re.findall(r"\b[A-Z_]+\b", body)) == set()
    assert set(re.findall(r"\b[A-Z][A-Z_]+\b", code)) - given - own <= {"KEYS", "ARGV"}
