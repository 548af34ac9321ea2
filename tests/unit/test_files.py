"""A file is held by one process at a time, whose id others are told, or for which they wait."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from azq.errors import StateConflict, StoreError
from azq.files import check_output, locked, write_output

HOLD = """
import sys
from pathlib import Path
from azq.files import locked
with locked(Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""


def words(holder: str) -> str:
    return f"process {holder} has it; stop it"


def test_another_holder_is_named_and_a_dead_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(StateConflict, match=f"process {child.pid} has it"), locked(path, words):
            pass
        child.kill()
    with locked(path, words):
        assert path.read_text() == str(os.getpid())


def test_who_gives_no_words_waits(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", list[str]()

    def second() -> None:
        with locked(path):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(path):
        thread.start()
        order.append("first")
    thread.join(PATIENCE_S)
    assert order == ["first", "second"]


def test_what_a_command_writes_has_its_folder_or_an_error_that_names_it(tmp_path: Path) -> None:
    check_output(tmp_path / "new" / "out.toml")
    assert not list((tmp_path / "new").iterdir()), "a look before the work leaves nothing"
    write_output(tmp_path / "new" / "out.toml", b"a")
    assert (tmp_path / "new" / "out.toml").read_bytes() == b"a"
    for path in (tmp_path / "new" / "out.toml" / "more", tmp_path / "new"):
        for write in (check_output, partial(write_output, data=b"a")):
            with pytest.raises(StoreError, match=rf"{path} cannot be written: .*; name another file"):
                write(path)
