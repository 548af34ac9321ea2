"""A run's games and checkpoints in its store: nothing that was acknowledged is lost with the learner's host."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from learner_doubles import DictPrefix
from learner_workplace import RUN, IntakeDesk, Workplace, run_dry, turn
from replay_games import entry, log_of
from waiting import until

from azq import games
from azq.errors import AzqError, StateConflict, StoreError
from azq.files import make_folders
from azq.learner.data.intake import UnackedRead, count_ready
from azq.learner.learner import Learner
from azq.learner.replication.downloader import Downloader, download_if_possible
from azq.learner.replication.remote_index import CHECKPOINTS
from azq.learner.replication.uploader import Uploader
from azq.replay.segments import SegmentLog
from azq.store.extents import Extent
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import Job

GAME = games.load("tic_tac_toe")
ALL = 1e9  # samples


def upload_all(uploader: Uploader) -> None:
    uploader.finish(30.0)


def kept_log(folder: Path, first: int, last: int) -> SegmentLog:
    return log_of(folder / "segments", *range(first, last + 1), roll_bytes=1500)


def uploader_of(prefix: DictPrefix, folder: Path, log: SegmentLog, token: int = 1) -> Uploader:
    return Uploader(prefix, folder, log, token, most_bytes=700)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "segments").glob("0*"))}


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path / "first")


def elsewhere(place: Workplace, prefix: DictPrefix, name: str) -> Learner:
    return place.learner(prefix=prefix, folder=place.folder.parent / name)


def test_games_are_trained_on_at_once_and_acknowledged_when_the_store_has_them(place):
    prefix = DictPrefix()
    learner = place.learner(prefix=prefix)
    place.finish_games(1, 30)
    turn(learner)
    assert (place.ledger.counts(RUN).inserted, place.bus.length(keys.samples(RUN))) == (0, 30)
    assert learner.status().games_inserted == 30
    assert learner.trainer.step > 0
    turn(learner)
    assert learner.intake.duplicates == 0, "what is held is not read twice"
    upload_all(learner.uploader)
    turn(learner)
    assert (place.ledger.counts(RUN).inserted, place.bus.length(keys.samples(RUN))) == (30, 0)
    assert learner.status().games_alone == 0


def test_a_learner_on_another_host_goes_on_from_the_store_alone(place):
    prefix = DictPrefix()
    first = place.learner(prefix=prefix)
    place.finish_games(1, 40)
    run_dry(first)
    first.publish()
    first.save()
    saved = first.trainer.step
    upload_all(first.uploader)
    turn(first)
    place.finish_games(41, 45)
    turn(first)  # on the first host's disk, and in no store: still in the stream
    shutil.rmtree(place.folder)
    second = elsewhere(place, prefix, "second")
    assert second.trainer.step == saved > 0
    assert second.intake.segments.games == 40
    run_dry(second)
    upload_all(second.uploader)
    turn(second)
    assert place.ledger.counts(RUN).inserted == second.intake.segments.games == 45
    assert second.intake.duplicates == 0
    ages = np.arange(200)
    assert np.array_equal(first.intake.window.newest(ages).packed, second.intake.window.newest(ages).packed)


def test_a_store_that_is_away_stops_nothing_and_what_one_disk_alone_has_is_told(place):
    prefix = DictPrefix()
    learner = place.learner(prefix=prefix, most_waiting=20)
    upload_all(learner.uploader)
    turn(learner)
    prefix.away = True
    for first in range(1, 41, 4):
        place.finish_games(first, first + 3)
        turn(learner)
        learner.uploader.turn()
        assert place.bus.length(keys.samples(RUN)) < 10 + 4
    assert learner.trainer.step > 0
    assert learner.status().games_alone == place.ledger.counts(RUN).inserted > 20
    prefix.away = False
    until(lambda: learner.uploader.turn() or not learner.uploader.away, "the store to be tried again")
    upload_all(learner.uploader)
    turn(learner)
    assert (learner.status().games_alone, place.ledger.counts(RUN).inserted) == (0, 40)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), max_size=8), st.integers(0, 5), st.integers(0, 30))
def test_what_may_be_acknowledged_is_kept_or_more_than_may_wait(reads, kept, most):
    held, end, total = [], 0, 7
    for size, count in reads:
        end, total = end + size, total + count
        held.append(UnackedRead((1, end), total, 0))
    count = count_ready(held, (1, kept), most, 7)
    assert all(one.end <= (1, kept) or total - one.games >= most for one in held[:count])
    assert all(one.end > (1, kept) and total - one.games < most for one in held[count:])
    assert count_ready(held, None, most, 7) == len(held)


def test_a_log_is_kept_as_it_grows_and_fetched_as_it_was(tmp_path):
    prefix, here, there = DictPrefix(), tmp_path / "here", tmp_path / "there"
    log = SegmentLog(here / "segments", "tic_tac_toe", roll_bytes=1500)
    uploader = uploader_of(prefix, here, log)
    for uid in range(1, 61):
        log.append([entry(uid)])
        if uid % 5 == 0:
            upload_all(uploader)
            assert uploader.uploaded == log.end
            Downloader(prefix, there, ALL).run()
            assert files_in(there) == files_in(here)
    assert len(files_in(here)) > 6
    assert SegmentLog(there / "segments", "tic_tac_toe", roll_bytes=1500).games == 60


def test_a_learner_that_begins_again_writes_nothing_twice(tmp_path):
    prefix = DictPrefix()
    upload_all(uploader_of(prefix, tmp_path, kept_log(tmp_path, 1, 40)))
    before = set(prefix.objects)
    again = uploader_of(prefix, tmp_path, SegmentLog(tmp_path / "segments", "tic_tac_toe"), token=2)
    upload_all(again)
    assert {name for name in before ^ set(prefix.objects) if not name.startswith("claims/")} == set()


def test_only_the_newest_games_are_fetched_and_of_older_ones_which_they_are(tmp_path):
    prefix, there = DictPrefix(), tmp_path / "there"
    log = kept_log(tmp_path / "here", 1, 60)
    upload_all(uploader_of(prefix, tmp_path / "here", log))
    fetched = Downloader(prefix, there, 20).run()
    assert 1 <= fetched["segments"] <= 4 < fetched["indexes"]
    opened = SegmentLog(there / "segments", "tic_tac_toe", roll_bytes=1500)
    assert opened.games == 60
    assert len(list(opened.tail(10))) >= 3


def test_a_folder_that_was_left_behind_gives_way_to_the_store(tmp_path):
    prefix, old, new = DictPrefix(), tmp_path / "old", tmp_path / "new"
    left = kept_log(old, 1, 20)
    upload_all(uploader_of(prefix, old, left))
    left.append([entry(21)])  # nobody was told that it is stored
    left.close()
    Downloader(prefix, new, ALL).run()
    log = kept_log(new, 30, 45)
    upload_all(uploader_of(prefix, new, log, token=2))
    with pytest.raises(StateConflict, match="went on elsewhere"):
        upload_all(uploader_of(prefix, old, SegmentLog(old / "segments", "tic_tac_toe", roll_bytes=1500), token=3))
    Downloader(prefix, old, ALL).run()
    assert files_in(old) == files_in(new)
    assert list((old / "segments").glob("aside-*/*.seg"))


def test_a_learner_that_had_lost_its_place_can_take_nothing_away(tmp_path):
    prefix, old, new, third = DictPrefix(), tmp_path / "old", tmp_path / "new", tmp_path / "third"
    stale_log = kept_log(old, 1, 10)
    stale = uploader_of(prefix, old, stale_log)
    upload_all(stale)
    Downloader(prefix, new, ALL).run()
    uploader = uploader_of(prefix, new, log := kept_log(new, 11, 12), token=2)
    upload_all(uploader)
    for uid in range(50, 65):
        stale_log.append([entry(uid)])
        upload_all(stale)
        if uid % 3 == 0:
            log.append([entry(uid - 37)])
            upload_all(uploader)
        shutil.rmtree(third, ignore_errors=True)
        Downloader(prefix, third, ALL).run()
        assert files_in(third) == files_in(new)


def test_a_damaged_object_is_named(tmp_path):
    prefix = DictPrefix()
    upload_all(uploader_of(prefix, tmp_path / "here", kept_log(tmp_path / "here", 1, 5)))
    name = next(name for name in prefix.objects if ".seg/" in name)
    prefix.objects[name] = b"x" + prefix.objects[name][1:]
    with pytest.raises(StoreError, match=r"000001\.seg.*damaged"):
        Downloader(prefix, tmp_path / "there", ALL).run()
    del prefix.objects[name]
    with pytest.raises(StoreError, match=r"000001\.seg in the store does not fit"):
        Downloader(prefix, tmp_path / "there", ALL).run()
    assert "000001.seg" not in files_in(tmp_path / "there"), "nothing that is not whole"


def test_checkpoints_are_bounded_and_the_newest_whole_one_is_fetched(tmp_path):
    prefix, here = DictPrefix(), tmp_path / "here"
    uploader = uploader_of(prefix, here, SegmentLog(here / "segments", "tic_tac_toe"))
    (here / CHECKPOINTS).mkdir()
    for step in range(1, 8):
        (here / CHECKPOINTS / f"{step:012d}.ckpt").write_bytes(bytes([step]) * 2000)
        upload_all(uploader)
    names = {name.split("/")[1] for name in prefix.objects if name.startswith(CHECKPOINTS)}
    assert names == {f"{step:012d}.ckpt" for step in (5, 6, 7)}
    del prefix.objects[next(name for name in prefix.objects if "000007.ckpt" in name)]
    Downloader(prefix, tmp_path / "there", ALL).run()
    assert [path.read_bytes() for path in (tmp_path / "there" / CHECKPOINTS).iterdir()] == [b"\6" * 2000]


def test_a_learner_opens_without_its_store_only_where_nobody_learned_since(tmp_path):
    prefix = DictPrefix()
    kept_log(tmp_path, 1, 3).close()
    download_if_possible(Downloader(prefix, tmp_path, ALL), tmp_path, token=4)
    prefix.away = True
    download_if_possible(Downloader(prefix, tmp_path, ALL), tmp_path, token=5)
    with pytest.raises(StoreError, match="away"):
        download_if_possible(Downloader(prefix, tmp_path, ALL), tmp_path, token=7)


class Hosts(IntakeDesk):
    """With a store, and one learner's intake after the other, each in a folder of its own or in the one before."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home, self.prefix, self.token = folder, DictPrefix(), 0
        self.begin(moves=True)

    def begin(self, *, moves: bool) -> None:
        self.token += 1
        self.folder = self.home / str(self.token) if moves else self.folder
        self.folder.mkdir(exist_ok=True)
        Downloader(self.prefix, self.folder, ALL).run()
        self.taking = self.intake(most_unacked=10_000)
        self.taking.uploader = self.uploader = uploader_of(self.prefix, self.folder, self.log, self.token)
        self.taking.agree_with_ledger()
        self.taking.claim_leftovers()


