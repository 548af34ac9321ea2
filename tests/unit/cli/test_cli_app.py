"""The command line as a whole: quick to say what there is, and each command with the options that many share."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from azq.cli.app import COMMANDS, GROUPS, PANELS, app
from azq.cli.options import Answer, with_answer, with_client, with_settings
from azq.errors import AzqError, ConfigError, ExitCode

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


def test_an_answer_that_cannot_be_written_is_one_line() -> None:
    code = "import sys; from azq.cli.app import main; sys.argv = ['azq', '--version']; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.CRASH, "azq: cannot write to standard output: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)  # as of one who has seen enough
    with open(writer, "w") as nobody:
        done = subprocess.run([sys.executable, "-c", code], stdout=nobody, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.CRASH, "")


def test_a_full_disk_is_one_line() -> None:
    code = """
import os
from pathlib import Path
from azq.cli import app
from azq.files import publish_file

def full(*_):
    raise OSError(28, "No space left on device")

def command():
    os.write = full
    publish_file(Path("run.toml"), b"x")

app.app = command
app.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.CRASH
    assert done.stderr == "azq: cannot write run.toml: No space left on device; free space there, then start again\n"


def test_few_commands_are_listed_at_once_and_all_where_they_are_asked_for() -> None:
    few, everything = (CliRunner().invoke(app, words, env={"COLUMNS": "200"}).output for words in (["--help"], ["help", "--all"]))
    listed = re.findall(r"^│ ([a-z][a-z-]+)", everything, re.MULTILINE)
    assert {*listed} == {*COMMANDS, *GROUPS, "help"}
    assert len([name for name in listed if f"│ {name} " in few]) <= 16
    for panel in PANELS:
        assert f"─ {panel} ─" in few


@pytest.mark.parametrize("name", [*COMMANDS, *GROUPS])
def test_every_command_says_what_it_is(name: str) -> None:
    answer = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert answer.exit_code == 0
    assert "Usage" in answer.output


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


def test_no_help_loses_what_stands_in_brackets() -> None:
    """They are markup to the library that prints them, unless it is told otherwise."""
    found = {}
    for path, command in commands(typer.main.get_command(app)):
        for text in (command.help or "", *(getattr(parameter, "help", None) or "" for parameter in command.params)):
            if Text.from_markup(text).plain != text.replace("\\[", "["):
                found[" ".join(path)] = text
    assert found == {}


def test_a_cluster_s_help_names_the_sections_of_its_file() -> None:
    answer = CliRunner().invoke(app, ["cluster", "check", "--help"], env={"COLUMNS": "200"})
    assert all(f"[{name}]" in answer.output for name in ("cluster", "machines.NAME", "budget"))


def test_games_are_for_one_player_or_for_several() -> None:
    lines = CliRunner().invoke(app, ["games", "list"]).output.splitlines()
    assert {line.split(",")[0].split(maxsplit=1)[1] for line in lines} >= {"1 player", "2 players"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["games", "check", "conect_four"], "did you mean connect_four?"),
        (["play", "conect_four"], "did you mean connect_four?"),
        (["up", "--game", "conect_four"], "did you mean connect_four?"),
        (["up", "--game", "connect_four", "--preset", "gpuu"], "did you mean gpu?"),
        (["why", "firts", "--set", "home=."], "did you mean first?"),
        (["workers", "lst"], "azq workers list"),
    ],
)
def test_a_word_that_is_nearly_known_is_named(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AZQ_HOME", str(tmp_path / "runs"))
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "run.toml").write_text("")
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, AzqError)
    assert said in str(error)
    assert not (tmp_path / "runs").exists()


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
