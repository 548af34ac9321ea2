"""Growing files as objects: extents of their bytes, fully described by their names.

    <file>/<writer>.<start>.<end>.<of>.<sha256>

`writer` numbers the processes that ever wrote here: what a later one wrote from `start` on takes the place of all that earlier ones have
there. Before it writes, it claims what it goes on from: `claims/<writer>` names the writers whose extents that are, and no others before
it count from then on. So one that was superseded and does not know it yet can neither take anything away nor put itself between.
`of` is the size of a file that is finished, 0 where it may still grow. Nothing is ever written over: what is there by its name is there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from azq.errors import StoreError
from azq.store.objects import ObjectPrefix

AT_ONCE = 8  # objects that are fetched side by side
FAN = 8  # extents of like size before they are written as one
CLAIMS = "claims"
# Only these forms count: any writer of the store may choose a name.
_FILE = r"segments/[0-9]{6,9}\.(?:seg|idx)|checkpoints/[0-9]{12}\.ckpt"
_CLAIM = re.compile(rf"{CLAIMS}/[0-9]{{10}}")
_OTHER = re.compile(r"record|purged\.json|weights/[0-9]{10}\.[0-9]{15}")
_NAME = re.compile(
    rf"(?P<file>{_FILE})/(?P<writer>[0-9]{{10}})\.(?P<start>[0-9]{{1,15}})\.(?P<end>[0-9]{{1,15}})\.(?P<of>[0-9]{{1,15}})\.(?P<sha256>[0-9a-f]{{64}})"
)


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes `start` to `end` of a file."""

    file: str
    writer: int
    start: int
    end: int
    of: int
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.file}/{self.writer:010d}.{self.start}.{self.end}.{self.of}.{self.sha256}"

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ExtentSpan:
    """Bytes of a file, up to `end`, that an extent gives from its own start on."""

    extent: Extent
    end: int


def extent_of(name: str) -> Extent | None:
    """The extent of an object's name; None for any other object."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    start, end = int(match["start"]), int(match["end"])
    extent = Extent(match["file"], int(match["writer"]), start, end, int(match["of"]), match["sha256"])
    return extent if start < end and extent.name == name else None


def is_object_name(name: str) -> bool:
    """Whether a learner gives objects such names."""
    return extent_of(name) is not None or any(form.fullmatch(name) for form in (_CLAIM, _OTHER))


@dataclass(frozen=True, slots=True)
class WriterClaim:
    """The earlier writers whose extents a writer continues from; extents of others no longer count."""

    writer: int = 0
    goes_on_from: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        return f"{CLAIMS}/{self.writer:010d}"

    def counts(self, extent: Extent) -> bool:
        return extent.writer >= self.writer or extent.writer in self.goes_on_from


def by_file(names: Iterable[str], claim: WriterClaim) -> dict[str, list[Extent]]:
    """The extents that count among objects, by file."""
    files: dict[str, list[Extent]] = {}
    for extent in map(extent_of, names):
        if extent is not None and claim.counts(extent):
            files.setdefault(extent.file, []).append(extent)
    return files


def writers_in(names: Iterable[str]) -> tuple[int, int]:
    """The highest number of a writer that left anything, and of one that left a claim; 0 for none."""
    listed = list(names)
    claims = [int(name.rpartition("/")[2]) for name in listed if _CLAIM.fullmatch(name)]
    extents = [extent.writer for extent in map(extent_of, listed) if extent is not None]
    return max(claims + extents, default=0), max(claims, default=0)


def layout(extents: Iterable[Extent]) -> list[ExtentSpan]:
    """The bytes of one file from its beginning, as far as extents reach without a gap; a later writer's count from where they start."""
    spans: list[ExtentSpan] = []
    size, writer = 0, -1
    for extent in sorted(extents, key=lambda extent: (extent.writer, extent.end, -extent.start)):
        if extent.start > size or (extent.writer == writer and extent.end <= size):
            continue
        spans = [ExtentSpan(span.extent, min(span.end, extent.start)) for span in spans if span.extent.start < extent.start]
        spans.append(ExtentSpan(extent, extent.end))
        size, writer = extent.end, extent.writer
    return spans


def is_whole(spans: Sequence[ExtentSpan]) -> bool:
    """True for all of a finished file."""
    return bool(spans) and spans[-1].end == spans[-1].extent.of


def matching(data: bytes, spans: Sequence[ExtentSpan]) -> int:
    """How many of the first spans a file's bytes hold, as names tell; of one that gives only a part of its extent they do not."""
    for count, span in enumerate(spans):
        extent = span.extent
        if span.end != extent.end or hashlib.sha256(data[extent.start : extent.end]).hexdigest() != extent.sha256:
            return count
    return len(spans)


def next_extents(written: Sequence[Extent], end: int, most: int) -> Iterator[tuple[int, int]]:
    """What to write next of a file's first `end` bytes, of which the extents `written` are stored; at most `most` bytes each.

    Small extents are written again as a larger one once `FAN` of them stand behind each other: a file that grows by a little at a time is
    written in few extents, and none of its bytes is written more often than the logarithm of its size.
    """
    covered = written[-1].end if written else 0
    while covered < end:
        stop = min(end, covered + most)
        start = _joined(written, covered, stop, most) if covered == (written[-1].end if written else 0) else covered
        yield start, stop
        covered = stop


def _joined(written: Sequence[Extent], start: int, end: int, most: int) -> int:
    left = len(written)
    while True:
        first = left
        while first and end - written[first - 1].start <= most and _level(written[first - 1].size) <= _level(end - start):
            first -= 1
        if left - first < FAN - 1:
            return start
        left, start = first, written[first].start


def _level(size: int) -> int:
    return (size.bit_length() - 1) // (FAN.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Listing:
    """The extents below a prefix at one moment."""

    files: dict[str, list[Extent]]  # that count
    newest_writer: int
    claim: WriterClaim


def list_extents(prefix: ObjectPrefix) -> Listing:
    """All extents below a prefix, in one listing. Raises `StoreError`."""
    names = prefix.names()
    newest, claimed = writers_in(names)
    claim = WriterClaim(claimed)
    if claimed:
        data = prefix.read(claim.name)
        try:
            claim = WriterClaim(claimed, msgspec.json.decode(data or b"", type=frozenset[int]))
        except msgspec.DecodeError as error:
            raise StoreError(f"{claim.name} in the store says nothing ({error}); another learner may just have begun: try again") from None
    return Listing(by_file(names, claim), newest, claim)


def write_claim(prefix: ObjectPrefix, claim: WriterClaim, before: WriterClaim) -> None:
    """Makes a claim, in place of the one before."""
    prefix.write(claim.name, msgspec.json.encode(sorted(claim.goes_on_from)))
    if before.writer:
        prefix.remove(before.name)


def read_spans(prefix: ObjectPrefix, spans: Sequence[ExtentSpan]) -> bytes:
    """The bytes that spans give, each extent verified. Raises `StoreError` for one that is damaged, or gone since it was listed."""

    def fetch(span: ExtentSpan) -> bytes:
        data = prefix.read(span.extent.name)
        if data is None:
            raise StoreError(f"{span.extent.name} is gone from the store since it was listed; try again")
        if hashlib.sha256(data).hexdigest() != span.extent.sha256:
            raise StoreError(f"{span.extent.name} is damaged in the store: its hash is another; restore it, or remove it")
        return data[: span.end - span.extent.start]

    if len(spans) < 2:
        return b"".join(map(fetch, spans))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return b"".join(pool.map(fetch, spans))
