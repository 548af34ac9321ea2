"""Machines that join a fleet, one of them cut off and healed: hosts are network namespaces, everything in them is real."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from host_fleet import GAME, PASSWORD, RUN, HostFleet, fleet
from lan_hosts import why_not
from waiting import PATIENCE_S

from azq.ledger.types import JobView
from azq.parts.lab.drill.outcome import Discrepancy
from azq.process.start import AZQ
from azq.replay.segments import SegmentLog
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import SampleEvent

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=f"no hosts can be made here: {why_not()}")]

SELFPLAY = ("--roles", "selfplay", "-c", "1")


@pytest.fixture(scope="module", name="found")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostFleet]:
    """First: brokers, daemon, learner; `eyes` evaluates; `cora` and `dora` play."""
    with fleet(tmp_path_factory.mktemp("fleet"), "eyes", "cora", "dora") as found:
        found.join("eyes", "--roles", "inference")
        found.join("cora", *SELFPLAY)
        found.join("dora", *SELFPLAY)
        found.until(lambda: found.leased("cora") and found.leased("dora"), "jobs at both players")
        found.more(100, "from both")
        yield found


def test_one_command_a_machine_makes_a_fleet_and_shows_no_secret(found: HostFleet) -> None:
    said = found.log("eyes.log")
    for line in ("ok   control", "ok   durable", "ok   daemon", "ok   data       rediss://10.213.47.1:6380/0", "ok   machine    eyes:"):
        assert line in said
    assert all(PASSWORD not in found.log(f"{host}.log") for host in ("eyes", "cora", "dora"))
    assert PASSWORD not in subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert PASSWORD not in found.log("at-cora/azq.toml")
    assert {beat.role for beat in found.beats("eyes")} == {"inference"}
    assert {beat.role for beat in found.beats("dora")} == {"selfplay"}


def test_the_front_that_was_killed_is_missed_by_nobody_for_long(found: HostFleet) -> None:
    processes = {beat.pid for host in ("eyes", "cora", "dora") for beat in found.beats(host)}
    for role in ("control", "data"):
        process = found.processes[f"front-{role}"]
        process.kill()
        process.wait()
        found.start_front(role)
    assert found.more(50, "through the next fronts").balanced
    assert {beat.pid for host in ("eyes", "cora", "dora") for beat in found.beats(host)} == processes


def test_a_player_that_is_cut_off_loses_its_games_to_another_and_plays_again_when_healed(found: HostFleet) -> None:
    held = found.until(lambda: found.leased("cora"), "a job at cora")[0]
    games = found.until(lambda: held_games(found, held), "games in cora's hands")
    processes = {beat.pid for beat in found.beats("cora")}
    found.hosts["cora"].cut()
    found.until(lambda: not found.leased("cora"), "the end of cora's lease")
    assert found.ledger.job(held.job.job_id).attempt == held.attempt + 1
    found.until(lambda: not games & open_games(found), "the end of cora's games in other hands")
    assert found.more(50, "while cora is away").balanced
    found.until(lambda: not found.beats("cora"), "the end of cora's heartbeat")
    found.hosts["cora"].heal()
    found.until(lambda: found.leased("cora"), "a job at cora after the cut")
    assert {beat.pid for beat in found.until(lambda: found.beats("cora"), "cora's heartbeat")} == processes
    found.more(50, "with cora back")


def test_evaluations_are_asked_for_again_when_the_evaluator_was_cut_off(found: HostFleet) -> None:
    processes = {beat.pid for beat in found.beats("eyes")}
    before = found.resent()
    found.hosts["eyes"].cut()
    found.until(lambda: found.resent() > before, "evaluations asked for again")
    found.hosts["eyes"].heal()
    found.more(50, "after the evaluator came back")
    assert {beat.pid for beat in found.until(lambda: found.beats("eyes"), "its heartbeat")} == processes


def test_joining_again_changes_nothing_and_another_fleets_files_are_refused(found: HostFleet, tmp_path: Path) -> None:
    command = ["--roles", "selfplay", "--dry-run", "--token-file", str(tmp_path / "token"), "--folder", str(tmp_path)]
    (tmp_path / "token").write_text(f"{found.token}\n")
    (tmp_path / "azq.env").write_text("AZQ_BROKER__CONTROL_URL=redis://:hush@elsewhere:6379/0\n")
    done = subprocess.run(
        found.hosts["dora"].command(*joining(found), *command),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=tmp_path,
    )
    assert done.returncode == 10
    assert "redis://elsewhere:6379/0" in done.stderr
    assert "--force" in done.stderr
    assert "hush" not in done.stderr + done.stdout


def test_draining_the_fleet_leaves_a_balanced_ledger_and_every_game_once(found: HostFleet) -> None:
    assert set(found.stop("cora", "dora").values()) == {0}
    assert found.leased("cora") == found.leased("dora") == []
    found.until(lambda: found.counts().in_transit == 0, "the learner's last intake")
    assert set(found.stop("learner", "eyes", "daemon").values()) == {0}
    counts = found.counts()
    assert counts.balanced
    assert found.discrepancy() == Discrepancy()
    events = learned_from(found)
    assert len(events) == counts.inserted
    assert {event.worker.partition(":")[0] for event in events} == {"cora", "dora"}


def held_games(found: HostFleet, view: JobView) -> set[Any]:
    return set(found.client.smembers(keys.held(RUN, int(view.job.job_id.partition(":")[2]))))


def open_games(found: HostFleet) -> set[Any]:
    return set(found.client.hkeys(keys.open_games(RUN)))


def learned_from(found: HostFleet) -> list[SampleEvent]:
    log = SegmentLog(found.folder / RUN / "segments", GAME)
    return [decode(frame, SampleEvent) for frame in log.tail(1 << 62)]


def joining(found: HostFleet) -> list[str]:
    return [*AZQ, "join", f"rediss://{found.hosts['first'].address}:6379/0"]


@pytest.mark.release
def test_nobody_is_taken_for_hung_while_the_network_is_away_for_long(tmp_path: Path) -> None:
    with fleet(tmp_path, "eyes", "cora") as found:
        found.join("eyes", "--roles", "inference")
        found.join("cora", *SELFPLAY)
        found.more(50, "before the cut")
        processes = {beat.pid for host in ("eyes", "cora") for beat in found.beats(host)}
        for host in ("eyes", "cora"):
            found.hosts[host].cut()
        found.until(lambda: not found.beats("eyes") and not found.beats("cora"), "the end of their heartbeats")
        threading.Event().wait(30.0)  # longer than any patience of theirs
        for host in ("eyes", "cora"):
            found.hosts[host].heal()
        found.more(50, "after the cut")
        assert {beat.pid for host in ("eyes", "cora") for beat in found.beats(host)} == processes
