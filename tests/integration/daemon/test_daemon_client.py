"""The Python client and the commands against a daemon's real interface: every resource, one token, no argument that holds it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from rest_site import RestSite
from sharp_nets import sharp_bytes
from structlog.testing import capture_logs
from typer.testing import CliRunner
from waiting import until

from azq.cli.app import app
from azq.client import Client
from azq.config import TokenConfig
from azq.errors import AccessDenied, ConfigError, DaemonUnavailable, NotFound, StateConflict, UnknownGameError, UnknownTagError
from azq.ledger.types import RunState
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchResult, MatchSpec, WeightEvent

TOKEN = "token-that-operates"
READER = "token-that-reads"


class Site(RestSite):
    """A REST interface on a port, with a worker, and two tokens."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.url = ""
        super().__init__(home, port=0, token=SecretStr(TOKEN), tokens={"reader": TokenConfig(token=SecretStr(READER), scope="read")})
        self.beat("w1", "selfplay.cpu", "eval.cpu")

    def client(self, token: str = TOKEN) -> Client:
        return Client(self.url, token)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with capture_logs(), site.serving() as site.url:  # what a command prints is then the command's alone
        yield site


def test_every_resource_has_its_method(site: Site) -> None:
    with site.client() as client:
        assert client.create_run("first", game="tic_tac_toe", until={"minutes": 5}).state == "running"
        assert [run.name for run in client.runs(state="running")] == ["first"]
        assert client.run("first").game == "tic_tac_toe"
        assert client.change_run("first", until={"games": 9}).until == {"games": 9.0}
        assert client.pause_run("first", "lunch").reason == "lunch"
        assert client.resume_run("first", until={"games": 10}).until == {"games": 10.0}
        job = client.enqueue("first", "selfplay", games=3)
        match = client.enqueue("first", "eval", match={"first": "latest", "second": "uct:100"})
        assert [one.job_id for one in client.jobs(run="first")] == [match.job_id, job.job_id]
        assert client.job(job.job_id) == job
        assert client.revoke_job(job.job_id).state == "cancelled"
        assert [one.job_id for one in client.jobs(state="cancelled")] == [job.job_id]
        assert [worker.worker for worker in client.workers(role="selfplay")] == ["w1"]
        assert client.run_status("first").jobs_queued == 1
        assert client.run_ledger("first").balanced
        assert [(queue.queue, queue.queued) for queue in client.queues() if queue.queued] == [("eval.cpu", 1)]
        assert client.history("first").at_ms == []
        assert client.arena("first").matches == []
        assert client.weights("first") == []
        assert client.levels("first") == []
        site.bus.publish(keys.weights("first"), encode(WeightEvent("first", 1, "a" * 64, "file:x", 1, 1)))
        assert client.pin_weights("first", 1, "a test").serving == client.unpin_weights("first").serving == 1
        answer = client.moves("first", [{"actions": [0, 4, 1, 5]}], num_simulations=32, seed=None)
        assert (answer.weight_version, answer.moves[0].action, answer.moves[0].text) == (1, 2, "x(0,2)")
        assert client.finish_run("first").state == "finished"
        site.health.tick_ok([])
        assert client.ready().status == "ready"


def test_lists_are_followed_to_their_end(site: Site) -> None:
    with site.client() as client:
        client.create_run("first")
        for _ in range(450):
            site.ledger.enqueue(Job("", "first", Kind.SELFPLAY, "cpu"))
        assert len({job.job_id for job in client.jobs()}) == 450
        spec = MatchSpec("latest", "uct:100", 20, 64, 4, 0)
        for number in range(450):
            site.bus.publish(keys.results("first"), encode(MatchResult(spec, f"weights:{number % 3 + 1}", "uct:100", 15, 2, 3, number)))
        assert [match.finished_ms for match in client.matches("first")] == list(reversed(range(450)))