@given(st.lists(st.sampled_from(["games", "read", "keep", "keep", "lost", "again"]), max_size=25))
@settings(max_examples=25, deadline=None)
def test_whenever_a_host_is_lost_what_was_acknowledged_is_there_and_the_rest_comes(tmp_path_factory, course):
    hosts = Hosts(tmp_path_factory.mktemp("hosts"))
    deeds = {
        "games": lambda: hosts.finish(6),
        "read": lambda: hosts.taking.read(),
        "keep": lambda: hosts.uploader.hurry() or hosts.uploader.turn(),
        "lost": lambda: hosts.begin(moves=True),
        "again": lambda: hosts.begin(moves=False),
    }
    for step in course:
        deeds[step]()
        assert hosts.ledger.counts("r").balanced
    hosts.taking.read()
    hosts.taking.claim_leftovers()
    upload_all(hosts.uploader)
    hosts.taking.acknowledge_ready()
    counts = hosts.ledger.counts("r")
    assert counts.inserted == counts.finished == hosts.taking.segments.games
    assert {uid for uid in range(1, counts.opened + 1) if uid in hosts.taking.segments} == set(range(1, counts.opened + 1))


def test_a_sample_that_breaks_the_rules_is_a_letter_once_it_is_acknowledged(tmp_path):
    hosts = Hosts(tmp_path)
    hosts.bus.publish(keys.samples("r"), encode(Job("", "r", Kind.SELFPLAY, "cpu")))
    hosts.taking.read()
    assert hosts.bus.dead_letters() == 0
    upload_all(hosts.uploader)
    hosts.taking.acknowledge_ready()
    assert hosts.bus.dead_letters() == 1


