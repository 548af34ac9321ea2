"""The pages: links and anchors lead somewhere, documented commands and options exist, and the evening path stays an evening's reading."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from azq.cli.app import app

ROOT = Path(__file__).parents[2]
COMMANDS: Any = get_command(app)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
EVENING = ROOT / "docs" / "read-in-an-evening.md"


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title)).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        name, _, anchor = target.partition("#")
        if "://" in name or name.startswith("mailto:"):
            continue
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(target)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_source_files_in_the_text_exist(page: Path) -> None:
    named = re.findall(r"(?<![\w/])((?:azq|daemon|workers|ops|tests)/[\w/.]+\.(?:py|hpp|cpp|lua|sh|toml))\b", page.read_text("utf-8"))
    assert page.name == "CHANGELOG.md" or [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("script", [".ci/run", "Makefile", "ops/mutants.toml"])
def test_files_that_scripts_name_exist(script: str) -> None:
    named = re.findall(r"(?<![\w/.-])((?:azq|daemon|workers|ops|tests)/[\w/.]*\w)(?![\w*$-])", (ROOT / script).read_text("utf-8"))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def documented(page: Path) -> list[str]:
    """What a page has a reader type: command lines of fenced blocks, and code within sentences."""
    text = page.read_text("utf-8")
    lines = [line.split(" #")[0] for block in FENCED.findall(text) for line in block.splitlines()]
    typed = [part.strip() for line in lines for part in re.split(r" ; | \| | && ", line)]
    return [line for line in (*typed, *re.findall(r"`(azq [^`]*)`", prose(page))) if re.match(r"azq [a-z]", line)]


def unknown(line: str) -> list[str]:
    """Words of a command line that azq has neither as a command nor as an option."""
    words = shlex.split(re.sub(r"[\[\]<>\\]", " ", line).replace("|", " ").replace("...", ""))[1:]
    command = COMMANDS
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return words[:1]
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help", "--version"}
    if hasattr(command, "commands"):
        known |= {option for child in command.commands.values() for parameter in child.params for option in parameter.opts}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_commands_and_options_exist(page: Path) -> None:
    if page.name != "CHANGELOG.md":
        assert {line: words for line in documented(page) if (words := unknown(line))} == {}


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert (unknown("azq upp"), unknown("azq up --gamee hex"), unknown("azq up --game hex")) == (["upp"], ["--gamee"], [])


def test_the_evening_path_is_at_most_thirty_files_and_six_thousand_lines() -> None:
    files = re.findall(r"^\| `([\w/.]+)` \|", EVENING.read_text("utf-8"), re.MULTILINE)
    lines = {name: (ROOT / name).read_text("utf-8").count("\n") for name in files}
    assert 20 <= len(lines) == len(files) <= 30
    assert sum(lines.values()) <= 6000, lines


def test_the_layout_names_every_package_of_azq() -> None:
    layout = (ROOT / "docs" / "1-architecture.md").read_text("utf-8").partition("## 3. Layout")[2].partition("## 4.")[0]
    parts = [path.name for path in (ROOT / "azq").iterdir() if not path.name.startswith("_") and path.name != "py.typed"]
    assert [name for name in sorted(parts) if name not in re.findall(r"[\w.]+", layout)] == []
