"""Commands over REST, against a daemon's interface over the doubles: what a person reads of a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from page_site import RUN, Site
from typer.testing import CliRunner

from azq.cli.app import app
from azq.wire.kinds import Kind
from azq.wire.messages import Job


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
