"""What a store keeps of a run's control plane: its record as it is now, the events of its newest weights, whose games are purged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from learner_doubles import DictPrefix
from learner_workplace import RUN, Workplace, run_dry

from azq.config import StoreConfig
from azq.errors import ConfigError, NotFound, StoreError
from azq.learner.replication.downloader import Downloader
from azq.learner.replication.remote_index import (
    KEEP_EVENTS,
    RECORD,
    WEIGHTS,
    find_run,
    open_run_prefix,
    read_events,
    read_record,
    write_event,
)
from azq.replay.window import Purges
from azq.store.objects import FolderPrefix
from azq.wire.codec import decode, encode
from azq.wire.messages import RunRecord, WeightEvent

KEY = b"of the control plane"


def event(version: int, published_ms: int = 1) -> WeightEvent:
    return WeightEvent(RUN, version, f"{version:064x}", f"file:{version:064x}", version * 10, published_ms)


def keep(folder: Path, record: RunRecord) -> None:
    prefix = open_run_prefix(StoreConfig(url=f"file://{folder}"), record, lambda: KEY)
    assert prefix is not None
    prefix.write(RECORD, encode(record))


def test_the_newest_events_are_kept_and_of_one_version_the_later():
    prefix = DictPrefix()
    for version in range(8, 13):
        write_event(prefix, event(version))
    write_event(prefix, event(12, published_ms=2))
    assert read_events(prefix) == [event(12, 2), event(12), event(11)]
    assert len(prefix.names(WEIGHTS)) == KEEP_EVENTS


def test_the_last_run_of_a_name_is_found(tmp_path):
    settings = StoreConfig(url=f"file://{tmp_path}")
    records = [RunRecord(run, b"{}", {}, "/there", created_ms) for run, created_ms in [("a", 9), ("a", 10), ("a-b", 11)]]
    for record in records:
        keep(tmp_path, record)
    for left in ("left", "b.²", "b.1." + "9" * 5000):
        (tmp_path / "runs" / left[:200]).mkdir()
    prefix = find_run(settings, "a", KEY)
    assert read_record(prefix) == records[1]
    assert prefix.names() == [RECORD]
    with pytest.raises(NotFound, match=r"no run 'b' in .*; there are: a, a-b$"):
        find_run(settings, "b", KEY)


@pytest.mark.parametrize("settings", [StoreConfig(), StoreConfig(url="redis"), StoreConfig(url="file:///x", keep="weights")])
def test_a_store_of_weights_alone_is_named(settings):
    with pytest.raises(ConfigError, match="keeps no games"):
        find_run(settings, "a", KEY)


def test_a_run_of_an_older_azq_is_named(tmp_path):
    FolderPrefix(tmp_path / "runs" / "a.1").write("claims/0000000001", b"[]")
    prefix = find_run(StoreConfig(url=f"file://{tmp_path}"), "a", KEY)
    with pytest.raises(StoreError, match=r"runs/a.1/claims/0000000001 in the store is not signed"):
        read_record(prefix)
    assert prefix.sign() == 1
    with pytest.raises(StoreError, match=r"runs/a.1 in the store holds no record: its learner was of an older azq"):
        read_record(prefix)


def test_a_record_of_another_run_is_not_restored(tmp_path):
    keep(tmp_path, RunRecord("a", b"{}", {}, "/there", 1))
    prefix = find_run(StoreConfig(url=f"file://{tmp_path}"), "a", KEY)
    prefix.write(RECORD, encode(RunRecord("b", b"{}", {}, "/there", 1)))
    with pytest.raises(StoreError, match=r"runs/a.1/record in the store is of runs/b.1"):
        read_record(prefix)


def test_a_learner_keeps_its_runs_record_as_goals_change_and_whose_games_are_purged(tmp_path):
    place, prefix = Workplace(tmp_path / "first"), DictPrefix()
    learner = place.learner(prefix=prefix)
    place.finish_games(1, 20)
    run_dry(learner)
    uploader = learner.uploader
    assert uploader is not None
    uploader.finish(30.0)
    record = decode(prefix.read(RECORD) or b"", RunRecord)
    assert record == place.ledger.run(RUN).record
    uploader.record = later = msgspec.structs.replace(record, until={"games": 5.0})
    Purges(place.folder / "segments").order({"forger": 7})
    uploader.turn()
    assert decode(prefix.read(RECORD) or b"", RunRecord) == later
    Downloader(prefix, tmp_path / "second", 1e9).run()
    assert Purges(tmp_path / "second" / "segments").order({"forger": 7, "other": 8}) == {"other": 8}
    written = dict(prefix.objects)
    assert not uploader.turn()
    assert prefix.objects == written


def test_no_version_is_announced_that_the_store_does_not_know(tmp_path):
    place, prefix = Workplace(tmp_path), DictPrefix()
    learner = place.learner(prefix=prefix)
    prefix.away = True
    with pytest.raises(StoreError):
        learner.publish()
    assert place.weights() == []
    prefix.away = False
    learner.publish()
    assert read_events(prefix)[0] == place.weights()[-1]
