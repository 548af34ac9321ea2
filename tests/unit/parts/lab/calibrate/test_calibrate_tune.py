"""A choice in a settings file: whole, where it belongs, and nothing else of the file changed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.config import load
from azq.config.loading import merge, to_toml
from azq.errors import ConfigError
from azq.parts.lab.calibrate.tune import check_writable, update, with_values, write_new

CHANGES: dict[str, dict[str, Any]] = {"selfplay": {"groups": 3, "answer_within_ms": 0.0}, "worker": {"concurrency": 2}}
WRITTEN = """# mine
home = "elsewhere"

[selfplay]  # of my machine
groups = 2 # two
slice_s = 30.0

[learner]
batch_size = 256
"""


def test_a_file_is_edited_and_its_comments_stay() -> None:
    assert (
        with_values(WRITTEN, CHANGES)
        == """# mine
home = "elsewhere"

[selfplay]  # of my machine
answer_within_ms = 0.0
groups = 3 # two
slice_s = 30.0

[learner]
batch_size = 256

[worker]
concurrency = 2
"""
    )


sections = st.dictionaries(
    st.sampled_from(["selfplay", "worker", "search", "learner"]),
    st.dictionaries(st.sampled_from(["groups", "threads", "concurrency"]), st.integers(0, 9) | st.booleans() | st.floats(0, 9), max_size=3),
    max_size=4,
)


@given(old=sections, changes=sections)
def test_a_file_has_the_changes_and_what_it_had(old: dict[str, dict[str, object]], changes: dict[str, dict[str, object]]) -> None:
    text = to_toml(old)
    changes = {section: values for section, values in changes.items() if values}
    assert tomllib.loads(with_values(text, changes)) == merge(tomllib.loads(text), changes)


@pytest.mark.parametrize("text", ["selfplay = { groups = 2 }\n", "selfplay.groups = 2\n", 'home = """\n[selfplay]\ngroups = 1\n"""\n'])
def test_what_lines_cannot_change_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.toml is written in a way .* set selfplay\.groups there by hand"):
        with_values(text, {"selfplay": {"groups": 3}}, "mine.toml")


def test_a_refused_file_is_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "azq.toml"
    file.write_text("selfplay = { groups = 2 }\n")
    with pytest.raises(ConfigError, match="by hand"):
        update(file, CHANGES)
    assert file.read_text() == "selfplay = { groups = 2 }\n"
    assert list(tmp_path.iterdir()) == [file]


def test_files_are_taken_as_settings(tmp_path: Path) -> None:
    new, old = tmp_path / "new.toml", tmp_path / "old.toml"
    write_new(new, CHANGES, "connect_four on 2 cores")
    old.write_text(WRITTEN)
    update(old, CHANGES)
    assert new.read_text().startswith("# connect_four on 2 cores\n")
    for file in (new, old):
        config = load(file)
        assert (config.selfplay.groups, config.selfplay.answer_within_ms, config.worker.concurrency) == (3, 0.0, 2)


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        check_writable(tmp_path / "nowhere" / "new.toml", None)
    with pytest.raises(ConfigError, match="cannot be read"):
        check_writable(None, tmp_path / "azq.toml")
    (tmp_path / "azq.toml").write_text("[")
    with pytest.raises(ConfigError, match="not readable TOML"):
        check_writable(None, tmp_path / "azq.toml")
    check_writable(tmp_path / "new.toml", None)
