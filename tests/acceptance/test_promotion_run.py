"""Self-play follows the version that serves: what was promoted by results, and what somebody pins in mid-run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from run_logs import events
from waiting import until

import azq
from azq.client import Client
from azq.errors import AzqError
from azq.host.fronts import free_port
from azq.replay.readers import SegmentReader
from azq.status.schemas import WeightsOut

RUN = "promoted"
SETTINGS = (
    'arena.promotion="games"',
    "arena.promotion_games=40",
    "arena.every_s=0",
    "selfplay.slice_s=2",
    "selfplay.games_in_flight=64",
    "learner.publish_every_s=2",
)


@contextlib.contextmanager
def running(home: Path) -> Iterator[Client]:
    """`azq up` and a client of its daemon; ended by Ctrl-C, after which all games are on disk."""
    port = free_port()
    with azq.Local("tic_tac_toe", run=RUN, settings=[*SETTINGS, f"daemon.port={port}"], folder=home, environ={"AZQ_LOG": "json"}) as up:
        until((home / ".token").exists, "no token was made")
        with Client(f"http://127.0.0.1:{port}", token=(home / ".token").read_text().strip()) as client:
            yield client
        up.end()
        up.wait(minutes=1.5)


def weights_of(client: Client) -> dict[int, WeightsOut]:
    """The versions there are; none while the daemon does not answer yet."""
    try:
        return {one.version: one for one in client.weights(RUN, limit=600)}
    except AzqError:
        return {}


def played_with(folder: Path) -> set[int]:
    """The versions that all moves of all recorded games were searched with."""
    found = SegmentReader(folder / "segments").newest(1_000_000)
    return {int(version) for _, event in found for version in np.unique(np.frombuffer(event.record.weight_versions, "<u4"))} - {0}


@pytest.mark.slow
def test_self_play_follows_what_was_promoted_or_pinned(tmp_path: Path) -> None:
    with running(tmp_path) as client:
        until(lambda: any(one.state == "promoted" and version > 1 for version, one in weights_of(client).items()), "none was promoted")
        unused = until(
            lambda: next((version for version, one in sorted(weights_of(client).items()) if not one.state), 0), "each is judged", 60
        )
        assert client.pin_weights(RUN, unused, "a test").serving == unused
        until(lambda: weights_of(client)[unused].served_by == 1, "the pinned version does not serve")
        before = weights_of(client)
        until(lambda: len(weights_of(client)) > len(before) + 1, "nothing is learned any more")
        until(lambda: unused in played_with(tmp_path / RUN), "no game was played with the pinned version")
        assert weights_of(client)[unused].serves
        best = client.unpin_weights(RUN).serving
        until(lambda: weights_of(client)[best].served_by == 1 or not weights_of(client)[best].serves, "the best does not serve")
    folder = tmp_path / RUN
    promoted = {int(str(line["version"])) for line in events(folder, "daemon", "weights_promoted")}
    assert 1 in promoted
    assert len(promoted) > 1
    assert played_with(folder) <= promoted | {unused}
    refused = {int(str(line["version"])) for line in events(folder, "daemon", "weights_rejected")}
    assert not refused & promoted
