"""The command line as a whole: quick to say what there is, each command with the options that many share, answers that stand alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from page_site import RUN, Site
from replay_games import play_game
from rich.text import Text
from typer.testing import CliRunner

from azq import games
from azq.cli.app import COMMANDS, PANELS, app
from azq.cli.options import Answer, with_answer, with_client, with_settings
from azq.errors import AzqError, ConfigError, ExitCode
from azq.parts.volunteers.commands import _outcomes
from azq.samples.played import PlayedGames, read_games
from azq.wire.kinds import Kind
from azq.wire.messages import Job

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
    assert {*listed} == {*COMMANDS, "help"}
    assert len([name for name in listed if f"│ {name} " in few]) <= 16
    for panel in PANELS:
        assert f"─ {panel} ─" in few


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
        """MemberReport."""

    for wrap, options in ((with_settings, ["run", "config", "overrides", "as_json"]), (with_client, ["run", "url", "config", "as_json"])):
        alone = typer.Typer()
        alone.command()(wrap(command))
        found = typer.main.get_command(alone)
        assert [parameter.name for parameter in found.params][:4] == options
        assert found.help == "MemberReport."


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


MISBEHAVING = Path(__file__).parents[2] / "games" / "misbehaving.py"


def test_an_answer_stands_alone_on_standard_output() -> None:
    players = ["--first", "random", "--second", "random", "--games", "2"]
    ended = CliRunner().invoke(app, ["match", "--game", f"{MISBEHAVING}:Prints", *players, "--json"], catch_exceptions=False)
    assert json.loads(ended.stdout)["games"] == 2
    assert "move " in ended.stderr


def noisy_pieces(*_: Any) -> Iterator[str]:
    print("noise")
    yield "answer\n"


def noisy(*given: Any) -> int:
    print("noise")
    sink = next(one for one in reversed(given) if hasattr(one, "write"))
    sink.write("answer\n")
    return 0


@pytest.mark.parametrize(
    ("command", "patched"),
    [
        (["move"], {"azq.console.move.move": noisy, "azq.console.play.game_named": lambda *_: "tic_tac_toe"}),
        (["gtp"], {"azq.console.gtp.serve": noisy, "azq.console.play.game_named": lambda *_: "othello"}),
        (["games", "export", "r"], {"azq.console.samples.games_of": lambda *_: ("", ""), "azq.notation.writing.export": noisy_pieces}),
        (["up", "--json"], {"azq.console.up.up": lambda asked, **_: noisy(asked.output)}),
    ],
)
def test_and_so_do_lines_for_machines(command: list[str], patched: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for place, double in patched.items():
        monkeypatch.setattr(place, double)
    ended = CliRunner().invoke(app, command, catch_exceptions=False)
    assert (ended.stdout, ended.stderr) == ("answer\n", "noise\n")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    place = Site(tmp_path)
    place.start()
    yield place
    place.stop()


def jobs(site: Site, *options: str) -> list[str]:
    """What `azq jobs list` says, a line a job."""
    answer = CliRunner().invoke(app, ["jobs", "list", "--url", site.url, *options])
    assert answer.exit_code == 0, answer.output
    return answer.output.splitlines()


def failed(site: Site, error: str, attempts: int) -> str:
    """A job whose first lease ended badly, of so many it may have."""
    job_id = site.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu")).job.job_id
    lease = site.ledger.claim(job_id, 1, "worker@south:9", 60.0)
    assert lease is not None
    site.ledger.fail(lease, error, max_attempts=attempts)
    return job_id


def test_a_job_that_is_tried_again_tells_why_it_failed_last(site: Site) -> None:
    again = failed(site, "the network does not answer", attempts=4)
    (line,) = jobs(site)
    assert line.split()[:5] == [again, "selfplay.cpu", "queued", "attempt", "2"]
    assert line.endswith("  the network does not answer")


def test_a_job_that_failed_for_good_is_listed_by_its_state_and_says_why(site: Site) -> None:
    assert jobs(site) == ["none"]
    gone = failed(site, "no memory left", attempts=1)
    assert jobs(site) == ["none"], "only those that have not ended, unless they are asked for"
    for options in (["--ended"], ["--state", "failed"]):
        (line,) = jobs(site, *options)
        assert line.split()[:5] == [gone, "selfplay.cpu", "failed", "attempt", "1"]
        assert line.endswith("  no memory left")
    assert jobs(site, "--state", "done") == ["none"]


@pytest.mark.parametrize(("contributor", "mine"), [("ann", 10), ("bob", 0)])
def test_a_contributors_games_are_held_against_all_others(contributor: str, mine: int, monkeypatch: pytest.MonkeyPatch) -> None:
    game = games.load("tic_tac_toe")
    events = [play_game(game, uid, weight_version=3) for uid in range(1, 41)]
    events = [msgspec.structs.replace(event, worker="browser:ann") if event.record.uid % 4 == 0 else event for event in events]

    def read(*_: Any) -> tuple[None, PlayedGames]:
        return None, read_games(game, events)

    monkeypatch.setattr("azq.console.samples.read", read)
    settings: Any = None
    found = _outcomes(settings, "r", contributor)
    assert found == {} if not mine else found["games"] == (mine, 40 - mine)
