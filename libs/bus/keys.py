"""The text form of NATS keys (nkeys) and of their seeds. Pure.

The nkeys package has no curve keys, which encrypt sign-in requests and answers.
"""

import binascii
from base64 import b32decode, b32encode
from enum import IntEnum
from typing import Any, Final

import nkeys

_nkeys: Any = nkeys  # nkeys has no type annotations

_SEED: Final = 18 << 3
_RAW: Final = 32
_CHECKSUM: Final = 2


class KeyKind(IntEnum):
    """The first byte of a key; it determines the first letter of the text."""

    ACCOUNT = 0
    SERVER = 13 << 3
    USER = 20 << 3
    CURVE = 23 << 3


class NotAKey(ValueError):
    """Raised for a text that is not a key of the wanted kind. It never contains the text."""


def encode_public(kind: KeyKind, raw: bytes) -> str:
    """Return the text of a public key."""
    return _encode(bytes((kind,)) + raw)


def decode_public(kind: KeyKind, text: str) -> bytes:
    """Return the bytes of a public key of this kind, or raise `NotAKey`."""
    body = _decode(text, 1 + _RAW)
    if body[0] != kind:
        raise NotAKey(f"it is not a public key of the kind {kind.name.lower()}")
    return body[1:]


def encode_seed(kind: KeyKind, raw: bytes) -> str:
    """Return the text of a seed, which is secret."""
    return _encode(_seed_head(kind) + raw)


def decode_seed(kind: KeyKind, text: str) -> bytes:
    """Return the bytes of a seed of this kind, or raise `NotAKey`."""
    body = _decode(text, 2 + _RAW)
    if body[:2] != _seed_head(kind):
        raise NotAKey(f"it is not a seed of the kind {kind.name.lower()}")
    return body[2:]


def _seed_head(kind: KeyKind) -> bytes:
    # The kind's five bits come after the five bits of the mark of a seed.
    return bytes((_SEED | kind >> 5, (kind & 0b11111) << 3))


def _encode(body: bytes) -> str:
    return b32encode(body + _checksum(body)).rstrip(b"=").decode()


def _decode(text: str, size: int) -> bytes:
    """Return the bytes before the checksum; refuse every text but the one that `_encode` writes."""
    if len(text) != -(-(size + _CHECKSUM) * 8 // 5):
        raise NotAKey(f"it has {len(text)} characters, which no key has")
    try:
        raw = b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise NotAKey("it is not base32 in capital letters") from None
    body = raw[:-_CHECKSUM]
    if _encode(body) != text:
        raise NotAKey("its checksum is wrong: some characters were changed or lost")
    return body


def _checksum(body: bytes) -> bytes:
    checksum: int = _nkeys.crc16(bytearray(body))
    return checksum.to_bytes(_CHECKSUM, "little")
