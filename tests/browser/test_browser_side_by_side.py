"""The pages of a finished, a paused and a running run of one control plane: each shows its own figures alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import Visit
from side_by_side import DIGIT, FINISHED, REASON, RUNNING, SideBySide


@pytest.mark.slow
def test_each_page_shows_its_own_run(browser: Any, tmp_path: Path) -> None:
    site = SideBySide(tmp_path)
    site.start()
    try:
        for run, digit in DIGIT.items():
            visit = Visit(browser, f"{site.url}/#/run/{run}")
            visit.page.locator("#matches tr[data-key]").first.wait_for()
            for fold in ("Throughput", "Workers, queues and ledger"):
                visit.page.get_by_text(fold, exact=True).click()
            visit.page.locator('[data-tile="step"] b').wait_for()
            texts = [visit.text(part) for part in ("#tiles", "#ledger", "#weights", "#ratings", ".head")]
            numbers = {word[0] for text in texts for word in text.split() if len(word) == 3 and word.isdecimal()} & set("5679")
            assert numbers == {str(digit)}, texts
            assert visit.page.locator('[data-tile="games/s"]').count() == (run == RUNNING)
            assert REASON.get(run, "") in visit.text(".head")
            assert "no learner" not in visit.text("#tiles")
            if run == FINISHED:
                assert visit.text('[data-tile="equity loss"] b') == "709.0 millipoints"
                assert visit.page.locator('[data-tile="graded errors"]').count() == 0
                visit.page.locator('[data-chart="Equity loss, millipoints"]').wait_for()
            visit.context.close()
    finally:
        site.stop()
