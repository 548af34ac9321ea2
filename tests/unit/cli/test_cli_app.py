"""The command line as a whole: quick to say what there is, and each command with the options that many share."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from azq.cli.app import COMMANDS, GROUPS, app
from azq.cli.options import Answer, with_answer, with_client, with_settings
from azq.errors import ConfigError, ExitCode

HEAVY = ("torch", "redis", "celery", "kombu", "fastapi", "numpy", "pydantic")


def test_help_loads_nothing_heavy() -> None:
    code = f"""
import sys
from azq.cli.app import app
try:
    app(["--help"])
except SystemExit:
    sys.stderr.write(" ".join(name for name in {HEAVY!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Trains AlphaZero agents" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("name", [*COMMANDS, *GROUPS])
def test_every_command_says_what_it_is(name: str) -> None:
    answer = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert answer.exit_code == 0
    assert "Usage" in answer.output


def test_common_options_stand_before_json_in_place_of_the_first_parameter() -> None:
    def command(settings: object, run: str = "", as_json: bool = False) -> None:
        """Told."""

    for wrap, options in ((with_settings, ["run", "config", "overrides", "as_json"]), (with_client, ["run", "url", "config", "as_json"])):
        alone = typer.Typer()
        alone.command()(wrap(command))
        found = typer.main.get_command(alone)
        assert [parameter.name for parameter in found.params][:4] == options
        assert found.help == "Told."


@pytest.mark.parametrize(("text", "shown"), [("one line", "one line"), (["two", "lines"], "two\nlines")])
def test_an_answer_is_lines_for_people_values_for_machines_and_an_exit_code(text: str | list[str], shown: str) -> None:
    def command(sound: bool = True) -> Answer:
        return Answer({"sound": sound}, text, ExitCode.OK if sound else ExitCode.CONFIG)

    alone = typer.Typer()
    alone.command()(with_answer(command))
    for_people, for_machines = CliRunner().invoke(alone, []), CliRunner().invoke(alone, ["--no-sound", "--json"])
    assert (for_people.output, for_people.exit_code) == (f"{shown}\n", ExitCode.OK)
    assert (for_machines.output, for_machines.exit_code) == ('{"sound": false}\n', ExitCode.CONFIG)


def test_options_of_a_clusters_file_are_refused_for_a_run() -> None:
    answer = CliRunner().invoke(app, ["cost", "first", "--hours", "2"])
    assert isinstance(answer.exception, ConfigError)
    assert "'first' is a run" in str(answer.exception)
