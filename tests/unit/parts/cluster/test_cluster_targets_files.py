"""Rendered files come into a folder whole, again over themselves, and never over what others wrote."""

from __future__ import annotations

import pytest

from azq.errors import ConfigError, StateConflict
from azq.parts.cluster.targets.files import MANIFEST, RenderedFile, write

FIRST = {"main.tf": RenderedFile("one\n"), "bin/go.sh": RenderedFile("#!/bin/sh\n", executable=True)}
SECOND = {"main.tf": RenderedFile("two\n"), "new.tf": RenderedFile("new\n")}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST}


def plain(rendering):
    return {name: file.text for name, file in rendering.items()}


@pytest.mark.parametrize("exists", [False, True])
def test_a_new_folder_holds_all_of_it(tmp_path, exists):
    folder = tmp_path / "above" / "out"
    if exists:
        folder.mkdir(parents=True)
    assert write(FIRST, "compose", folder) == list(FIRST)
    assert contents(folder) == plain(FIRST)
    assert (folder / "bin" / "go.sh").stat().st_mode & 0o777 == 0o755
    assert (folder / "main.tf").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in folder.parent.iterdir()] == ["out"]


def test_once_more_changes_what_changed_and_keeps_what_others_put_there(tmp_path):
    write(FIRST, "compose", tmp_path / "out")
    (tmp_path / "out" / "secret.env").write_text("KEY=1\n")
    assert write(FIRST, "compose", tmp_path / "out") == []
    assert write(SECOND, "compose", tmp_path / "out") == ["bin/go.sh", "main.tf", "new.tf"]
    assert contents(tmp_path / "out") == {**plain(SECOND), "secret.env": "KEY=1\n"}


def test_a_file_that_somebody_changed_is_kept_unless_forced(tmp_path):
    write(FIRST, "compose", tmp_path)
    (tmp_path / "main.tf").write_text("mine\n")
    with pytest.raises(StateConflict, match=r"main\.tf changed since azq wrote it"):
        write(SECOND, "compose", tmp_path)
    assert contents(tmp_path) == {**plain(FIRST), "main.tf": "mine\n"}
    write(SECOND, "compose", tmp_path, force=True)
    assert contents(tmp_path) == plain(SECOND)


def test_a_render_that_was_cut_off_is_finished_by_the_next(tmp_path):
    write(FIRST, "compose", tmp_path)
    (tmp_path / "main.tf").write_text(SECOND["main.tf"].text)  # and the manifest is still the first one's
    write(SECOND, "compose", tmp_path)
    assert contents(tmp_path) == plain(SECOND)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (None, "files that azq did not render"),
        ("{", "cannot be read"),
        ('{"target": "slurm", "files": {}}', "was rendered for slurm, not compose"),
        ('{"target": "compose", "files": {"../other": "00"}}', "'../other', which lies elsewhere"),
    ],
)
def test_a_folder_of_somebody_else_is_left_alone(tmp_path, manifest, said):
    (tmp_path / "notes.txt").write_text("mine\n")
    if manifest is not None:
        (tmp_path / MANIFEST).write_text(manifest)
    with pytest.raises(StateConflict, match=said):
        write(FIRST, "compose", tmp_path, force=True)
    assert contents(tmp_path) == {"notes.txt": "mine\n"}


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/out cannot be written"):
        write(FIRST, "compose", tmp_path / "file" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
