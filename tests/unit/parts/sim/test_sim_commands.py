"""`azq sim`: its figures, its trace, and what a failing seed prints."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from azq.cli.app import app
from azq.errors import ConfigError, ExitCode
from azq.parts.sim import commands, simulation
from azq.parts.sim.commands import described, summary
from azq.parts.sim.faults import Fault
from azq.parts.sim.simulation import SeedOutcome
from azq.tracing import EVALUATE, FINISH, RECONCILE, SAMPLE_EVENT, SEND_JOB, SLICE

FAILED = SeedOutcome(7, [Fault(1.5, "kill", 3, 0.25)], 60.0, 12, 1, 0, "", ["game 4 was finished and is lost"], "ab", 0.5)


@pytest.fixture(autouse=True)
def _apart(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where a seed that fails is drawn


def test_it_answers_with_its_figures():
    answer = CliRunner().invoke(app, ["sim", "--seed", "2", "--minutes", "0.05", "--fault", "1.0:cut_after:4:0.5", "--json"])
    values = json.loads(answer.output)
    assert list(values) == ["seeds", "faults", "simulated_s", "lost", "doubled", "stuck", "failed", "trace_hash", "cpu_s"]
    assert (answer.exit_code, values["seeds"], values["faults"], values["failed"]) == (ExitCode.OK, 1, 1, [])


def test_many_seeds_say_how_far_they_are(monkeypatch):
    monkeypatch.setattr(simulation, "simulate", lambda *_, **__: replace(FAILED, wrong=[]))
    monkeypatch.setattr(commands, "PROGRESS_S", 0.0)
    lines = CliRunner().invoke(app, ["sim", "--seeds", "3"]).stderr.splitlines()
    assert lines == ["1 of 3 seeds: 1 faults, failed []", "2 of 3 seeds: 2 faults, failed []"]


def test_its_trace_names_who_did_what():
    lines = CliRunner().invoke(app, ["sim", "--minutes", "0.05", "--faults", "0", "--trace"]).output.splitlines()
    assert lines[0] == f"protocol {simulation.protocol()}"
    assert any(" daemon-" in line and line.endswith(":1 snapshot") for line in lines)
    assert any(line.endswith(" fsync") for line in lines)
    spans = {line.split(" ", 3)[3].rpartition(" ")[0] for line in lines if line.count(" ") > 3}
    assert {RECONCILE, SEND_JOB, SLICE, EVALUATE, FINISH, SAMPLE_EVENT} <= spans, "as in a real trace"


def test_a_seed_that_failed_prints_how_to_see_it_again():
    assert summary([FAILED])["failed"] == [7]
    assert described(FAILED, 2.0, 0.5) == [
        f"seed 7 failed: azq sim --seed 7 --faults 2 --minutes 0.5 --protocol {simulation.protocol()}",
        "  game 4 was finished and is lost",
        "  --fault 1.500:kill:3:0.2500",
    ]


def test_it_stops_at_an_event_and_prints_the_state_where_no_debugger_can_be_used():
    lines = CliRunner().invoke(app, ["sim", "--minutes", "0.05", "--faults", "0", "--until", "60"]).stderr.splitlines()
    assert lines[0].startswith("at event 60 ")
    assert any(line.startswith("key azq:{sim}:ledger: ") for line in lines)


def test_a_seed_of_another_protocol_is_named():
    answer = CliRunner().invoke(app, ["sim", "--seed", "7", "--protocol", "2-0"])
    assert isinstance(answer.exception, ConfigError)
    assert "seed 7 is of protocol 2-0, this azq runs" in str(answer.exception)


def test_a_seed_that_fails_is_shrunk_and_drawn_with_its_trace(monkeypatch, tmp_path):
    def simulated(seed, faults, seconds, *, trace=False, until=0):
        lines = [f"{number} {fault.at_s:.6f} - fault {fault} worker-1" for number, fault in enumerate(faults)] if trace else []
        return replace(
            FAILED, seed=seed, faults=faults, wrong=["game 4 is lost"] * any(fault.kind == "kill" for fault in faults), trace=lines
        )

    monkeypatch.setattr(simulation, "simulate", simulated)
    answer = CliRunner().invoke(app, ["sim", "--seed", "1", "--shrink", "--trace", "--out", str(tmp_path)])
    assert answer.exit_code == ExitCode.CRASH
    assert sum(" - fault " in line for line in answer.output.splitlines()) == 1
    assert "fault kill" in (tmp_path / "azq-sim-1.html").read_text("utf-8")
