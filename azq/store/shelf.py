"""Objects by name below one place of a store: what of a run is kept there besides its weights."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from azq.config import StoreConfig
from azq.errors import ConfigError, StoreError
from azq.files import below, make_folders, publish_file
from azq.store.pieces import Piece, PieceSpan, WriterClaim, by_file, writers_in
from azq.store.remote import Remote

AT_ONCE = 8  # objects that are fetched side by side
FILE = "file://"


class Shelf(Protocol):
    """Objects that are written once, whole, under names with slashes. Every method raises `StoreError`."""

    def names(self, folder: str = "") -> list[str]:
        """All objects below a folder."""

    def folders(self) -> list[str]:
        """The folders directly on it."""

    def write(self, name: str, data: bytes) -> None:
        """Returns once it is durable."""

    def read(self, name: str) -> bytes | None: ...
    def remove(self, name: str) -> None:
        """Forgets an object; one that is gone is passed over."""


class FolderShelf(Shelf):
    """Files of a folder, such as one that hosts share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self, folder: str = "") -> list[str]:
        try:
            found = [Path(place, name) for place, _, files in os.walk(self._directory / folder) for name in files]
        except OSError as error:
            raise StoreError(f"{self._directory} cannot be listed: {error.strerror}; mend its rights") from None
        return sorted(str(path.relative_to(self._directory)) for path in found if path.suffix != ".tmp")

    def folders(self) -> list[str]:
        try:
            return sorted(path.name for path in self._directory.iterdir() if path.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"{self._directory} cannot be listed: {error.strerror}; mend its rights") from None

    def write(self, name: str, data: bytes) -> None:
        path = below(self._directory, name)
        try:
            make_folders(path.parent)
            publish_file(path, data)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}; free space or mend its rights") from None

    def read(self, name: str) -> bytes | None:
        path = below(self._directory, name)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}; mend its rights") from None

    def remove(self, name: str) -> None:
        path = below(self._directory, name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot delete {path}: {error.strerror}; mend its rights") from None


class RemoteShelf(Shelf):
    """Objects behind fsspec."""

    def __init__(self, place: Remote) -> None:
        self._place = place

    def names(self, folder: str = "") -> list[str]:
        return self._place.names(folder)

    def folders(self) -> list[str]:
        return self._place.folders()

    def write(self, name: str, data: bytes) -> None:
        self._place.write_object(name, data)

    def read(self, name: str) -> bytes | None:
        return self._place.read_object(name)

    def remove(self, name: str) -> None:
        self._place.remove_object(name)


def open_shelf(settings: StoreConfig, folder: str) -> Shelf | None:
    """The shelf of a run, below `folder` of its store; None where the store keeps weights alone.

    Raises `ConfigError` for a store that can keep no more, and what `azq.store.open_store` raises.
    """
    is_place = "://" in settings.url and not settings.url.startswith("memory://")
    if settings.keep == "weights" or (settings.keep == "auto" and not is_place):
        return None
    if "://" not in settings.url:
        raise ConfigError(f"store.keep is {settings.keep}, and store.url {settings.url} keeps weights alone; set a bucket or a file:// URL")
    base = f"{settings.url.rstrip('/')}/{folder}"
    if base.startswith(FILE):
        return FolderShelf(Path(base.removeprefix(FILE)))
    return RemoteShelf(Remote(base, settings.revealed_options(), settings.timeout_s))


@dataclass(frozen=True, slots=True)
class Listing:
    """What is on a shelf at one moment."""

    files: dict[str, list[Piece]]  # that count
    newest_writer: int
    claim: WriterClaim


def look(shelf: Shelf) -> Listing:
    """All of a shelf, in one listing. Raises `StoreError`."""
    names = shelf.names()
    newest, claimed = writers_in(names)
    claim = WriterClaim(claimed)
    if claimed:
        data = shelf.read(claim.name)
        try:
            claim = WriterClaim(claimed, msgspec.json.decode(data or b"", type=frozenset[int]))
        except msgspec.DecodeError as error:
            raise StoreError(f"{claim.name} in the store says nothing ({error}); another learner may just have begun: try again") from None
    return Listing(by_file(names, claim), newest, claim)


def stake(shelf: Shelf, claim: WriterClaim, before: WriterClaim) -> None:
    """Makes a claim, in place of the one before."""
    shelf.write(claim.name, msgspec.json.encode(sorted(claim.goes_on_from)))
    if before.writer:
        shelf.remove(before.name)


def piece_for(file: str, writer: int, start: int, of: int, data: bytes) -> Piece:
    return Piece(file, writer, start, start + len(data), of, hashlib.sha256(data).hexdigest())


def read_spans(shelf: Shelf, spans: Sequence[PieceSpan]) -> bytes:
    """The bytes that spans give, each piece verified. Raises `StoreError` for one that is damaged, or gone since it was listed."""

    def fetch(span: PieceSpan) -> bytes:
        data = shelf.read(span.piece.name)
        if data is None:
            raise StoreError(f"{span.piece.name} is gone from the store since it was listed; try again")
        if hashlib.sha256(data).hexdigest() != span.piece.sha256:
            raise StoreError(f"{span.piece.name} is damaged in the store: its hash is another; restore it, or remove it")
        return data[: span.end - span.piece.start]

    if len(spans) < 2:
        return b"".join(map(fetch, spans))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return b"".join(pool.map(fetch, spans))
