"""A run's page holds what was recorded, stands alone, and is written whole or not at all."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from memory_broker import MemoryBus, MemoryLedger
from replay_games import play_game
from run_courses import CREATED_MS, courses

from azq import games
from azq.config import load
from azq.console import report as reporting
from azq.console.report import as_html, as_markdown, read_events, recorded_games, report, sections_of
from azq.console.svg import COLOURS, line_chart
from azq.errors import ConfigError, StateConflict, StoreError
from azq.ledger.types import RunState
from azq.samples.played import read_games
from azq.status.curves import CurvePoint
from azq.status.strength import UNRATED
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import GradeResult, RunEvent

FAILED = RunEvent("job.failed", CREATED_MS + 5, {"job": "3", "error": "<no memory>", "tag": "cpu"})


class Tags(HTMLParser):
    """Every element of a page, and what it asks for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.asked: list[str | None] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.asked += [value for name, value in attrs if name in ("src", "href")]


def test_the_page_stands_alone_and_tells_everything() -> None:
    (course,) = courses({"name": "first"})
    over = replace(course, view=replace(course.view, state=RunState.FINISHED))
    page = as_html("Run first", sections_of(over, [FAILED]))
    assert "<h1>Run first</h1>\n<p>Finished: graded errors 25.0% → 5.0% in " in page
    assert "Elo against uct:100; still improving since v3</p>" in page
    found = Tags(page)
    assert found.asked == []
    assert "script" not in found.names
    assert found.names.count("svg") == 4  # Elo, errors, losses, games
    for word in ("connect_four", "Timeline", "spin-up", "weights:5", "duplicates_dropped", "CPU-seconds", "num_simulations = 64"):
        assert word in page
    assert "&lt;no memory&gt;" in page
    assert "<td>all</td><td>900</td>" in page, "1.5 cores for 600 seconds"
    for picture in re.findall(r"<svg.*?</svg>", page):
        ElementTree.fromstring(picture)


def test_markdown_has_the_same_tables() -> None:
    (course,) = courses({"name": "first"})
    text = as_markdown("Run first", sections_of(course, [FAILED]))
    assert "| job.failed | 1 | 1970-01-01 00:16:40 UTC | job 3, error <no memory>, tag cpu |" in text
    assert "| 5 | 600 | 1970-01-01 00:26:40 UTC |" in text


def test_a_game_is_told_in_its_own_measure() -> None:
    """Elo's and errors' columns are of games that have them."""
    (course,) = courses({"name": "first", "game": "backgammon"})
    grades = [GradeResult(5, 64, 200, 0, 0, mean_loss=0.0432)]
    page = as_html("Run first", sections_of(replace(course, standing=replace(course.standing, grades=grades)), []))
    assert "<td>equity loss</td><td>43.2, weights 5</td>" in page
    assert ">equity loss</text>" in page
    assert "<th>equity loss</th><th>Elo</th><th>sha256</th>" in page
    assert "graded errors" not in page


def test_the_timeline_has_the_stages_without_their_pauses_and_every_change_of_state() -> None:
    (course,) = courses({"name": "first"})
    pauses = ((CREATED_MS + 5_000, CREATED_MS + 65_000),)
    over = replace(course.view, state=RunState.FINISHED, changed_ms=CREATED_MS + 500_000, pauses=pauses)
    events = [RunEvent("run.paused", CREATED_MS + 5_000, {"reason": "dinner"})]
    (section,) = (one for one in sections_of(replace(course, view=over), events) if one.title == "Timeline")
    assert section.rows == [
        ("spin-up", "1970-01-01 00:16:40 UTC", "0:00:05"),
        ("main", "1970-01-01 00:16:45 UTC", "0:07:15 (paused 0:01:00)"),
        ("final", "1970-01-01 00:25:00 UTC", "0:01:40"),
        ("run.paused", "1970-01-01 00:16:45 UTC", "dinner"),
    ]


def test_a_run_that_never_trained_has_a_page_too() -> None:
    (course,) = courses({"name": "first"})
    bare = type(course)(course.view, course.counts, [], [], UNRATED)
    assert "Nothing was recorded of it." in as_html("Run first", sections_of(bare, []))


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> MemoryLedger:
    """A control plane with the run `first`, which runs."""
    from run_courses import plant_run

    bus = MemoryBus()
    ledger = MemoryLedger(bus)
    plant_run(ledger, bus, "first")
    bus.publish(keys.events("first"), encode(FAILED))
    assert FAILED in read_events(bus, "first")

    @contextlib.contextmanager
    def reading_control(_: object) -> Iterator[None]:
        yield None

    doubles: dict[str, Any] = {"reading_control": reading_control, "RedisBus": lambda _: bus, "Ledger": lambda _: ledger}
    for name, double in doubles.items():
        monkeypatch.setattr(reporting, name, double)
    return ledger


def test_a_run_at_work_and_files_of_no_kind_are_refused(planted: MemoryLedger, tmp_path: Path) -> None:
    with pytest.raises(StateConflict, match="still running"):
        report(load(), "first", tmp_path / "first.html")
    planted.set_run_state("first", RunState.FINISHED)
    with pytest.raises(ConfigError, match=r"neither in \.html nor in \.md"):
        report(load(), "first", tmp_path / "first.pdf")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="name another file"):
        report(load(), "first", tmp_path / "file" / "first.html")
    assert report(load(), "first", tmp_path / "first.md").read_text("utf-8").startswith("# Run first")
    assert report(load(), "first", tmp_path / "first.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("points", "levels"),
    [
        ([], ["0.0", "0.5", "1.0"]),
        ([CurvePoint(0.0, 0.0)], ["0.0", "0.5", "1.0"]),
        ([CurvePoint(0.0, 1.0, 0.4, 1.6, 1)], ["0.0", "0.5", "1.0", "1.5", "2.0"]),
        ([CurvePoint(0.0, 0.9), CurvePoint(1.0, 0.35, 0.3, 1.0)], ["0.25", "0.5", "0.75", "1.0"]),
    ],
)
def test_a_chart_has_round_levels_and_the_colours_of_pages(points: list[CurvePoint], levels: list[str]) -> None:
    chart = line_chart("a & b", {"one": points, "two": points}, "minutes", str)
    ElementTree.fromstring(chart)
    assert re.findall(r'<text x="47" .*?>(.*?)<', chart) == levels
    assert [COLOURS[number] == colour for number, colour in re.findall(r'<g class="(c\d)" fill="(.*?)"', chart)] == [True, True]


def test_recorded_games_have_a_column_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = games.load("tic_tac_toe")
    events = [msgspec.structs.replace(play_game(rules, uid), worker=worker) for uid, worker in ((1, "selfplay@a:1"), (2, "browser:ann/1"))]
    monkeypatch.setattr(reporting, "read", lambda *_: (rules, read_games(rules, events)))
    section = recorded_games(load(), "first")
    assert section.head == ("by source", "browser", "server")
    assert [row[0] for row in section.rows][:2] == ["games, plies", "length (10, 50, 90 %)"]
    assert {len(row) for row in section.rows} == {3}


def test_a_page_says_why_it_tells_nothing_of_recorded_games(tmp_path: Path) -> None:
    section = recorded_games(load(None, [f'home="{tmp_path}"']), "first")
    assert not section.rows
    assert section.note.startswith("Unknown: ")
