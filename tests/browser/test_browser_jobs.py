"""A run's stages and its jobs as a browser renders them, over a planted run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Visit
from page_site import RUN, Site
from waiting import until

from azq.wire.kinds import Kind
from azq.wire.messages import Job


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    place = Site(tmp_path)
    place.plant()
    place.start()
    yield place
    place.stop()


def test_the_stages_of_a_run_are_shaded_in_its_chart_with_their_times(browser: Any, site: Site) -> None:
    seen = Visit(browser, site.url)
    seen.page.locator('#stages [data-stage="main"]', has_text="Main 50 min so far").wait_for()
    shades = seen.page.locator('[data-chart="Graded errors"] .stage')
    assert shades.locator("title").all_text_contents()[-1].endswith("so far")
    first, *_, main = shades.evaluate_all("all => all.map((shade) => shade.getBoundingClientRect().width)")
    assert 0 < first < main
    assert seen.complaints == []


def test_jobs_are_listed_newest_first_by_state_with_why_they_failed(browser: Any, site: Site) -> None:
    failed = site.ledger.enqueue(Job("", RUN, Kind.EVAL, "cpu")).job.job_id
    lease = site.ledger.claim(failed, 1, "worker@south:9", 60.0)
    assert lease is not None
    site.ledger.fail(lease, "no memory left", max_attempts=1)
    seen = Visit(browser, f"{site.url}/page/#/jobs/{RUN}")
    rows = seen.page.locator("#jobs tbody tr")
    rows.nth(2).wait_for()
    assert [text.split()[0] for text in rows.all_inner_texts()] == [f"{RUN}:3", f"{RUN}:2", f"{RUN}:1"]
    seen.page.get_by_role("button", name="failed").click()
    row = seen.page.locator(f'#jobs tr[data-key="{failed}"]')
    row.filter(has_text="no memory left").wait_for()
    until(lambda: rows.count() == 1, "other states gone")
    assert [row.locator("td").nth(place).inner_text() for place in (1, 2, 3)] == ["eval.cpu", "failed", "1"]
    assert seen.page.url.endswith(f"#/jobs/{RUN}/failed")
    seen.page.get_by_role("button", name="cancelled").click()
    seen.page.locator("#jobs", has_text="No cancelled jobs").wait_for()
    assert seen.complaints == []
