"""What a store keeps of a run's control plane: its record as it is now, the events of its newest weights, whose games are purged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from learner_doubles import DictShelf
from learner_workplace import RUN, Workplace, run_dry

from azq.config import StoreConfig
from azq.errors import ConfigError, NotFound, StoreError
from azq.learner.keeping.control import KEEP, RECORD, WEIGHTS, find_shelf, keep_event, kept_events, kept_record, open_kept
from azq.learner.keeping.fetching import Fetcher
from azq.replay.purges import Purges
from azq.store.shelf import FolderShelf
from azq.wire.codec import decode, encode
from azq.wire.messages import RunRecord, WeightEvent

KEY = b"of the control plane"


def event(version: int, published_ms: int = 1) -> WeightEvent:
    return WeightEvent(RUN, version, f"{version:064x}", f"file:{version:064x}", version * 10, published_ms)


def keep(folder: Path, record: RunRecord) -> None:
    shelf = open_kept(StoreConfig(url=f"file://{folder}"), record, lambda: KEY)
    assert shelf is not None
    shelf.write(RECORD, encode(record))


def test_the_newest_events_are_kept_and_of_one_version_the_later():
    shelf = DictShelf()
    for version in range(8, 13):
        keep_event(shelf, event(version))
    keep_event(shelf, event(12, published_ms=2))
    assert kept_events(shelf) == [event(12, 2), event(12), event(11)]
    assert len(shelf.names(WEIGHTS)) == KEEP


def test_the_last_run_of_a_name_is_found(tmp_path):
    settings = StoreConfig(url=f"file://{tmp_path}")
    records = [RunRecord(run, b"{}", {}, "/there", created_ms) for run, created_ms in [("a", 9), ("a", 10), ("a-b", 11)]]
    for record in records:
        keep(tmp_path, record)
    for left in ("left", "b.²", "b.1." + "9" * 5000):
        (tmp_path / "runs" / left[:200]).mkdir()
    shelf = find_shelf(settings, "a", KEY)
    assert kept_record(shelf) == records[1]
    assert shelf.names() == [RECORD]
    with pytest.raises(NotFound, match=r"no run 'b' in .*; there are: a, a-b$"):
        find_shelf(settings, "b", KEY)


@pytest.mark.parametrize("settings", [StoreConfig(), StoreConfig(url="redis"), StoreConfig(url="file:///x", keep="weights")])
def test_a_store_of_weights_alone_is_named(settings):
    with pytest.raises(ConfigError, match="keeps no games"):
        find_shelf(settings, "a", KEY)


def test_a_run_of_an_older_azq_is_named(tmp_path):
    FolderShelf(tmp_path / "runs" / "a.1").write("claims/0000000001", b"[]")
    shelf = find_shelf(StoreConfig(url=f"file://{tmp_path}"), "a", KEY)
    with pytest.raises(StoreError, match=r"runs/a.1/claims/0000000001 in the store is not signed"):
        kept_record(shelf)
    assert shelf.sign() == 1
    with pytest.raises(StoreError, match=r"runs/a.1 in the store holds no record: its learner was of an older azq"):
        kept_record(shelf)


def test_a_record_of_another_run_is_not_restored(tmp_path):
    keep(tmp_path, RunRecord("a", b"{}", {}, "/there", 1))
    shelf = find_shelf(StoreConfig(url=f"file://{tmp_path}"), "a", KEY)
    shelf.write(RECORD, encode(RunRecord("b", b"{}", {}, "/there", 1)))
    with pytest.raises(StoreError, match=r"runs/a.1/record in the store is of runs/b.1"):
        kept_record(shelf)


def test_a_learner_keeps_its_runs_record_as_goals_change_and_whose_games_are_purged(tmp_path):
    place, shelf = Workplace(tmp_path / "first"), DictShelf()
    learner = place.learner(shelf=shelf)
    place.finish_games(1, 20)
    run_dry(learner)
    keeper = learner.keeper
    assert keeper is not None
    keeper.finish(30.0)
    record = decode(shelf.read(RECORD) or b"", RunRecord)
    assert record == place.ledger.run(RUN).record
    keeper.record = later = msgspec.structs.replace(record, until={"games": 5.0})
    Purges(place.folder / "segments").order({"forger": 7})
    keeper.turn()
    assert decode(shelf.read(RECORD) or b"", RunRecord) == later
    Fetcher(shelf, tmp_path / "second", 1e9).run()
    assert Purges(tmp_path / "second" / "segments").order({"forger": 7, "other": 8}) == {"other": 8}
    written = dict(shelf.objects)
    assert not keeper.turn()
    assert shelf.objects == written


def test_no_version_is_announced_that_the_store_does_not_know(tmp_path):
    place, shelf = Workplace(tmp_path), DictShelf()
    learner = place.learner(shelf=shelf)
    shelf.away = True
    with pytest.raises(StoreError):
        learner.publish()
    assert place.weights() == []
    shelf.away = False
    learner.publish()
    assert kept_events(shelf)[0] == place.weights()[-1]
