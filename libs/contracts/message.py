"""Encoding and decoding of messages.

A message is a frozen struct whose JSON begins with its major version. Within a major version,
messages only grow: new fields have defaults, readers ignore unknown fields, and unknown enum values
are kept (`OpenEnum`). Messages of another major version are refused with a reason.
"""

from enum import StrEnum
from typing import Any, Generic, Self, TypeVar

import msgspec

from libs.contracts.numbers import Count

MAJOR = 1
"""The major version of the wire format, in every subject and message."""


class Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a message. Fields at their defaults are not encoded."""


class Message(Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="v", tag=MAJOR):
    """A complete message, which begins with its version."""


class OpenEnum(StrEnum):
    """An enum that may grow: unknown values from newer senders are kept unchanged."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        word = str.__new__(cls, value)
        word._name_ = "UNKNOWN"
        word._value_ = value
        return word

    @property
    def is_known(self) -> bool:
        """Whether this version of the enum defines the value."""
        return self._name_ in type(self).__members__


class MalformedMessage(Exception):
    """Raised for data that is not the expected message, with a reason for people."""


class _Version(msgspec.Struct):
    v: Count = MAJOR


M = TypeVar("M")
K = TypeVar("K", bound=OpenEnum)
B = TypeVar("B", bound=Data)

_encode = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def encode(message: Data) -> bytes:
    return _encode.encode(message)


def raw(body: Data) -> msgspec.Raw:
    """Encode a body for its envelope."""
    return msgspec.Raw(_encode.encode(body))


def decode(kind: type[M], data: bytes | msgspec.Raw) -> M:
    """Decode `data` as a message of type `kind`, or raise `MalformedMessage`."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(_reason(kind, data, error)) from None


def _reason(kind: type[Any], data: bytes | msgspec.Raw, error: Exception) -> str:
    version = version_of(data)
    if version != MAJOR:
        return version_mismatch(kind.__name__, version)
    return f"not a readable {kind.__name__}: {error}"


def version_of(data: bytes | msgspec.Raw) -> int:
    """Return the major version of a message, or `MAJOR` if it cannot be read."""
    try:
        return msgspec.json.decode(data, type=_Version).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MAJOR


def version_mismatch(name: str, version: int) -> str:
    """Return the reason for refusing a message of another major version."""
    return (
        f"{name} of version {version}; this process reads version {MAJOR}:"
        f" upgrade whichever of sender and reader is older"
    )


class Bodies(Generic[K, B]):
    """The body type of each kind of an envelope."""

    def __init__(self, carrier: str, kinds: dict[K, type[B]]) -> None:
        self.carrier = carrier
        self.kinds = kinds
        self._kind_of = {body: kind for kind, body in kinds.items()}

    def kind_of(self, body: B | type[B]) -> K:
        """Return the kind of a body."""
        return self._kind_of[body if isinstance(body, type) else type(body)]

    def open(self, kind: K, body: msgspec.Raw) -> B:
        """Return the typed body, or raise `MalformedMessage`, also for unknown kinds."""
        known = self.kinds.get(kind)
        if known is None:
            raise MalformedMessage(
                f"{self.carrier} kind {kind.value!r} is not known to this process"
            )
        return decode(known, body)
