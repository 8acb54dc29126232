"""Verify the signature of a token with the issuer's public keys. Pure.

Only asymmetric algorithms are accepted, and each key is for one: the token's header chooses neither
key type nor algorithm.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from services.signin.claims import Cause, Refused, shown

MAX_TOKEN: Final = 16 * 1024
"""Bytes of a token; the API server writes about 1 KiB."""
ALGORITHMS: Final = ("RS256", "ES256", "ES384")
MAX_KEYS: Final = 64
_RSA_BITS: Final = (2048, 8192)
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384"}

_registry = jws.JWSRegistry(algorithms=ALGORITHMS)
_registry.max_signature_length = 2048


class NoKeys(ValueError):
    """A document holds no key that can be used; the text says why."""


class Key(msgspec.Struct, frozen=True):
    """A public key and the one algorithm that it is for."""

    algorithm: str
    public: RSAKey | ECKey


Keys = Mapping[str, Key]
"""By key id."""


class UnknownKey(msgspec.Struct, frozen=True):
    """The token is signed with a key that is not among those given."""

    key_id: str


class _Jwk(msgspec.Struct, frozen=True):
    kty: str
    kid: str = ""
    alg: str = ""
    use: str = ""
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""


class _Jwks(msgspec.Struct, frozen=True):
    keys: tuple[_Jwk, ...]


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    alg: str
    kid: str = ""
    typ: str = ""


def parse_keys(document: bytes) -> Keys:
    """Return the usable keys of a JWKS document; raise `NoKeys` if there is none."""
    try:
        listed = msgspec.json.decode(document, type=_Jwks).keys
    except (ValueError, RecursionError) as error:
        raise NoKeys(f"it is not a set of JSON web keys: {error}") from None
    keys: dict[str, Key] = {}
    problems: list[str] = []
    for jwk in listed[:MAX_KEYS]:
        try:
            keys.setdefault(jwk.kid, _key(jwk))
        except ValueError as error:
            problems.append(f"key {shown(jwk.kid)!r} {error}")
    if not keys:
        raise NoKeys(f"it holds no usable key: {'; '.join(problems) or 'it is empty'}")
    return keys


def verify(token: str, keys: Keys) -> bytes | Refused | UnknownKey:
    """Return the payload of a token whose signature is valid."""
    parts = _parts(token)
    if isinstance(parts, Refused):
        return parts
    signed, header = parts
    if header.alg not in ALGORITHMS:
        return Refused(
            Cause.ALGORITHM,
            f"the token is signed with {shown(header.alg)!r}: only {', '.join(ALGORITHMS)} are"
            " accepted",
        )
    if not header.kid:
        return Refused(Cause.UNKNOWN_KEY, "the token does not name the key that signed it")
    key = keys.get(header.kid)
    if key is None:
        return UnknownKey(header.kid)
    if key.algorithm != header.alg:
        return Refused(
            Cause.ALGORITHM,
            f"the token names the algorithm {header.alg}, but its key is for {key.algorithm}",
        )
    try:
        valid = jws.validate_compact(signed, key.public, registry=_registry)
    except (JoseError, ValueError) as error:
        return Refused(Cause.MALFORMED, f"the token cannot be verified: {shown(str(error))}")
    if not valid:
        return Refused(Cause.SIGNATURE, "the token's signature is wrong: it was forged or changed")
    return signed.payload


def unverified_payload(token: str) -> bytes:
    """Return what the token claims, for a log line only; empty if it is no token."""
    parts = _parts(token)
    return b"" if isinstance(parts, Refused) else parts[0].payload


def _parts(token: str) -> tuple[jws.CompactSignature, _Header] | Refused:
    if len(token) > MAX_TOKEN:
        return Refused(
            Cause.MALFORMED, f"the token has {len(token)} bytes: at most {MAX_TOKEN} are read"
        )
    if not token:
        return Refused(Cause.MALFORMED, "the client sent no token")
    try:
        signed = jws.extract_compact(token.encode("ascii"), registry=_registry)
        return signed, msgspec.convert(signed.protected, _Header)
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        return Refused(Cause.MALFORMED, f"it is not a signed token: {shown(str(error))}")


def _key(jwk: _Jwk) -> Key:
    if jwk.use not in ("", "sig"):
        raise ValueError(f"is for the use {shown(jwk.use)!r}")
    if not jwk.kid:
        raise ValueError("has no id")
    algorithm = "RS256" if jwk.kty == "RSA" else _CURVES.get(jwk.crv) if jwk.kty == "EC" else None
    if algorithm is None or jwk.alg not in ("", algorithm):
        named = " ".join(filter(None, (jwk.kty, jwk.crv, jwk.alg)))
        raise ValueError(f"is for {shown(named)!r}, not for {', '.join(ALGORITHMS)}")
    fields: Any = {"kty": jwk.kty, "n": jwk.n, "e": jwk.e}
    if jwk.kty == "EC":
        fields = {"kty": jwk.kty, "crv": jwk.crv, "x": jwk.x, "y": jwk.y}
    elif not _RSA_BITS[0] <= len(jwk.n) * 6 <= _RSA_BITS[1] + 6:
        raise ValueError(f"has about {len(jwk.n) * 6} bits, not 2048 to 8192")
    try:
        public = ECKey.import_key(fields) if jwk.kty == "EC" else RSAKey.import_key(fields)
    except (JoseError, ValueError, TypeError) as error:
        raise ValueError(f"cannot be read: {shown(str(error))}") from None
    return Key(algorithm, public)
