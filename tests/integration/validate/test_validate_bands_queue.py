"""A band's curve through the whole system: by local evaluation and by the stream, on one machine and with a second one that joined."""

import contextlib
import itertools
import json
import shlex
import subprocess
import sys
from collections import Counter
from importlib import resources

import msgspec
import pytest
from waiting import PATIENCE_S

from azq.host.fronts import free_port
from azq.parts.lab.drill.system import RUN, System
from azq.parts.lab.validate.bands import Band
from azq.parts.lab.validate.curve import band_sections, plan_of
from azq.parts.lab.validate.validate import FaultPlan, await_version, machine_kind, play_alone, play_queued, versions
from azq.parts.lab.validate.versions import HOST, overrides_of
from azq.process.apart import start
from azq.process.start import AZQ, foreign_environment
from azq.replay.readers import SegmentReader

GAME, SEED = "tic_tac_toe", 1
COUNT = max(plan_of(GAME).versions)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The curve in one process, which is the one in the band where the machine is of its kind."""
    found = list(itertools.islice(play_alone(band_sections(GAME, SEED), tmp_path_factory.mktemp("alone")), COUNT))
    band = msgspec.json.decode((resources.files("azq.parts.lab.validate") / "bands" / f"{GAME}.json").read_bytes(), type=Band)
    if band.machine == machine_kind():
        kept = next(curve for curve in band.curves if curve.seed == SEED)
        assert [(at.step, at.hash) for at in kept.points] == [(one.step, one.hash) for one in found if one.number in plan_of(GAME).versions]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("evaluator", ["local", "stream"])
def test_the_queue_makes_the_same_curve(evaluator, alone):
    assert play_queued(band_sections(GAME, SEED, evaluator), FaultPlan(), COUNT) == alone


@pytest.mark.slow
def test_a_server_and_a_second_machine_make_the_same_curve(alone, tmp_path):
    sections = band_sections(GAME, SEED, "stream")
    host = [f"inference.{name}={json.dumps(value)}" for name, value in HOST.model_dump(exclude_unset=True).items()]
    few = ["selfplay.games_in_flight=16"]  # so that a version's games are for both; no weights follow from it
    system = System(tmp_path / "server", GAME, [*overrides_of(sections), *host, *few, "worker.concurrency=1"])
    system.options = ("--listen", f"127.0.0.1:{free_port(2)}")
    system.folder.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(system.stop)
        system.start()
        machine = stack.enter_context(joined(system, tmp_path / "second"))
        stack.callback(machine.kill)
        await_version(system, COUNT)
        assert machine.poll() is None
        found = versions(system, sections)[:COUNT]
        players = Counter(event.worker for _, event in SegmentReader(system.folder / RUN / "segments").newest(1000))
    assert found == alone
    print(dict(players))
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
