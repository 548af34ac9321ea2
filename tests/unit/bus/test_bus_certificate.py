"""The certificate that brokers of a host show."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509

from azq.bus import certificate


def test_it_is_made_once_and_its_key_is_private(tmp_path: Path) -> None:
    made = certificate.ensure(tmp_path / "tls", "192.168.0.5")
    texts = [path.read_text() for path in made]
    assert certificate.ensure(tmp_path / "tls", "another") == made
    assert [path.read_text() for path in made] == texts
    assert made[1].stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "tls").stat().st_mode & 0o777 == 0o700


def test_a_half_of_it_is_replaced_whole(tmp_path: Path) -> None:
    first, key = certificate.ensure(tmp_path, "first")
    before = first.read_text()
    key.unlink()
    certificate.ensure(tmp_path, "first")
    assert first.read_text() != before


def test_it_names_the_host_lasts_ten_years_and_signs_no_other() -> None:
    found = x509.load_pem_x509_certificate(certificate.make(("192.168.0.5", "first")).certificate.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("192.168.0.5")]
    assert names.get_values_for_type(x509.DNSName) == ["first"]
    assert found.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3650)
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert found.issuer == found.subject
