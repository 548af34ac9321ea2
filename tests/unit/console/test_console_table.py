from __future__ import annotations

import dataclasses
import io
import sys

import msgspec
import pytest
import structlog
from factories import heartbeat
from rich.console import Console, RenderableType
from structlog.testing import capture_logs

from azq import logs
from azq.console import table
from azq.errors import AzqError
from azq.goals import Done
from azq.ledger.types import LedgerCounts, RunState, RunView
from azq.ratings.elo import Rating
from azq.status.spending import cost_of
from azq.status.strength import Standing
from azq.status.summary import RanksStatus, RunFacts, RunStatus, ranks_status, summarise
from azq.wire.machines import MachineTime, Spending
from azq.wire.messages import GradeResult, HistoryPoint, LearnerStatus, RunRecord

LEARNER = LearnerStatus(120, 5000, 20000, 160, 0, 5000, 1.25, 0.31, 2e-3, 7, False, False, 3100.0, 0, 0.5)


def status() -> RunStatus:
    record = RunRecord("first", b"{}", {"minutes": 30.0}, "runs/first", 0)
    worker = heartbeat("selfplay", "w@h:1", sent_ms=1000, queues=("selfplay.cpu",), rates={"games_per_s": 9.0})
    facts = RunFacts(
        view=RunView(record, RunState.RUNNING, "", 75_000, 0),
        counts=LedgerCounts(1000, 160, 839, 1, 160, 0, 0),
        learner=LEARNER,
        point=HistoryPoint(0, 31.5, 43700.0, 9000.0, samples_per_s=3100.0, active_ms=70_000),
        standing=Standing(grades=(GradeResult(7, 64, 200, 16, 0),), ratings=[Rating("weights:7", 120.0, 60.0, 180.0, 40, 30.0)]),
        workers=(worker,),
    )
    return summarise(facts, 2000, ["no live worker takes eval.cpu"])


def drawn(what: RenderableType, width: int = 150) -> str:
    output = io.StringIO()
    Console(file=output, width=width).print(what)
    return output.getvalue()


def test_ranks_are_shown_where_there_are_several() -> None:
    ranks = ranks_status(msgspec.structs.replace(LEARNER, ranks=3, ranks_healthy=2, batch_s=0.02, sync_s=0.001, scaling_efficiency=0.96))
    alone, text = (drawn(table.panel(dataclasses.replace(status(), ranks=shown))) for shown in (RanksStatus(healthy=1), ranks))
    assert "scaling efficiency" not in alone
    assert all(part in text for part in ("2 of 3", "20.0 / 1.0 ms", "96%"))


def test_the_line_holds_what_matters() -> None:
    line = table.line(status())
    for part in ("0:01:15", "games/s=31.5", "simulations/s=43.7k", "version=7", "errors=8.0%", "elo=+120 ±60", "eval.cpu"):
        assert part in line


def test_time_left_and_cost_are_shown_where_they_are_known() -> None:
    known = status()
    spent = Spending(per_hour=3.0, currency="EUR", machines={"here": MachineTime("tower", 3.0, ("selfplay",), 1_200_000, 0.0, 1.0)})
    priced = dataclasses.replace(known, cost=cost_of(spent, known.until, Done.of(75_000, 160, 120, 1.0), {}, running=True))
    assert (known.eta_by, known.eta_s) == ("minutes=30", 1725.0)
    assert "eta=0:28:45" in table.line(known)
    assert "cost=" not in table.line(known)
    assert "cost=1.00 of 2.44 EUR" in table.line(priced)
    assert "4% of 30 minutes · 0:28:45 left · 1.00 of 2.44 EUR" in drawn(table.panel(priced))
    assert "eta=" not in table.line(dataclasses.replace(known, eta_s=None))


def test_a_figure_stays_on_its_line_in_eighty_columns() -> None:
    busy = dataclasses.replace(status(), jobs_leased=24, jobs_queued=120, selfplay_stalled=True)
    lines = drawn(table.panel(busy), 80).splitlines()
    assert "24 (120 queued)" in next(line for line in lines if " jobs " in line)
    assert "self-play paused" in next(line for line in lines if " balance " in line)