def test_refusals_are_errors_of_azq(site: Site) -> None:
    with site.client() as client:
        with pytest.raises(NotFound, match="no run 'nope'"):
            client.run("nope")
        with pytest.raises(UnknownGameError, match="tic_tac_toe"):
            client.create_run("first", game="chess3d")
        client.create_run("first")
        with pytest.raises(StateConflict, match="exists already"):
            client.create_run("first")
        with pytest.raises(UnknownTagError, match="jarvis"):
            client.enqueue("first", "selfplay", tag="jarvis")
        with pytest.raises(DaemonUnavailable):
            client.ready()
    with site.client(READER) as reader, pytest.raises(AccessDenied, match="'reader' has scope read"):
        reader.pause_run("first")
    with site.client("wrong") as stranger, pytest.raises(AccessDenied) as caught:
        stranger.run("first")
    assert "wrong" not in str(caught.value)


def test_events_are_iterated_as_they_come(site: Site) -> None:
    site.ledger.create_run(site_record())
    heard = threading.Event()

    def pause_and_resume() -> None:
        # Again and again: what happens before the stream is open is not told.
        while not heard.wait(0.1):
            site.ledger.set_run_state("first", RunState.PAUSED, "lunch")
            site.ledger.set_run_state("first", RunState.RUNNING)

    operator = threading.Thread(target=pause_and_resume)
    operator.start()
    try:
        with site.client(READER) as client:
            event = next(event for event in client.events("first") if event.kind == "run.paused")
            assert (event.run, event.about) == ("first", {"reason": "lunch"})
            assert next(client.events("first", after=event.id)).kind == "run.running"
    finally:
        heard.set()
        operator.join()


def site_record() -> Any:
    from azq.wire.messages import RunRecord

    return RunRecord("first", b"{}", {}, "folder", 1)


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def azq(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AZQ_DAEMON__TOKEN", TOKEN)
    monkeypatch.setenv("AZQ_DAEMON__PORT", site.url.rpartition(":")[2])

    def run(*arguments: str, as_json: bool = True) -> Any:
        result = CliRunner().invoke(app, [*arguments, *(["--json"] if as_json else [])])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        assert TOKEN not in result.output
        return json.loads(result.stdout) if as_json else result.stdout

    return run


def test_the_commands_reach_the_same_routes(site: Site, azq: Any) -> None:
    created = azq("runs", "create", "first", "--game", "tic_tac_toe", "--set", "search.num_simulations=17", "--until", "minutes=5")
    assert (created["sections"]["search"]["num_simulations"], created["until"]) == (17, {"minutes": 5.0})
    assert azq("runs", "pause", "first", "--reason", "lunch")["reason"] == "lunch"
    assert azq("runs", "resume", "first")["state"] == "running"
    assert azq("runs", "until", "first", "--until", "games=7")["until"] == {"games": 7.0}
    assert azq("runs", "until", "first")["until"] == {}
    job = azq("jobs", "enqueue", "first", "--games", "3")
    match = azq("jobs", "enqueue", "first", "--kind", "eval", "--second", "random")
    assert [one["job_id"] for one in azq("jobs", "list")] == [match["job_id"], job["job_id"]]
    assert azq("jobs", "show", job["job_id"])["games"] == 3
    assert azq("jobs", "revoke", job["job_id"])["state"] == "cancelled"
    assert len(azq("jobs", "list", "--ended")) == 2
    assert [worker["worker"] for worker in azq("workers", "--tag", "cpu")] == ["w1"]
    assert azq("runs", "finish", "first")["state"] == "finished"
    assert [run["state"] for run in azq("runs", "list")] == ["finished"]
    assert azq("runs", "show", "first", "--url", site.url)["name"] == "first"


def test_a_run_is_deleted_with_its_files_where_that_is_asked_for(site: Site, azq: Any) -> None:
    for name in ("first", "second"):
        azq("runs", "create", name)
        (site.home / name / "segments").mkdir(parents=True)
        with pytest.raises(StateConflict, match="pause or finish"):
            azq("runs", "delete", name, "--yes")
        azq("runs", "finish", name)
    assert azq("runs", "delete", "first", "--yes") == {"run": "first", "deleted": True, "folder": str(site.home / "first"), "files": False}
    assert (site.home / "first" / "segments").is_dir()
    assert azq("runs", "delete", "second", "--yes", "--files", as_json=False) == f"second: deleted, with {site.home / 'second'}\n"
    assert not (site.home / "second").exists()
    assert azq("runs", "list") == []
    with pytest.raises(NotFound):
        azq("runs", "delete", "first", "--yes")


@pytest.mark.parametrize(("answers", "deleted", "files"), [("n\n", False, False), ("y\nn\n", False, False), ("y\ny\n", True, True)])
def test_deleting_asks_and_asks_again_about_files(site: Site, azq: Any, answers: str, deleted: bool, files: bool) -> None:
    azq("runs", "create", "first")
    azq("runs", "finish", "first")
    (site.home / "first" / "segments").mkdir(parents=True)
    result = CliRunner().invoke(app, ["runs", "delete", "first", "--files", "--json"], input=answers)
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "run": "first",
        "deleted": deleted,
        "folder": str(site.home / "first"),
        "files": files,
    }
    assert (site.home / "first").exists() is not files
    assert len(azq("runs", "list")) == (not deleted)


