"""What others wrote is what vendor.json pins, little enough, and comes with its licences."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest
from nodejs import WEB

VENDOR = WEB / "vendor"
PINS = json.loads((VENDOR / "vendor.json").read_text())
FILES = {name: about for pin in PINS.values() for name, about in pin["files"].items()}
LICENCES = {"ort.LICENSE", "msgpack.LICENSE"}


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_the_pinned_one(name):
    data = (VENDOR / name).read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    assert hashlib.sha256(data).hexdigest() == FILES[name]["sha256"]


def test_nothing_else_lies_there_and_all_of_it_is_small():
    found = {path.name: path.stat().st_size for path in VENDOR.iterdir()}
    assert set(found) == {*FILES, *LICENCES, "vendor.json"}
    assert sum(found.values()) <= 9e6
