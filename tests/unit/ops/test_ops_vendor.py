"""ops/vendor.py: nothing is copied of an archive that is not the pinned one."""

from __future__ import annotations

import gzip
import io
import json
import tarfile

import pytest
import vendor

SCRIPT = b"module.exports = { one: 1 };\n//# sourceMappingURL=x.js.map"


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """An npm archive, and a folder that pins it."""
    path, folder = tmp_path / "p.tgz", tmp_path / "vendor"
    folder.mkdir()
    with tarfile.open(path, "w:gz") as packed:
        member = tarfile.TarInfo("package/dist/a.js")
        member.size = len(SCRIPT)
        packed.addfile(member, io.BytesIO(SCRIPT))
    files = {"a.js.gz": {"from": "dist/a.js"}, "a.mjs": {"from": "dist/a.js", "module": ["one"]}}
    pins = {"p": {"version": "1.0.0", "integrity": vendor.integrity_of(path.read_bytes()), "files": files}}
    monkeypatch.setattr(vendor, "FOLDER", folder)
    monkeypatch.setattr(vendor, "PINS", folder / "vendor.json")
    vendor.PINS.write_text(json.dumps(pins))
    return path


def test_files_are_copied_packed_and_made_modules(archive):
    vendor.main([str(archive)])
    assert gzip.decompress((vendor.FOLDER / "a.js.gz").read_bytes()) == SCRIPT
    text = (vendor.FOLDER / "a.mjs").read_text()
    assert "sourceMappingURL" not in text
    assert text.endswith("export const { one } = module.exports;\n")
    assert all(len(about["sha256"]) == 64 for about in json.loads(vendor.PINS.read_text())["p"]["files"].values())


def test_another_archive_is_refused(archive):
    archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(SystemExit, match="pinned integrity"):
        vendor.main([str(archive)])
    assert [path.name for path in vendor.FOLDER.iterdir()] == ["vendor.json"]
