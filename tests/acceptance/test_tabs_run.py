"""A run that browsers alone make games for: two tabs play, the learner learns, and what was learned shows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from acceptance.test_whole_loop import AZQ, QUICK, environment, losing_lines, move_of
from browsing import launched
from waiting import until

from azq.host.fronts import free_port
from azq.replay.readers import SegmentReader
from azq.wire.messages import BROWSER_PREFIX

RUN = "tabs"
SETTINGS = (
    "run.tag=browser",  # no worker of the fleet has it: tabs alone
    'volunteers.kinds=["selfplay"]',
    "learner.batch_size=128",
    "learner.min_window=1000",
    "learner.samples_per_insert=8",
    "selfplay.random_opening_plies=2",
    "learner.publish_every_s=5",
)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_tic_tac_toe_is_learned_from_two_tabs(tmp_path: Path) -> None:
    port = free_port()
    settings = [word for text in SETTINGS for word in ("--set", text)]
    command = [*AZQ, "up", "--game", "tic_tac_toe", "--run", RUN, "--volunteers", "--port", str(port), "--until", "steps=800", "--json"]
    up = subprocess.Popen(
        [*command, *QUICK, *settings], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(tmp_path), cwd=tmp_path
    )
    try:
        with launched() as browser:
            pages = [open_tab(browser, port) for _ in range(2)]
            output, _ = up.communicate(timeout=200)
            assert all(page.evaluate("document.querySelector('[data-tile=\"refused\"] b').textContent") == "0" for page in pages)
    finally:
        up.kill()
    assert up.returncode == 0, output
    last = json.loads(output.splitlines()[-1])
    assert last["ledger"]["balanced"]
    assert last["ledger"]["inserted"] == last["ledger"]["finished"] > 500
    assert last["weight_version"] > 2
    workers = {event.worker for _, event in SegmentReader(tmp_path / RUN / "segments").newest(10_000)}
    assert len(workers) == 2
    assert all(worker.startswith(BROWSER_PREFIX) for worker in workers)
    # 162 with a network that knows nothing; as a rule none is left.
    assert len(losing_lines(move_of(tmp_path, RUN))) <= 10


def open_tab(browser: Any, port: int) -> Any:
    """A device of its own that plays."""
    page = browser.new_context().new_page()

    def here() -> bool:
        try:
            page.goto(f"http://127.0.0.1:{port}/")
        except Exception:
            return False
        return True

    until(here, "the gateway")
    page.locator("#go").click()
    return page
