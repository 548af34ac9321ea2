"""TLS files of the REST interface: what serves, and what is refused before anything starts."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from rest_site import RestSite

from azq.config import DaemonConfig
from azq.config.access import check_tls
from azq.errors import ConfigError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", *curve, *name, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def test_requests_are_answered_over_tls_and_not_without(pair: tuple[Path, Path]) -> None:
    certificate, key = pair
    site = RestSite(port=0, tls_certificate=certificate, tls_key=key)
    check_tls(site.config)
    with site.serving() as url:
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(certificate))
        assert httpx2.get(f"{url}/v1/runs", verify=trusted).json() == []
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{url}/v1/runs")  # no authority vouches for this certificate
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{url.replace('https', 'http', 1)}/v1/runs")


@pytest.mark.parametrize("broken", ["tls_certificate", "tls_key"])
def test_a_missing_or_damaged_file_is_named(pair: tuple[Path, Path], tmp_path: Path, broken: str) -> None:
    sound: dict[str, Any] = dict(zip(("tls_certificate", "tls_key"), pair, strict=True))
    with pytest.raises(ConfigError, match=rf"daemon\.{broken}: .*absent\.pem"):
        check_tls(DaemonConfig(**{**sound, broken: tmp_path / "absent.pem"}))
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no PEM")
    with pytest.raises(ConfigError, match=r"garbage\.pem"):
        check_tls(DaemonConfig(**{**sound, broken: garbage}))


def test_a_locked_key_and_a_pair_that_does_not_match_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key = pair
    locked, other = tmp_path / "locked.pem", tmp_path / "other.pem"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked], check=True, capture_output=True)
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", other], check=True, capture_output=True)
    for wrong in (locked, other):
        with pytest.raises(ConfigError, match=wrong.name):
            check_tls(DaemonConfig(tls_certificate=certificate, tls_key=wrong))
