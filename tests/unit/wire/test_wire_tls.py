"""What a client trusts, and what no address can talk it out of."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from azq.bus import certificate
from azq.config import load
from azq.config.host import plain, trusting
from azq.errors import ConfigError
from azq.queue import VerifiedTransport, make_app
from azq.wire import tls
from azq.wire.connect import address, address_of, open_client
from azq.wire.tls import VerifiedConnection


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One server's own certificate."""
    return certificate.ensure(tmp_path_factory.mktemp("tls"), "127.0.0.1")[0]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    pair = x509.load_pem_x509_certificate(certificate.make(("first",)).certificate.encode())
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(pair.not_valid_before_utc)
        .not_valid_after(pair.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


def test_one_servers_certificate_pins_it_and_needs_no_name(own: Path, authority: Path) -> None:
    assert tls.pins(str(own))
    assert not tls.pins(str(authority))
    pinned, named = tls.context_for(str(own)), tls.context_for(str(authority))
    assert (pinned.check_hostname, named.check_hostname, tls.context_for(None).check_hostname) == (False, True, True)
    for context in (pinned, named, tls.context_for(None)):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_an_authority_beside_the_certificate_brings_names_back(own: Path, authority: Path, tmp_path: Path) -> None:
    (tmp_path / "both.pem").write_text(own.read_text() + authority.read_text())
    assert tls.context_for(str(tmp_path / "both.pem")).check_hostname
    assert not tls.pins(str(tmp_path / "both.pem"))


def test_the_file_is_all_that_is_trusted(own: Path, authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))  # the system's authorities, as OpenSSL is told of them
    assert tls.context_for(None).cert_store_stats()["x509_ca"] >= 1
    assert tls.context_for(str(own)).cert_store_stats() == {"x509": 1, "crl": 0, "x509_ca": 0}


def test_the_fingerprint_is_that_of_the_certificate_whatever_stands_before_it(own: Path) -> None:
    der = x509.load_pem_x509_certificate(own.read_bytes()).public_bytes(serialization.Encoding.DER)
    assert tls.fingerprint("a note\n" + own.read_text()) == hashlib.sha256(der).hexdigest()


def test_settings_put_the_file_into_every_address_that_speaks_tls(own: Path) -> None:
    urls = ['broker.control_url="rediss://:pw@first:6379/0"', 'broker.data_urls=["rediss://first:6380/0", "redis://near:6380/0"]']
    broker = load(overrides=[*urls, f'broker.tls_ca="{own}"']).broker
    assert broker.control_url == f"rediss://:pw@first:6379/0?ssl_ca_certs={own}"
    assert broker.data_urls == (f"rediss://first:6380/0?ssl_ca_certs={own}", "redis://near:6380/0")
    again = type(broker).model_validate(broker.model_dump(mode="json"))  # as children get it
    assert again == broker
    assert address(broker.control_url) == "rediss://first:6379/0"
    assert plain(broker.control_url) == "rediss://:pw@first:6379/0"
    assert trusting("unix:///run/a.sock", "/x.pem") == "unix:///run/a.sock"


def test_both_clients_take_the_file_and_verify(own: Path) -> None:
    url = trusting("rediss://:pw@first:6379/0", str(own))
    client = open_client(url)
    assert client.connection_pool.connection_class is VerifiedConnection
    assert client.connection_pool.connection_kwargs["ssl_ca_certs"] == str(own)
    assert address_of(client) == "rediss://first:6379/0"
    with make_app(url).connection() as connection:
        assert connection.ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": str(own)}
        assert connection.transport_cls is VerifiedTransport
    with make_app("rediss://first:6379/0").connection() as connection:  # kombu alone would ask for no certificate
        assert connection.ssl["ssl_cert_reqs"] is ssl.CERT_REQUIRED


@pytest.mark.parametrize("option", ["ssl_cert_reqs=none", "ssl_check_hostname=false", "ssl_ca_path=/tmp", "ssl_min_version=1"])
def test_no_address_weakens_the_check(option: str) -> None:
    with pytest.raises(ConfigError, match="always verified"):
        open_client(f"rediss://first:6379/0?{option}")
    with pytest.raises(ConfigError, match="always verified"):
        make_app(f"rediss://first:6379/0?{option}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for path in (tmp_path / "none.pem", tmp_path / "empty.pem"):
        with pytest.raises(ConfigError, match=str(path)):
            open_client(trusting("rediss://first:6379/0", str(path)))
