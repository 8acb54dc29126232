"""A CA and certificates for tests, with ECDSA keys (P-256)."""

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from libs.testing.nats import KeyPair

LOOPBACK = ("127.0.0.1", "localhost")
_DAY = datetime.timedelta(days=1)


class CertificateAuthority:
    """A CA; authorities of the same name do not trust each other's certificates."""

    def __init__(self, name: str = "CA of the tests") -> None:
        self._name = _common_name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            self._builder(self._name, self._key.public_key(), days=(-3650, 3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(Encoding.PEM)

    def write(self, file: Path) -> Path:
        """Write the CA's certificate; an existing file is replaced at once."""
        _replace(file, self.pem)
        return file

    def issue(
        self,
        folder: Path,
        name: str,
        *,
        names: tuple[str, ...] = LOOPBACK,
        days: tuple[int, int] = (-1, 365),
    ) -> KeyPair:
        """Write `name`.pem and `name`.key, for a server or a client; existing files are replaced.

        `days` are the beginning and the end of the certificate's life, counted from now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._builder(_common_name(name), key.public_key(), days=days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(map(_general_name, names)), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = KeyPair(folder / f"{name}.pem", folder / f"{name}.key")
        _replace(pair.cert_file, certificate.public_bytes(Encoding.PEM))
        _replace(
            pair.key_file,
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, days: tuple[int, int]
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * _DAY)
            .not_valid_after(now + days[1] * _DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _replace(file: Path, content: bytes) -> None:
    new = file.with_name(f".{file.name}.new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    os.replace(new, file)
