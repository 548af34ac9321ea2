"""What browsers load that others wrote: fetched from npm at a pinned version, checked, and copied with its licence to azq/web/vendor.

Usage: vendor.py            fetches with `npm pack` all that azq/web/vendor/vendor.json pins, and writes what is copied
       vendor.py PACKAGE..  from these archives (.tgz) instead, without npm

`vendor.json` is the list: of each package its version and the sha512 of its archive, of each file where it lies there and its sha256
here, unpacked. A file that ends in `.gz` is kept packed; one with `module` becomes an ES module that exports these names.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "azq" / "web" / "vendor"
PINS = FOLDER / "vendor.json"


def main(archives: list[str]) -> None:
    """Writes every file of every package; exits where an archive is not the pinned one."""
    pins = json.loads(PINS.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        given = [Path(path) for path in archives] or [_packed(name, pin["version"], Path(folder)) for name, pin in pins.items()]
        for name, pin in pins.items():
            archive = find(pin["integrity"], given)
            if archive is None:
                sys.exit(f"vendor.py: no archive of {name} {pin['version']} has the pinned integrity {pin['integrity']}; nothing is copied")
            _copy(archive, pin["files"])
    PINS.write_text(json.dumps(pins, indent=2) + "\n", "utf-8")
    total = sum(path.stat().st_size for path in FOLDER.iterdir())
    print(f"{FOLDER}: {total / 1e6:.2f} MB")


def find(integrity: str, archives: Iterable[Path]) -> Path | None:
    """The archive that has this integrity, as npm writes it."""
    return next((path for path in archives if integrity_of(path.read_bytes()) == integrity), None)


def integrity_of(data: bytes) -> str:
    """As npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def as_module(script: bytes, exports: list[str]) -> bytes:
    """A script that knows CommonJS, as an ES module."""
    body = re.sub(rb"//# sourceMappingURL=.*", b"", script)
    head = b"const module = { exports: {} }, exports = module.exports;\n"
    return head + body + f"export const {{ {', '.join(exports)} }} = module.exports;\n".encode()


def _packed(name: str, version: str, folder: Path) -> Path:
    done = subprocess.run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=folder, capture_output=True, text=True, check=True)
    return folder / done.stdout.split()[-1]


def _copy(archive: Path, files: dict[str, dict[str, Any]]) -> None:
    with tarfile.open(archive) as packed:
        for name, about in files.items():
            member = packed.extractfile(f"package/{about['from']}")
            assert member is not None, f"{about['from']} is no file"
            data = member.read()
            if "module" in about:
                data = as_module(data, about["module"])
            about["sha256"] = hashlib.sha256(data).hexdigest()
            (FOLDER / name).write_bytes(gzip.compress(data, 9, mtime=0) if name.endswith(".gz") else data)


if __name__ == "__main__":
    main(sys.argv[1:])
