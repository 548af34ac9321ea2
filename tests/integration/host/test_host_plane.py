"""`azq broker` as a container sees it: a process, a file that stays young, an end that says why."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import PATIENCE_S, until

from azq.config import Config
from azq.errors import ConfigError, ExitCode
from azq.host.brokers import main, read_password
from azq.host.fronts import free_port
from azq.process.start import AZQ
from azq.wire.connect import connect

PASSWORD = "a-word-that-is-hard-to-guess"


@contextlib.contextmanager
def serving(folder: Path, plane: str) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """A broker's process, where it listens, and the file whose age tells how it is."""
    (folder / "password").write_text(f"{PASSWORD}\n")
    listen, alive = f"127.0.0.1:{free_port()}", folder / "alive"
    environment = {**os.environ, "AZQ_HOME": str(folder / "runs"), "AZQ_ALIVE_FILE": str(alive)}
    command = [*AZQ, "broker", "--plane", plane, "--listen", listen, "--password-file", str(folder / "password")]
    process = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        until(alive.exists, "signs of life")
        yield process, listen, alive
    finally:
        process.kill()
        process.wait()


def test_it_serves_its_users_and_stays_young_until_its_server_dies(tmp_path):
    with serving(tmp_path, "data") as (process, listen, alive):
        with contextlib.closing(connect(f"redis://:{PASSWORD}@{listen}/0", timeout_s=5.0)) as owner:
            assert "azq-inference" in owner.acl_users()
            server = int(owner.info("server")["process_id"])
        os.utime(alive, (0.0, 0.0))
        until(lambda: alive.stat().st_mtime > 0.0, "further signs of life")
        os.kill(server, signal.SIGKILL)
        assert process.wait(PATIENCE_S) == ExitCode.BROKER_UNAVAILABLE  # who started it starts it again


def test_a_stop_is_no_failure(tmp_path):
    with serving(tmp_path, "control") as (process, _, _):
        process.terminate()
        assert process.wait(PATIENCE_S) == ExitCode.OK


@pytest.mark.parametrize(
    ("text", "said"),
    [("short", "holds no word of 16 letters"), ("two words of letters", "holds no word"), (None, "cannot be read")],
)
def test_a_password_that_could_be_guessed_is_refused(tmp_path, text, said):
    file = tmp_path / "password"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_password(file)


def test_a_plane_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'date' is none of control, data"):
        main(Config(home=tmp_path), "date", "127.0.0.1:1", None)
