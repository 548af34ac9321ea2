"""What people look at, at the widths of their terminals; `tests/golden/console` holds the pictures, which a change has to change too."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from page_site import RUN, Site
from rich.console import Console, Group

from azq.arena.rating import rate
from azq.console.table import panel, workers_table
from azq.console.top import Frame, screen
from daemon.observe import gather, read_workers
from daemon.queues import queue_table
from daemon.summary import summarise, worker_status

GOLDEN = Path(__file__).parents[2] / "golden" / "console"


def picture(folder: Path, width: int) -> str:
    """What `azq status` prints, and one screen of `azq top`."""
    site = Site(folder)
    site.plant()
    workers = read_workers(site.bus)
    now = max(worker.sent_ms for worker in workers) + 500  # whenever this is drawn
    facts = gather(site.ledger, site.bus, RUN, workers)
    run = replace(summarise(facts, now, rate(facts.matches), ["no live worker takes eval.cuda"]), active_s=3005.0)
    frame = Frame((run,), tuple(queue_table(workers, facts.jobs, now)), tuple(worker_status(beat, now) for beat in workers))
    output = io.StringIO()
    shown = Group(panel(run, "", "dashboard http://127.0.0.1:8080"), workers_table(run), "", screen(frame))
    Console(file=output, width=width).print(shown)
    text = re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", output.getvalue())
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_nothing_is_cut_or_wrapped_at_the_usual_widths(width: int, tmp_path: Path) -> None:
    text = picture(tmp_path, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert text == (GOLDEN / f"{width}.txt").read_text("utf-8")
