"""A run goes on where its folder lost games, once that is accepted; and from its store, where brokers and folder are gone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from commands import azq_here
from learner_processes import RUN, SECTIONS, Place
from waiting import until

from azq.errors import ExitCode
from azq.host.restore import create_from_folder
from azq.ledger.records import sections_of
from azq.replay.segments import SegmentLog
from azq.store.signing import KEY_FILE
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.kinds import Kind
from azq.wire.messages import Job, WeightEvent


def versions(place: Place) -> list[int]:
    return [decode(entry.frame, WeightEvent).version for entry in place.bus.after(keys.weights(RUN), "0")]


def check_disk(place: Place, home: Path | None = None) -> None:
    """The games on disk are all that were opened but the open and the abandoned ones, each once."""
    log = SegmentLog((home or place.folder) / RUN / "segments", "tic_tac_toe")
    opened = place.ledger.counts(RUN).opened
    abandoned = {int(uid) for uid in place.client.hkeys(keys.abandoned(RUN))}
    assert {uid for uid in range(1, opened + 1) if uid in log} == set(range(1, opened + 1)) - place.ledger.open_uids(RUN) - abandoned
    assert log.uids.highest <= opened
    log.close()


@pytest.mark.slow
def test_a_folder_that_is_not_the_one_stops_its_learner_until_the_loss_is_accepted(place):
    process = place.learner()
    place.finish_games(30)
    until(place.all_inserted, "games")
    place.stop(process)
    published, folder = versions(place), place.folder / RUN
    shutil.rmtree(folder / "segments")
    kept = sorted(map(str, Path(folder).glob("checkpoints/*")))
    process = place.learner()
    output = place.output(process)
    assert process.returncode == ExitCode.CONFLICT
    assert "holds 0 games, and 30 were stored" in output
    assert "azq runs restore" in output
    assert versions(place) == published
    assert sorted(map(str, Path(folder).glob("checkpoints/*"))) == kept
    assert place.ledger.counts(RUN).inserted == 30
    assert create_from_folder(place.ledger, place.bus, place._record(SECTIONS), SECTIONS, place.game) == 30
    again = place.learner()
    place.finish_games(10)
    until(lambda: place.all_inserted() and place.ledger.counts(RUN).inserted == 10, "games after the loss")
    place.stop(again)
    check_disk(place)


def restore_kept(place: Place, home: Path, store: str) -> subprocess.CompletedProcess[str]:
    addresses = {"AZQ_BROKER__CONTROL_URL": place.url, "AZQ_STORE__URL": store}
    return azq_here(home, "runs", "restore", "--run", RUN, "--from-store", **addresses)


def test_after_brokers_and_folder_are_lost_a_run_goes_on_from_its_store(place, tmp_path):
    """Killed without a word; a fleet with empty brokers and another home; games alike from there on, no number and no version twice."""
    home, store = tmp_path / "elsewhere", f"file://{tmp_path}/store"
    goals = {"games": 500.0}
    place.ledger.update_run_until(RUN, goals)
    place.ledger.adopt(place.lease, 3)  # open for ever
    process = place.learner(AZQ_STORE__URL=store)
    place.finish_games(40)
    until(lambda: place.all_inserted() and len(versions(place)) >= 2 and any(tmp_path.glob("store/runs/*/checkpoints/*")), "all kept")
    process.kill()
    process.wait()
    newest, created_ms = versions(place)[-1], place.ledger.run(RUN).record.created_ms
    refused = restore_kept(place, home, store)
    assert (refused.returncode, home.exists()) == (ExitCode.CONFLICT, False)
    assert "run ttt exists in this control plane" in refused.stderr
    place.client.flushall()
    shutil.rmtree(place.folder / RUN)
    refused = restore_kept(place, home, store)
    assert "is not signed with this control plane's key" in refused.stderr
    assert place.ledger.runs() == []
    shutil.copy(place.folder / KEY_FILE, home / KEY_FILE)
    done = restore_kept(place, home, store)
    assert done.returncode == 0, done.stderr
    assert "run ttt goes on from 40 games; 3 written off" in done.stdout
    view, counts = place.ledger.run(RUN), place.ledger.counts(RUN)
    assert (view.record.created_ms, view.record.until, view.record.directory) == (created_ms, goals, str(home / RUN))
    assert sections_of(view.record) == SECTIONS
    assert (counts.opened, counts.inserted, counts.balanced) == (43, 40, True)
    lease = place.ledger.claim(place.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu")).job.job_id, 1, "selfplay@test:2", 600.0)
    assert lease is not None
    place.lease = lease
    again = place.learner(AZQ_STORE__URL=store, AZQ_HOME=str(home))
    place.finish_games(40)
    until(lambda: place.all_inserted() and place.ledger.counts(RUN).inserted == 80 and len(versions(place)) > 1, "games and weights")
    place.stop(again)
    assert versions(place) == list(range(newest, newest + len(versions(place))))
    assert place.ledger.counts(RUN).duplicates_dropped == 0
    assert {path.name for path in tmp_path.glob("store/runs/*")} == {f"{RUN}.{created_ms}"}
    check_disk(place, home)


def test_a_store_without_the_run_or_with_a_broken_piece_of_it_changes_nothing(place, tmp_path):
    home, store = tmp_path / "elsewhere", f"file://{tmp_path}/store"
    process = place.learner(AZQ_STORE__URL=store)
    place.finish_games(20)
    until(place.all_inserted, "games")
    place.stop(process)
    place.client.flushall()
    home.mkdir()
    shutil.copy(place.folder / KEY_FILE, home / KEY_FILE)
    for url, code, said in [
        (f"file://{tmp_path}/none", ExitCode.NOT_FOUND, "no run 'ttt' in"),
        ("file", ExitCode.CONFIG, "keeps no games"),
    ]:
        refused = restore_kept(place, home, url)
        assert (refused.returncode, said in refused.stderr) == (code, True), refused.stderr
    extent = next(path for path in sorted(tmp_path.glob("store/runs/*/segments/*/*")))
    extent.write_bytes(b"x" + extent.read_bytes()[1:])
    refused = restore_kept(place, home, store)
    assert refused.returncode != 0
    assert f"{extent.stem} is damaged in the store" in refused.stderr
    assert not place.ledger.runs()
    assert not (home / RUN / "run.toml").exists()