def test_without_a_terminal_lines_come_seldom() -> None:
    output = io.StringIO()
    with table.Screen("first", as_json=False, output=output, dashboard="http://here") as screen:
        screen.show(status())
        screen.show(status())
        screen.show(status(), force=True)
    assert output.getvalue().startswith("Starting run first; dashboard http://here\n")
    assert output.getvalue().count("games/s=") == 2


class Disk(io.StringIO):
    """Standard output into a file, as the command line has it."""

    full = True

    def flush(self) -> None:
        if self.full:
            raise AzqError("cannot write to standard output: No space left on device")


def test_a_full_disk_behind_the_lines_costs_them_and_no_training() -> None:
    output = Disk()
    with capture_logs() as lines, table.Screen("first", as_json=True, output=output) as screen:
        for full in (True, True, False, True):
            output.full = full
            screen.show(status(), force=True)
    assert [line["event"] for line in lines] == ["line_lost"] * 2, "said once each time it fills up"


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_the_token_is_shown_on_terminals_alone(kind: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    output = kind()
    with table.Screen("first", as_json=False, output=output, dashboard="http://here", token="s3cret") as screen:
        screen.show(status(), force=True)
    assert ("http://here/#token=s3cret" in output.getvalue()) is (kind is Terminal)
    assert ("s3cret" in output.getvalue()) is (kind is Terminal)


def test_a_terminal_shows_a_note_at_once_until_the_run_is_seen_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    output = Terminal()
    with table.Screen("first", as_json=False, output=output) as screen:
        for act, shown in (
            (lambda: screen.show(status(), force=True), False),
            (lambda: screen.note("Stopping: saving games"), True),
            (lambda: screen.show(dataclasses.replace(status(), state=RunState.PAUSED), force=True), True),
            (lambda: screen.show(status(), force=True), False),
        ):
            output.truncate(0)
            act()
            assert ("Stopping: saving games" in output.getvalue()) is shown


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_the_last_lines_stay_below_the_last_state_and_can_be_copied(kind: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output, command = kind(), f"azq up --set home=/{90 * 'x'} --run first"
    with table.Screen("first", as_json=False, output=output) as screen:
        screen.show(status(), force=True)
        screen.finish(dataclasses.replace(status(), state=RunState.PAUSED), ["Paused: errors 8.0%", command])
    assert output.getvalue().endswith(f"{command}\n")


def test_a_run_that_turns_out_to_make_no_games_is_told_at_once() -> None:
    output, well = io.StringIO(), status()
    with table.Screen("first", as_json=False, output=output) as screen:
        for seen in (well, well, *2 * [dataclasses.replace(well, no_games="none", conditions=("none",))]):
            screen.show(seen)
    assert ["[none]" in line for line in output.getvalue().splitlines()[1:]] == [False, True]


def test_log_lines_stay_above_the_table_whole_and_the_last_warnings_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    output, errors = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", errors)
    printed = structlog.PrintLogger(logs.Tolerant(None))  # type: ignore[arg-type]
    log = structlog.wrap_logger(printed, processors=[logs._warn, structlog.processors.KeyValueRenderer()])
    long = "/a/long/path" * 10
    with table.Screen("first", as_json=False, output=output) as screen:
        screen.show(status(), force=True)
        begun = len(output.getvalue())
        log.warning("child_died", name="learner", log=long)
        log.info("device_plan")
        said = output.getvalue()[begun:]
        output.truncate(0)
        screen.show(status(), force=True)
        shown = output.getvalue()
    assert errors.getvalue() == ""
    assert said.index(long) < said.index("first") < said.index("device_plan")  # above the table, which is drawn again below each
    assert long in said  # not cut into lines
    assert "child_died name=learner" in shown
    assert "device_plan" not in shown
    log.warning("after")
    assert "after" in errors.getvalue()


def test_errors_that_go_elsewhere_than_to_the_terminal_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    output, errors = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    with table.Screen("first", as_json=False, output=output):
        sys.stderr.write("a line\n")
    assert errors.getvalue() == "a line\n"
    assert "a line" not in output.getvalue()


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (1000, "1k"), (43_700, "43.7k"), (1_234_567, "1.23M"), (999_900, "1000k")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert table.count(value) == text
