"""The certificate with which this host's brokers answer other machines: signed by itself, known by its fingerprint."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from azq.errors import ConfigError
from azq.files import publish_file

if TYPE_CHECKING:
    from cryptography import x509

LIFE = datetime.timedelta(days=3652)
CERTIFICATE, KEY = "certificate.pem", "key.pem"


@dataclass(frozen=True, slots=True)
class Pair:
    """Certificate and key as PEM texts; the key is a secret."""

    certificate: str
    key: str


def ensure(folder: Path, host: str) -> tuple[Path, Path]:
    """The files of certificate and key in a folder, made where they are not there yet. Raises `ConfigError`.

    Delete both to have new ones: machines that joined before must then join again.
    """
    certificate, key = folder / CERTIFICATE, folder / KEY
    if certificate.exists() and key.exists():
        return certificate, key
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        pair = make(names_of(host))
        publish_file(key, pair.key.encode(), 0o600)
        publish_file(certificate, pair.certificate.encode())
    except OSError as error:
        raise ConfigError(f"cannot write the brokers' certificate to {folder}: {error.strerror}; set another home") from None
    return certificate, key


def names_of(host: str) -> tuple[str, ...]:
    """The names that a host's brokers are reached by: where they listen, and the machine's own."""
    return tuple(dict.fromkeys((host, socket.gethostname())))


def make(names: tuple[str, ...]) -> Pair:
    """A new certificate for hosts and addresses, good for ten years, that may sign no other: it vouches for this server alone."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "azq broker")])
    now = datetime.datetime.now(datetime.UTC)
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign", "encipher_only",
         "decipher_only"), False,
    )  # fmt: skip
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.KeyUsage(digital_signature=True, **usage), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName([_general(name_) for name_ in names]), False),
        (identifier, False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False),
    )
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + LIFE)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    encoding = serialization.Encoding.PEM
    secret = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(builder.sign(key, hashes.SHA256()).public_bytes(encoding).decode(), secret.decode())


def _general(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
