"""The set of game numbers a run has stored: dense from 1, so a bit each."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_PAGE_SHIFT = 16
_PAGE = 1 << _PAGE_SHIFT  # numbers
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
        bits = self._pages.get(uid >> _PAGE_SHIFT)
        if bits is None:
            bits = self._pages[uid >> _PAGE_SHIFT] = bytearray(_PAGE_BYTES)
        place, bit = (uid & 0xFFFF) >> 3, 1 << (uid & 7)
        if bits[place] & bit:
            return False
        bits[place] |= bit
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
        found: list[tuple[int, int]] = []
        for page in range(last // _PAGE + 1):
            bits = self._pages.get(page, bytes(_PAGE_BYTES))
            low, high = max(1, page * _PAGE), min(last, (page + 1) * _PAGE - 1)
            if bits.count(0xFF) == len(bits):
                continue
            for uid in range(low, high + 1):
                bit = uid % _PAGE
                if bits[bit >> 3] >> (bit & 7) & 1:
                    continue
                if found and found[-1][1] == uid - 1:
                    found[-1] = found[-1][0], uid
                else:
                    found.append((uid, uid))
        return found

    def __contains__(self, uid: int) -> bool:
        bits = self._pages.get(uid >> _PAGE_SHIFT)
        return bits is not None and bool(bits[(uid & 0xFFFF) >> 3] >> (uid & 7) & 1)

    def __len__(self) -> int:
        return self._count


def pack(uids: NDArray[np.uint64]) -> dict[int, bytes]:
    """Numbers as compressed pages of bits: what a segment's index holds."""
    packed = {}
    pages = uids >> np.uint64(_PAGE_SHIFT)
    for page in np.unique(pages).tolist():
        bits = np.zeros(1 << _PAGE_SHIFT, np.uint8)
        bits[uids[pages == page] & np.uint64(0xFFFF)] = 1
        packed[page] = zlib.compress(np.packbits(bits, bitorder="little").tobytes(), 1)
    return packed


def packed_has(pages: Mapping[int, bytes], uid: int) -> bool:
    """True when a packed set has a number; only its page is unpacked."""
    packed = pages.get(uid >> _PAGE_SHIFT)
    return packed is not None and bool(zlib.decompress(packed)[(uid & 0xFFFF) >> 3] >> (uid & 7) & 1)
