"""The command as people call it: through real brokers, daemon, learner and workers."""

import contextlib
import itertools
import json
import shlex
import subprocess
import sys

import pytest
from waiting import PATIENCE_S

from azq.host.fronts import free_port
from azq.parts.lab.drill.system import RUN
from azq.parts.lab.validate.validate import FaultPlan, await_version, play_alone, started, versions
from azq.parts.lab.validate.versions import lockstep_sections
from azq.process.apart import start
from azq.process.start import AZQ, foreign_environment
from azq.replay.readers import SegmentReader


def answered(*arguments):
    command = [*AZQ, "validate", "--json", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=foreign_environment(), timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return json.loads(ended.stdout)


def test_the_queue_learns_what_one_process_learns():
    answer = answered("--game", "tic_tac_toe", "--iterations", "4")
    assert answer["passed"]
    assert answer["first_difference"] is None
    assert set(answer["runs"].values()) == {answer["hash"]} == {answer["versions"][-1]["hash"]}
    assert [(one["number"], one["step"], one["games"]) for one in answer["versions"]] == [(n + 1, 16 * n, 32 * n) for n in range(5)]
    assert answer["baseline"] == "agrees" or answer["baseline"].startswith("none of tic_tac_toe on this kind of machine")


@pytest.mark.slow
@pytest.mark.parametrize("hardship", [["--workers", "1"], ["--workers", "4", "--kill"], ["--stop", "--evaluator", "local"]], ids=" ".join)
def test_whatever_befalls_it(hardship):
    assert answered("--iterations", "4", *hardship)["passed"]


def test_an_unknown_game_is_one_line():
    command = [*AZQ, "validate", "--game", "poker"]
    ended = subprocess.run(command, capture_output=True, text=True, env=foreign_environment(), timeout=PATIENCE_S, check=False)
    assert (ended.returncode, len(ended.stderr.strip().splitlines())) == (2, 1)


@pytest.mark.slow
def test_a_server_and_a_second_machine_make_the_same_weights(tmp_path):
    sections, count = lockstep_sections("tic_tac_toe", 1, "stream"), 8
    alone = list(itertools.islice(play_alone(sections, tmp_path / "alone"), count))
    few = sections.selfplay.model_copy(update={"games_in_flight": 4})  # so that a version's games are for both; no weights follow from it
    system = started(sections.model_copy(update={"selfplay": few}), FaultPlan(workers=1))
    system.options = ("--listen", f"127.0.0.1:{free_port(2)}")
    with system, contextlib.ExitStack() as stack:
        machine = stack.enter_context(joined(system, tmp_path / "second"))
        stack.callback(machine.kill)
        await_version(system, count)
        assert machine.poll() is None
        queued = versions(system, sections)[:count]
        players = {event.worker for _, event in SegmentReader(system.folder / RUN / "segments").newest(1000)}
    assert queued == alone
    assert len(players) >= 2


def joined(system, folder):
    """A machine that plays for the system once it has asked to."""
    folder.mkdir()
    env = foreign_environment() | {"AZQ_HOME": str(system.folder)}
    asked = [*AZQ, "join-token", "--name", "second", "--roles", "selfplay", "--json"]
    told = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=env).stdout)
    options = ["--foreground", "--folder", str(folder), "--roles", "selfplay", "-c", "1"]
    own = {"AZQ_HOME": str(folder), "AZQ_JOIN_TOKEN": told["token"]}
    return start([sys.executable, "-m", *shlex.split(told["command"]), *options], folder, folder / "join.log", own)
