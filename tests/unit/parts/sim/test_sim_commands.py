"""`azq sim`: its figures, its trace, and what a failing seed prints."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from azq.cli.app import app
from azq.errors import ExitCode
from azq.parts.sim.commands import described, summary
from azq.parts.sim.faults import Fault
from azq.parts.sim.simulation import SeedOutcome

FAILED = SeedOutcome(7, [Fault(1.5, "kill", 3, 0.25)], 60.0, 12, 1, 0, "", ["game 4 was finished and is lost"], "ab", 0.5)


def test_it_answers_with_its_figures():
    answer = CliRunner().invoke(app, ["sim", "--seed", "2", "--minutes", "0.05", "--fault", "1.0:cut_after:4:0.5", "--json"])
    values = json.loads(answer.output)
    assert list(values) == ["seeds", "faults", "simulated_s", "lost", "doubled", "stuck", "failed", "trace_hash", "cpu_s"]
    assert (answer.exit_code, values["seeds"], values["faults"], values["failed"]) == (ExitCode.OK, 1, 1, [])


def test_its_trace_names_who_did_what():
    lines = CliRunner().invoke(app, ["sim", "--minutes", "0.05", "--faults", "0", "--trace"]).output.splitlines()
    assert any(line.endswith(" daemon-1:1 snapshot") for line in lines)
    assert any(line.endswith(" fsync") for line in lines)


def test_a_seed_that_failed_prints_how_to_see_it_again():
    assert summary([FAILED])["failed"] == [7]
    assert described(FAILED, 2.0, 0.5) == [
        "seed 7 failed: azq sim --seed 7 --faults 2 --minutes 0.5",
        "  game 4 was finished and is lost",
        "  --fault 1.500:kill:3:0.2500",
    ]