def test_files_that_are_not_here_or_no_runs_are_kept(site: Site, azq: Any) -> None:
    azq("runs", "create", "first")
    azq("runs", "finish", "first")
    with pytest.raises(ConfigError, match="no folder of a run on this host"):
        azq("runs", "delete", "first", "--yes", "--files")
    assert len(azq("runs", "list")) == 1


def test_who_changed_what_is_told(site: Site, azq: Any) -> None:
    azq("runs", "create", "first")
    azq("runs", "pause", "first")
    until(lambda: site.bus.length(keys.AUDIT) >= 2, "two audited requests")
    lines = [json.loads(line) for line in azq("events", "--audit", "--json", as_json=False).splitlines()]
    assert [(line["who"], line["what"], line["status"], line["about"]) for line in lines] == [
        ("daemon.token", "POST /v1/runs", 201, "first"),
        ("daemon.token", "POST /v1/runs/first/pause", 200, ""),
    ]
    assert "POST /v1/runs/first/pause -> 200" in azq("events", "--audit", as_json=False)


def test_people_get_lines(azq: Any) -> None:
    assert azq("runs", "list", as_json=False) == "none\n"
    assert azq("runs", "create", "first", as_json=False).startswith("first ")
    assert "selfplay.cpu" in azq("jobs", "enqueue", "first", as_json=False)
    assert "selfplay.cpu" in azq("jobs", "list", as_json=False)
    assert "w1" in azq("workers", as_json=False)


def test_weights_are_saved_whole(site: Site, azq: Any, tmp_path: Path) -> None:
    azq("runs", "create", "first")
    sha256, uri = open_store("file", directory=site.home / "first" / "weights").put(b"weights")
    site.bus.publish(keys.weights("first"), encode(WeightEvent("first", 1, sha256, uri, 10, 0)))
    azq("weights", "export", "--run", "first", "--out", str(tmp_path / "w.safetensors"), as_json=False)
    assert (tmp_path / "w.safetensors").read_bytes() == b"weights"


def test_weights_are_exported_as_what_browsers_run(site: Site, azq: Any, tmp_path: Path) -> None:
    azq("runs", "create", "first")
    sha256, uri = open_store("file", directory=site.home / "first" / "weights").put(sharp_bytes("resnet"))
    for version in (1, 2):
        site.bus.publish(keys.weights("first"), encode(WeightEvent("first", version, sha256, uri, 10, 0)))
    out = tmp_path / "w.onnx"
    told = azq("weights", "export", "--run", "first", "--format", "onnx", "--out", str(out))
    assert (told["version"], told["size"], told["sha256"]) == (2, out.stat().st_size, hashlib.sha256(out.read_bytes()).hexdigest())
    azq("weights", "export", "--run", "first", "--version", "1", "--out", str(tmp_path / "w"))
    assert (tmp_path / "w").read_bytes() == sharp_bytes("resnet")
    with pytest.raises(NotFound, match="rated"):
        azq("weights", "export", "--run", "first", "--version", "best")
    spec = MatchSpec("weights:1", "weights:2", 4, 8, 0, 0)
    site.bus.publish(keys.results("first"), encode(MatchResult(spec, spec.first, spec.second, 4, 0, 0, 1)))
    assert azq("weights", "export", "--run", "first", "--version", "best", "--out", str(out))["version"] == 1


def test_a_refusal_is_an_error_with_an_exit_code(azq: Any) -> None:
    with pytest.raises(NotFound) as caught:
        azq("runs", "show", "nope")
    assert caught.value.exit_code == 9
