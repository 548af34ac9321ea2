"""The set of game numbers a run has stored: dense from 1, so a bit each."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_PAGE = 1 << 16  # numbers
_PAGE_BYTES = _PAGE // 8


class UidSet:
    """A set of positive integers in pages of bits, so that a stray large number costs one page and a million games 128 KiB."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._count = 0

    def add(self, uid: int) -> bool:
        """Adds a number; False when it was there. Raises `ValueError` below 1."""
        if uid < 1:
            raise ValueError(f"game number {uid} is below 1")
        if uid in self:
            return False
        page, byte, bit = _place(uid)
        self._pages.setdefault(page, bytearray(_PAGE_BYTES))[byte] |= 1 << bit
        self._count += 1
        return True

    def merge(self, pages: Mapping[int, bytes]) -> bool:
        """Adds a packed set; False, and nothing added, where they share a number. Raises `zlib.error` or `OverflowError` for damage."""
        joined, added = {}, 0
        for page, packed in pages.items():
            mine, theirs = int.from_bytes(self._pages.get(page, b""), "little"), int.from_bytes(zlib.decompress(packed), "little")
            if mine & theirs:
                return False
            joined[page] = bytearray((mine | theirs).to_bytes(_PAGE_BYTES, "little"))
            added += theirs.bit_count()
        self._pages.update(joined)
        self._count += added
        return True

    @property
    def highest(self) -> int:
        """The largest number; 0 where there is none."""
        return max((page * _PAGE + int.from_bytes(bits, "little").bit_length() - 1 for page, bits in self._pages.items()), default=0)

    def gaps(self, last: int) -> list[tuple[int, int]]:
        """The numbers from 1 to `last` that are not in the set, as spans (first, last) in ascending order."""
        packed = b"".join(self._pages.get(page, bytes(_PAGE_BYTES)) for page in range(last // _PAGE + 1))
        there = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little").view(np.int8)
        there[0] = 1  # no number: a game's is 1 or more
        steps = np.diff(there[: last + 1], append=np.int8(1))
        return list(zip((np.flatnonzero(steps < 0) + 1).tolist(), np.flatnonzero(steps > 0).tolist(), strict=True))

    def __contains__(self, uid: int) -> bool:
        page, byte, bit = _place(uid)
        return page in self._pages and bool(self._pages[page][byte] >> bit & 1)

    def __len__(self) -> int:
        return self._count


def pack(uids: NDArray[np.uint64]) -> dict[int, bytes]:
    """Numbers as compressed pages of bits: what a segment's index holds."""
    packed = {}
    pages, places = np.divmod(uids, np.uint64(_PAGE))
    for page in np.unique(pages).tolist():
        bits = np.zeros(_PAGE, np.bool_)
        bits[places[pages == page]] = True
        packed[page] = zlib.compress(np.packbits(bits, bitorder="little").tobytes())
    return packed


def packed_has(pages: Mapping[int, bytes], uid: int) -> bool:
    """True when a packed set has a number; only its page is unpacked."""
    page, byte, bit = _place(uid)
    return page in pages and bool(zlib.decompress(pages[page])[byte] >> bit & 1)


def _place(uid: int) -> tuple[int, int, int]:
    """Page, byte of it, bit of that."""
    page, bit = divmod(uid, _PAGE)
    return page, bit // 8, bit % 8
