"""The set of game numbers a run has stored: dense from 1, so a bit each."""

from __future__ import annotations

_PAGE_BITS = 1 << 16


class UidSet:
    """A set of positive integers in pages of bits, so that a stray large number costs one page and a million games 128 KiB."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._count = 0

    def add(self, uid: int) -> bool:
        """Adds a number; False when it was there. Raises `ValueError` below 1."""
        if uid < 1:
            raise ValueError(f"game number {uid} is below 1")
        page, bit = divmod(uid, _PAGE_BITS)
        bits = self._pages.setdefault(page, bytearray(_PAGE_BITS // 8))
        if bits[bit >> 3] >> (bit & 7) & 1:
            return False
        bits[bit >> 3] |= 1 << (bit & 7)
        self._count += 1
        return True

    @property
    def highest(self) -> int:
        """The largest number; 0 where there is none."""
        return max((page * _PAGE_BITS + int.from_bytes(bits, "little").bit_length() - 1 for page, bits in self._pages.items()), default=0)

    def gaps(self, last: int) -> list[tuple[int, int]]:
        """The numbers from 1 to `last` that are not in the set, as spans (first, last) in ascending order."""
        found: list[tuple[int, int]] = []
        for page in range(last // _PAGE_BITS + 1):
            bits = self._pages.get(page, bytes(_PAGE_BITS // 8))
            low, high = max(1, page * _PAGE_BITS), min(last, (page + 1) * _PAGE_BITS - 1)
            if bits.count(0xFF) == len(bits):
                continue
            for uid in range(low, high + 1):
                bit = uid % _PAGE_BITS
                if bits[bit >> 3] >> (bit & 7) & 1:
                    continue
                if found and found[-1][1] == uid - 1:
                    found[-1] = found[-1][0], uid
                else:
                    found.append((uid, uid))
        return found

    def __contains__(self, uid: int) -> bool:
        page, bit = divmod(uid, _PAGE_BITS)
        bits = self._pages.get(page)
        return bits is not None and bool(bits[bit >> 3] >> (bit & 7) & 1)

    def __len__(self) -> int:
        return self._count
