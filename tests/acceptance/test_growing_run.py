"""A whole run whose network and budget grow: larger weights are published, served, and played with, in one run without a pause."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_logs import events

import azq
from azq.console.move import weight_version
from azq.nets import from_bytes, network_of

RUN = "growing"
SETTINGS = (
    "arena.every_s=0",
    'network.kind="resnet"',
    "network.blocks=1",
    "network.channels=16",
    "learner.growth=[{at=0.3,blocks=2,channels=16},{at=0.7,blocks=2,channels=32}]",
    "learner.min_window=500",
    "learner.batch_size=64",
    "learner.publish_every_s=0.5",
    "selfplay.games_in_flight=64",
    "selfplay.slice_s=2",
    "selfplay.cache_entries=0",
    "search.num_simulations=8",
    "search.schedule=[{at=0.5,num_simulations=16}]",
)


@pytest.mark.release
@pytest.mark.timeout(150)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_grows_while_it_plays(tmp_path: Path, ranks: int) -> None:
    settings, until = [*SETTINGS, f"learner.ranks={ranks}"], ["--until", f"minutes={0.6 * ranks}"]
    with azq.Local("tic_tac_toe", run=RUN, settings=settings, options=until, folder=tmp_path, environ={"AZQ_LOG": "json"}) as run:
        last = run.wait(minutes=2.3)
    folder = tmp_path / RUN
    sizes: dict[int, tuple[int, int]] = {}
    for path in sorted((folder / "weights").glob("*.safetensors"), key=weight_version):
        _, meta = from_bytes(path.read_bytes())
        network = network_of(meta)
        sizes[meta.version] = (network.blocks, network.channels)
    assert list(dict.fromkeys(sizes.values())) == [(1, 16), (2, 16), (2, 32)]
    switched = {sizes[int(str(event["version"]))] for event in events(folder, "inference", "weights_switched")}
    assert switched == set(sizes.values())
    assert not events(folder, "inference", "weights_refused")
    grown = [str(event["timestamp"]) for event in events(folder, "learner", "network_grown")]
    assert len(grown) == 2
    if ranks > 1:
        together = [str(event["timestamp"]) for event in events(folder, "learner", "ranks_joined") if event["ranks"] == ranks]
        assert min(together) < grown[1]  # the other rank was there when it grew
        assert max(together) > grown[1]
        assert not events(folder, "learner", "rank_lost")
    assert last.state == "finished"
    assert last.ledger.balanced
    assert last.ledger.finished > 100
