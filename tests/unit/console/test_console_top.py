"""`azq top`: what stands on the screen, how it refreshes and how it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_site import RUN, Site
from rich.console import Console, Group
from waiting import PATIENCE_S

from azq.config import load
from azq.console.table import panel, workers_table
from azq.console.top import Frame, run_live, screen, top
from azq.errors import BrokerUnavailable
from azq.ledger import Ledger
from azq.metrics import GPU_BUSY, GPU_MEMORY_USED_BYTES, GPU_POWER_W, GPU_TEMPERATURE_C
from azq.status.brokers import PlaneFacts
from azq.status.observe import gather, read_workers
from azq.status.stages import RunStage
from azq.status.summary import summarise
from azq.status.workers import queue_table, worker_status
from azq.wire.connect import connect
from azq.wire.messages import RunRecord

GOLDEN = Path(__file__).parents[2] / "golden" / "console"  # the pictures, which a change has to change too


@pytest.fixture
def frame(tmp_path: Path) -> Frame:
    site = Site(tmp_path)
    site.plant()
    workers = read_workers(site.bus)
    now = max(worker.sent_ms for worker in workers) + 500  # whenever this is drawn
    facts = gather(site.ledger, site.bus, RUN, workers)
    stages = (RunStage("spin-up", 0, 12_000, 12.0), RunStage("fill", 12_000, 150_000, 138.0), RunStage("main", 150_000, None, 2855.0))
    headline = "Learning well: graded errors 35.0% → 6.0% in 50 min; +609 Elo against uct:100; 60 min left"
    summary = summarise(facts, now, ["no live worker takes eval.cuda"])
    runs = (replace(summary, active_s=3005.0, eta_s=3599.5, progress=0.83, stages=stages, headline=headline),)
    planes = (PlaneFacts("control", True, 12_000_000, 0, 3, {RUN: 2}), PlaneFacts("data", True, 5_000_000, 10**9), PlaneFacts("data1"))
    return Frame(runs, tuple(queue_table(workers, facts.jobs, now)), tuple(worker_status(beat, now) for beat in workers), planes)


def text_of(frame: Frame, **options: Any) -> str:
    output = io.StringIO()
    Console(file=output, width=190).print(screen(frame, **options))
    return output.getvalue()


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_nothing_of_status_and_top_is_cut_or_wrapped_at_the_usual_widths(frame: Frame, width: int) -> None:
    output = io.StringIO()
    (run,) = frame.runs
    shown = Group(panel(run, "", "dashboard http://127.0.0.1:8080"), workers_table(run), "", screen(replace(frame, brokers=())))
    Console(file=output, width=width).print(shown)
    lines = [f"{line.rstrip()}\n" for line in re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", output.getvalue()).splitlines()]
    assert not any("…" in line or len(line) > width + 1 for line in lines)
    assert "".join(lines) == (GOLDEN / f"{width}.txt").read_text("utf-8")


def test_what_the_driver_of_a_gpu_tells_stands_beside_its_process(frame: Frame) -> None:
    figures = {GPU_BUSY: 0.934, GPU_MEMORY_USED_BYTES: 12.25 * 2**30, GPU_POWER_W: 412.5, GPU_TEMPERATURE_C: 61.0}
    trains = replace(frame.workers[0], role="learner", rates={"samples_per_s": 50_000.0} | figures)
    assert "50k samples/s  GPU 93%  12.2 GiB in use  412 W  61 °C" in text_of(replace(frame, workers=(trains,)))


def test_each_broker_is_named_with_its_memory_or_as_away(frame: Frame) -> None:
    line = next(line for line in text_of(frame).splitlines() if line.startswith("brokers"))
    assert "control 12.0 MB, 2 samples wait, 3 dead letters" in line
    assert "data 5.0 of 1000 MB, 0 requests wait" in line
    assert "data1 does not answer" in line


def test_a_low_screen_shows_a_line_for_each_host(frame: Frame) -> None:
    text = text_of(frame, height=24 - 5)
    assert "1 inference, 1 selfplay" in text
    assert len(text.splitlines()) < len(text_of(frame).splitlines())


def test_an_empty_control_plane_says_what_to_do() -> None:
    text = text_of(Frame((), (), ()))
    assert "azq up" in text
    assert "no live worker" in text


def test_an_outage_of_the_broker_is_told_and_outlived(frame: Frame) -> None:
    output = io.StringIO()
    looks: Iterator[Frame | Exception] = iter([BrokerUnavailable("nobody answers"), frame])
    pauses = iter([False, False, True])

    def look() -> Frame:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    run_live(look, frame, Console(file=output, width=190, height=60, force_terminal=True), lambda _: next(pauses), 1.0)
    drawn = output.getvalue()
    assert drawn.index("nobody answers") < drawn.rindex("q quits")


def plant_run(broker: Any) -> None:
    client = connect(broker.control_url)
    Ledger(client).create_run(RunRecord("real", b"{}", {}, "", 0))
    client.close()


def test_one_frame_for_people_and_for_machines(broker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plant_run(broker)
    config = load(overrides=[f"broker.control_url={broker.control_url}", f"broker.data_url={broker.data_url}"])
    top(config, once=True, as_json=True, every_s=1.0)
    assert [run["run"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["real"]
    top(config, once=True, as_json=False, every_s=1.0)
    assert "real" in capsys.readouterr().out


def test_q_gives_the_terminal_back_as_it_was(broker: Any) -> None:
    plant_run(broker)
    environment = {**os.environ, "AZQ_BROKER__CONTROL_URL": broker.control_url, "AZQ_BROKER__DATA_URL": broker.data_url, "TERM": "xterm"}
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    words = [sys.executable, "-m", "azq", "top", "--every", "0.2"]
    process = subprocess.Popen(words, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    try:
        assert "real" in read_until(ours, "real")
        os.write(ours, b"q")
        read_until(ours, "\x1b[?1049l")  # the screen that was there before comes back
        assert process.wait(PATIENCE_S) == 0
        assert termios.tcgetattr(theirs)[3] == before[3]
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def read_until(terminal: int, word: str, within_s: float = PATIENCE_S) -> str:
    """What appeared on a terminal up to a word."""
    seen, deadline = "", time.monotonic() + within_s
    while word not in seen:
        assert time.monotonic() < deadline, f"{word!r} did not appear in {seen!r}"
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65536).decode(errors="replace")
    return seen
