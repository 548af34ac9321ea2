"""Files in extents: what is written of a file that grows, and what a reader makes of the objects that it finds."""

from __future__ import annotations

import hashlib
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from azq.store.extents import FAN, Extent, WriterClaim, by_file, extent_of, is_whole, layout, matching, next_extents, writers_in

MOST = 4096
NOBODY = WriterClaim()


def extent(content: bytes, start: int, end: int, writer: int = 1, of: int = 0) -> Extent:
    return Extent("segments/000001.seg", writer, start, end, of, hashlib.sha256(content[start:end]).hexdigest())


def read(objects: dict[Extent, bytes], claim: WriterClaim = NOBODY) -> bytes:
    spans = layout(one for one in objects if claim.counts(one))
    return b"".join(objects[span.extent][: span.end - span.extent.start] for span in spans)


class Writer:
    """One learner's writes of one file, as `Uploader` does them; `steps` lets others in between."""

    def __init__(self, number: int, objects: dict[Extent, bytes], claim: WriterClaim = NOBODY) -> None:
        self.number, self.content, self.objects = number, read(objects, claim), objects
        spans = layout(one for one in objects if claim.counts(one))
        self.claim = WriterClaim(number, frozenset(span.extent.writer for span in spans))
        self.extents = [span.extent for span in spans[: matching(self.content, spans)]]
        self.written = 0
        for old in [one for one in objects if claim.counts(one) and one not in {span.extent for span in spans}]:
            del objects[old]

    @property
    def covered(self) -> int:
        return self.extents[-1].end if self.extents else 0

    def write(self, *, dies_before_dropping: bool = False) -> None:
        for start, end in next_extents(self.extents, len(self.content), MOST):
            new = extent(self.content, start, end, self.number)
            self.objects[new] = self.content[start:end]
            self.written += end - start
            gone = [old for old in self.extents if old.start >= start]
            self.extents = [*(old for old in self.extents if old.start < start), new]
            if not dies_before_dropping:
                for old in gone:
                    if old.writer == self.number:
                        self.objects.pop(old, None)
            return

    def write_all(self) -> None:
        while self.covered < len(self.content):
            self.write()


def test_a_name_says_all_that_a_piece_is():
    one = extent(b"abcdef", 2, 5, writer=7, of=6)
    assert extent_of(one.name) == one
    assert by_file([one.name, "segments/000001.seg/notes.txt", "x"], NOBODY) == {one.file: [one]}
    assert by_file([one.name], WriterClaim(8, frozenset({6}))) == {}
    assert by_file([one.name], WriterClaim(8, frozenset({7}))) == {one.file: [one]}
    assert writers_in([one.name, WriterClaim(9).name, "claims/notes"]) == (9, 9)
    assert extent_of("segments/1.seg/0000000001.5.5.0." + "0" * 64) is None, "no bytes"


@given(st.lists(st.integers(1, 3 * MOST), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_a_file_that_grows_is_whole_in_few_pieces_and_hardly_ever_written_again(growth):
    objects: dict[Extent, bytes] = {}
    writer = Writer(1, objects)
    for more in growth:
        writer.content += bytes(len(writer.content) % 251 for _ in range(more))
        writer.write_all()
        assert read(objects) == writer.content
    size = len(writer.content)
    levels = math.ceil(math.log(MOST, FAN))
    assert all(one.size <= MOST for one in objects)
    assert writer.written <= (levels + 1) * size
    assert len(objects) <= FAN * (levels + 1) + FAN * size / MOST


def test_small_pieces_become_one_when_there_are_many():
    objects: dict[Extent, bytes] = {}
    writer = Writer(1, objects)
    for _ in range(FAN):
        writer.content += b"x" * 10
        writer.write_all()
    assert [(one.start, one.end) for one in objects] == [(0, 10 * FAN)]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_what_the_last_learner_wrote_is_read_whatever_others_did_that_had_lost_their_place(data):
    """Acknowledged is what the newest learner has written: nothing that a stale one writes or deletes later may change it."""
    objects: dict[Extent, bytes] = {}
    writers: list[Writer] = []
    for number in range(1, data.draw(st.integers(1, 4), "learners") + 1):
        writers.append(Writer(number, objects, writers[-1].claim if writers else NOBODY))
        for _ in range(data.draw(st.integers(0, 12), "writes")):
            one = data.draw(st.sampled_from(writers), "who")
            one.content += bytes([one.number]) * data.draw(st.integers(1, 900), "bytes")
            one.write(dies_before_dropping=data.draw(st.booleans(), "dies"))
            newest = writers[-1]
            assert read(objects, newest.claim)[: newest.covered] == newest.content[: newest.covered]


@given(st.integers(1, 5 * MOST), st.data())
@settings(deadline=None)
def test_a_finished_file_is_whole_only_with_all_of_its_pieces(size, data):
    content = bytes(number % 251 for number in range(size))
    extents = [extent(content, start, min(size, start + MOST), of=size) for start in range(0, size, MOST)]
    assert is_whole(layout(extents))
    extents.remove(data.draw(st.sampled_from(extents)))
    assert not is_whole(layout(extents))
