"""What a process finds in its environment by chance: each line is one that somebody had, and azq works in it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from azq.config import load
from azq.errors import ConfigError
from azq.process.liveness import READY, notify
from azq.process.start import AZQ, PYTHON, child_environment
from azq.queue import make_app

URL = "redis://localhost:1/0"
# What a child of azq is: settings, the core, Celery's app, a log line.
CHILD = f"""
import json
from azq import _core, logs
from azq.config import load
from azq.queue import make_app
config = load()
logs.setup("probe")
logs.get("probe").info("\\u00f6", home=str(config.home))
print(json.dumps([str(config.home), make_app({URL!r}).conf.broker_url, len(_core.game_names())]))
"""


class Line(NamedTuple):
    """An environment: what is set, and what lies in the folder that azq is started in."""

    name: str
    variables: dict[str, str]
    files: Mapping[str, str] = MappingProxyType({})
    slow: bool = False


FOREIGN = "raise SystemExit('a file of the user was imported in place of a library')\n"
SHADOWS = ("redis", "celery", "queue", "secrets", "json", "typer", "torch", "azq")
LINES = (
    Line("files named like libraries in the folder", {}, {f"{name}.py": FOREIGN for name in SHADOWS}),
    Line("a start file of the interactive Python", {"PYTHONSTARTUP": "/nowhere/start.py"}, slow=True),
    Line("no locale", {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    Line("an encoding that lacks letters", {"PYTHONIOENCODING": "ascii"}, slow=True),
    Line("a fixed seed of hashes", {"PYTHONHASHSEED": "0"}, slow=True),
    Line("without assertions and docstrings", {"PYTHONOPTIMIZE": "2"}),
    Line("development mode", {"PYTHONDEVMODE": "1"}, slow=True),
    Line("no byte code may be written", {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": "/proc/nowhere"}, slow=True),
    Line("no HOME and no PATH", {"HOME": "", "PATH": ""}),
    Line("a folder for temporary files that is not there", {"TMPDIR": "/nowhere/tmp"}),
    Line("folders of the desktop that are not there", {"XDG_CONFIG_HOME": "/nowhere", "XDG_RUNTIME_DIR": "/nowhere"}, slow=True),
    Line("a time zone that is none", {"TZ": "Nowhere/Else"}, slow=True),
    Line("no threads for OpenMP", {"OMP_NUM_THREADS": "0"}, slow=True),
    Line("a terminal of one column without colours", {"COLUMNS": "1", "LINES": "1", "TERM": "dumb", "NO_COLOR": "1"}, slow=True),
    Line("colours where there is no terminal", {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}, slow=True),
    Line(
        "another application of Celery",
        {
            "CELERY_BROKER_URL": "redis://elsewhere/0",
            "CELERY_BROKER_WRITE_URL": "redis://elsewhere/1",
            "CELERY_RESULT_BACKEND": "redis://elsewhere/2",
            "CELERY_LOADER": "nowhere.Loader",
            "CELERY_CONFIG_MODULE": "nowhere",
        },
    ),
    Line("services of Kubernetes", {"AZQ_DAEMON_PORT": "tcp://10.0.0.1:80", "AZQ_BROKER_SERVICE_HOST": "10.0.0.2"}),
    Line(
        "a manager of services that is not ours", {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}, slow=True
    ),
    Line("proxies that nobody answers at", {"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "socks5://127.0.0.1:1"}, slow=True),
    Line("certificates that are not there", {"SSL_CERT_FILE": "/nowhere/ca.pem", "REQUESTS_CA_BUNDLE": "/nowhere/ca.pem"}, slow=True),
    Line("a web server of another kind", {"WEB_CONCURRENCY": "many", "FORWARDED_ALLOW_IPS": "*", "UVICORN_PORT": "1"}, slow=True),
)
PARAMS = [pytest.param(line, id=line.name, marks=[pytest.mark.slow] if line.slow else []) for line in LINES]


@pytest.mark.parametrize("line", PARAMS)
def test_a_child_of_azq_starts_as_it_should(line: Line, tmp_path: Path) -> None:
    home, folder = tmp_path / "runs", tmp_path / "here"
    folder.mkdir()
    for name, text in line.files.items():
        (folder / name).write_text(text)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AZQ_", "PYTHON", "CELERY_"))}
    environment = {**own, "AZQ_HOME": str(home), **line.variables}
    done = subprocess.run([*PYTHON, "-c", CHILD], cwd=folder, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    found_home, broker, games = json.loads(done.stdout.splitlines()[-1])
    assert (found_home, games > 0) == (str(home), True)
    assert broker.endswith("localhost:1/0")
    assert b"home=" in done.stderr


def test_the_command_line_itself_starts_beside_files_named_like_libraries(tmp_path: Path) -> None:
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(FOREIGN)
    done = subprocess.run([*AZQ, "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:4]) == (0, "azq ")


# -- judged in this process


def celery_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://elsewhere/0")
    monkeypatch.setenv("CELERY_BROKER_READ_URL", "redis://elsewhere/1")
    conf = make_app(URL).conf
    assert {conf.broker_url, conf.broker_read_url, conf.broker_write_url} == {make_app(URL).conf.broker_url}
    assert "elsewhere" not in conf.broker_url


def uvicorn_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    from azq.process.webserver import UVICORN_SETTINGS

    monkeypatch.setenv("WEB_CONCURRENCY", "many")
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    settings = uvicorn.Config("nothing", **UVICORN_SETTINGS)
    assert (settings.workers, settings.forwarded_allow_ips) == (1, "127.0.0.1,::1")


def foreign_managers_are_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    assert not notify(READY)


def a_mistyped_section_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_DEAMON__PORT", "80")
    with pytest.raises(ConfigError, match="AZQ_DEAMON__PORT"):
        load()


def children_get_no_settings_but_their_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_DAEMON__TOKEN", "a-secret-of-the-daemon")
    assert "a-secret-of-the-daemon" not in json.dumps(child_environment(load(), "worker"))


def a_folder_that_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = subprocess.run([*AZQ, "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def a_strict_umask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from azq.files import publish_file

    before = os.umask(0o777)
    try:
        publish_file(tmp_path / "file", b"x", 0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def a_zone_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from azq.clock import now_ms

    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        assert abs(now_ms() - time.time_ns() // 1_000_000) < 60_000
    finally:
        monkeypatch.undo()
        time.tzset()


HERE: tuple[Callable[..., Any], ...] = (
    celery_stays_ours,
    uvicorn_stays_ours,
    foreign_managers_are_deaf,
    a_mistyped_section_is_named,
    children_get_no_settings_but_their_roles,
    a_folder_that_is_gone,
    a_strict_umask,
    a_zone_of_time,
)


@pytest.mark.parametrize("judge", HERE, ids=lambda judge: judge.__name__)
def test_what_lies_in_the_environment_changes_nothing(judge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"tmp_path": tmp_path} if "tmp_path" in judge.__annotations__ else {}
    judge(monkeypatch, **given)