PARTS = st.sampled_from(["..", ".", "", "x", "segments", "checkpoints", "000001.seg", "000000000001.ckpt", "~", "\0"])
PLACES = st.sampled_from(["", "segments/", "checkpoints/", "/"])


@given(st.lists(st.lists(PARTS, max_size=6).map("/".join) | st.text(max_size=20), min_size=1, max_size=4), PLACES)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(["x/../../../.token"], "checkpoints/")
@example(["000001.seg"], "segments/")
def test_no_name_in_a_store_leads_out_of_the_runs_folder(tmp_path, names, before):
    prefix, data, home = DictPrefix(), b"theirs", tmp_path / "home"
    for name in names:
        prefix.objects[Extent(before + name, 1, 0, len(data), len(data), hashlib.sha256(data).hexdigest()).name] = data
    make_folders(home / "run")
    (home / ".token").write_text("ours")
    with contextlib.suppress(AzqError):
        Downloader(prefix, home / "run", ALL).run()
    written = {str(path.relative_to(home)) for path in tmp_path.rglob("*") if path.is_file()} - {".token"}
    assert (home / ".token").read_text() == "ours"
    assert all(re.fullmatch(r"run/(segments/\d{6,9}\.(seg|idx)|checkpoints/\d{12}\.ckpt)", name) for name in written)
    shutil.rmtree(home)


def test_no_link_in_a_runs_folder_leads_what_a_store_holds_elsewhere(tmp_path):
    prefix, here, outside = DictPrefix(), tmp_path / "here", tmp_path / "outside"
    upload_all(uploader_of(prefix, tmp_path / "first", kept_log(tmp_path / "first", 1, 20)))
    make_folders(here)
    make_folders(outside)
    (here / "segments").symlink_to(outside)
    with pytest.raises(StoreError, match="leads out of"):
        Downloader(prefix, here, ALL).run()
    assert not any(outside.iterdir())
