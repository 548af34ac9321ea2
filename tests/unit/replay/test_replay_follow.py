"""Following a log that another process appends to: every record once, over rolls, half-written tails and cuts."""

from __future__ import annotations

from pathlib import Path

import pytest
from replay_games import play_game

from azq import games
from azq.errors import StoreError
from azq.replay.browse import uid_of
from azq.replay.follow import SegmentFollower
from azq.replay.framing import MARK_BYTES
from azq.replay.samples import count_samples
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire.codec import decode, encode
from azq.wire.messages import SampleEvent


def count(frame: bytes) -> int:
    return count_samples(decode(frame, SampleEvent))


class Log:
    """A segment log that a test appends games to."""

    def __init__(self, folder: Path, roll_bytes: int = 64 << 20) -> None:
        self.folder = folder
        self.game = games.load("tic_tac_toe")
        self.log = SegmentLog(folder, "tic_tac_toe", roll_bytes=roll_bytes)

    def add(self, first: int, last: int) -> None:
        for uid in range(first, last + 1):
            event = play_game(self.game, uid)
            self.log.append([LogEntry(uid, count_samples(event), encode(event))])

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.seg"))


def read(follower: SegmentFollower, most: int = 1000) -> list[int]:
    return [uid_of(frame) for frame in follower.read(most)]


@pytest.mark.parametrize("roll_bytes", [64 << 20, 2000])
def test_each_game_is_read_once_in_order(tmp_path, roll_bytes):
    log = Log(tmp_path, roll_bytes)
    follower = SegmentFollower(tmp_path, 10_000, count)
    assert read(follower) == []
    log.add(1, 7)
    assert read(follower, 3) == [1, 2, 3]
    assert read(follower) == [4, 5, 6, 7]
    assert read(follower) == []
    log.add(8, 30)
    seen = read(follower, 5)
    while new := read(follower, 5):
        seen += new
    assert seen == list(range(8, 31))
    assert (len(log.files()) > 1) is (roll_bytes == 2000)


def test_it_begins_where_the_newest_samples_do(tmp_path):
    log = Log(tmp_path, roll_bytes=2000)
    log.add(1, 40)
    newest = read(SegmentFollower(tmp_path, 1, count))
    assert newest == list(range(newest[0], 41))
    assert len(newest) < 20
    assert read(SegmentFollower(tmp_path, 10_000, count)) == list(range(1, 41))


@pytest.mark.parametrize("closed", [False, True])
def test_it_begins_at_the_file_that_fills_it_and_no_earlier(tmp_path, closed):
    log = Log(tmp_path, roll_bytes=1)
    log.add(1, 4)
    if not closed:
        for path in tmp_path.glob("*.idx"):
            path.unlink()
    three, four = (count_samples(play_game(log.game, uid)) for uid in (3, 4))
    assert read(SegmentFollower(tmp_path, four, count)) == [4]
    assert read(SegmentFollower(tmp_path, four + 1, count)) == [3, 4]
    assert read(SegmentFollower(tmp_path, four + three, count)) == [3, 4]


def test_a_half_written_record_waits_until_it_is_whole(tmp_path):
    log = Log(tmp_path)
    log.add(1, 3)
    follower = SegmentFollower(tmp_path, 10_000, count)
    whole = log.files()[0].read_bytes()
    log.files()[0].write_bytes(whole[: -5 - MARK_BYTES])
    assert read(follower) == [1, 2]
    log.files()[0].write_bytes(whole)
    assert read(follower) == [3]


def test_what_was_cut_off_and_written_again_is_read(tmp_path):
    log = Log(tmp_path)
    log.add(1, 2)
    follower = SegmentFollower(tmp_path, 10_000, count)
    path = log.files()[0]
    two = path.read_bytes()
    log.add(3, 3)
    assert read(follower) == [1, 2, 3]
    path.write_bytes(two)  # as the learner cuts what the disk did not take for certain
    assert read(follower) == []
    log.log.close()
    Log(tmp_path).add(4, 4)
    assert read(follower) == [4]


def test_a_file_begun_just_now_is_empty(tmp_path):
    (tmp_path / "000001.seg").touch()
    follower = SegmentFollower(tmp_path, 10_000, count)
    assert read(follower) == []
    Log(tmp_path).add(1, 2)
    assert read(follower) == [1, 2]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "000001.seg").mkdir()
    with pytest.raises(StoreError, match=r"000001\.seg"):
        read(SegmentFollower(tmp_path, 10, count))


def test_files_that_were_moved_away_are_not_missed(tmp_path):
    log = Log(tmp_path, roll_bytes=2000)
    log.add(1, 40)
    for path in log.files()[:3]:
        path.unlink()
    newest = read(SegmentFollower(tmp_path, 10_000, count))
    assert newest == list(range(newest[0], 41))
    assert newest[0] > 1
