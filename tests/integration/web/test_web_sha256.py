"""sha256.js against Python's."""

from __future__ import annotations

import hashlib
import json

from nodejs import WEB, needs_node, node

SIZES = (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 100_000)

pytestmark = needs_node


def test_hashes_are_pythons():
    script = f"""
        import {{ sha256 }} from "{WEB}/sha256.js";
        const bytes = (size) => Uint8Array.from({{ length: size }}, (_, i) => (i * 31 + size) & 255);
        console.log(JSON.stringify({list(SIZES)}.map((size) => sha256(bytes(size)))));
    """
    assert json.loads(node(script)) == [hashlib.sha256(bytes((i * 31 + size) & 255 for i in range(size))).hexdigest() for size in SIZES]
