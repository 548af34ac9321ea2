"""The copy that rank 0 keeps of what was dealt out among ranks: what any of them held is lost with it."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

Entry = tuple[str, torch.Size, torch.dtype, int]  # name, shape, type and place of a tensor


class SpareCopy:
    """Tensors in a file without a name, which is gone with the process, and not in memory, which they are dealt out to save."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder  # None: where temporary files are
        self._file: IO[bytes] | None = None
        self._entries: list[Entry] = []
        self.step = 0

    def write(self, tensors: Iterable[tuple[str, Tensor]], step: int) -> None:
        """Takes the place of the copy before, once it is whole. Raises `RuntimeError` where the disk takes no more."""
        with contextlib.ExitStack() as stack:
            try:
                file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile(dir=self._folder, prefix="azq-ranks-"))
                entries: list[Entry] = []
                for name, tensor in tensors:
                    entries.append((name, tensor.shape, tensor.dtype, file.tell()))
                    file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
                file.flush()
            except OSError as error:
                where = self._folder or tempfile.gettempdir()
                raise RuntimeError(f"{where} takes no copy of what ranks hold: {error.strerror}; make room") from None
            self.close()
            self._file, self._entries, self.step = file, entries, step
            stack.pop_all()

    def read(self) -> dict[str, Tensor]:
        """The tensors, as long as they are used; the disk's own, so do not write to them."""
        if self._file is None:
            raise RuntimeError("nothing was dealt out yet")
        memory = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
        return {name: _tensor(memory, shape, kind, place) for name, shape, kind, place in self._entries}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _tensor(memory: mmap.mmap, shape: torch.Size, kind: torch.dtype, place: int) -> Tensor:
    numbers = shape.numel()
    if not numbers:
        return torch.empty(shape, dtype=kind)
    width = torch.empty(0, dtype=kind).element_size()
    return torch.frombuffer(memory, dtype=torch.uint8, count=numbers * width, offset=place).clone().view(kind).view(shape)
