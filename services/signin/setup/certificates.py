"""The CA of NATS's servers and their certificate. Pure except for the random keys.

A CA that is renewed keeps its key and its name. So the old and the new certificate of the CA verify
the same servers, and neither clients nor servers need to change at the same moment.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE: Final = timedelta(days=3650)
SERVER_LIFE: Final = timedelta(days=1095)
CLOCKS_DIFFER: Final = timedelta(hours=1)
"""How far the clocks of a cluster may be behind the clock that sets the beginning of a life."""

_NAME: Final = "Sluice NATS CA"
_NO_USAGE: Final = {
    "content_commitment": False,
    "key_encipherment": False,
    "data_encipherment": False,
    "key_agreement": False,
    "encipher_only": False,
    "decipher_only": False,
}


class NotAPair(ValueError):
    """The texts are not a certificate and its private key. It never contains them."""


class Pem(msgspec.Struct, frozen=True):
    """A certificate and its private key, which is secret."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Pem(…)"


def new_authority(*, now: float) -> Pem:
    """Return a new CA."""
    return _authority(ec.generate_private_key(ec.SECP256R1()), now=now)


def renewed_authority(ca: Pem, *, now: float) -> Pem:
    """Return this CA, renewed once half of its life is over."""
    certificate, key = _read(ca)
    return ca if _is_young(certificate, now=now) else _authority(key, now=now)


def new_server(ca: Pem, names: tuple[str, ...], *, now: float) -> Pem:
    """Return a new certificate for servers with these names, which connect to each other too."""
    authority, ca_key = _read(ca)
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(names[0], authority.subject, key, ca_key, now=now, life=SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(x509.DNSName, names)), critical=False)
    )
    return _pem(builder.sign(ca_key, hashes.SHA256()), key)


def is_right(server: Pem, ca: Pem, names: tuple[str, ...], *, now: float) -> bool:
    """Return whether this CA signed the certificate, for these names, in half a life at most."""
    try:
        certificate, _ = _read(server)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        certificate.verify_directly_issued_by(_read(ca)[0])
    except (NotAPair, x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        return False
    named = extension.value.get_values_for_type(x509.DNSName)
    return set(named) == set(names) and _is_young(certificate, now=now)


def _authority(key: ec.EllipticCurvePrivateKey, *, now: float) -> Pem:
    usage = x509.KeyUsage(digital_signature=False, key_cert_sign=True, crl_sign=True, **_NO_USAGE)
    builder = (
        _builder(_NAME, _common_name(_NAME), key, key, now=now, life=CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _pem(builder.sign(key, hashes.SHA256()), key)


def _builder(
    subject: str,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    ca_key: ec.EllipticCurvePrivateKey,
    *,
    now: float,
    life: timedelta,
) -> x509.CertificateBuilder:
    begin = datetime.fromtimestamp(now, UTC) - CLOCKS_DIFFER
    of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(of_issuer, critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pem:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Pem(certificate.public_bytes(Encoding.PEM).decode(), private.decode())


def _read(pem: Pem) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pem.certificate.encode())
        key = load_pem_private_key(pem.key.encode(), password=None)
    except (ValueError, TypeError):
        raise NotAPair("they are not PEM texts of a certificate and its key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise NotAPair("the key is none of an elliptic curve")
    if certificate.public_key() != key.public_key():
        raise NotAPair("the key is not that of the certificate")
    return certificate, key


def _is_young(certificate: x509.Certificate, *, now: float) -> bool:
    """Return whether a certificate's life has begun, and less than half of it is over."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin <= datetime.fromtimestamp(now, UTC) < begin + (end - begin) / 2
