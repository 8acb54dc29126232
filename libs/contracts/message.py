"""How a message is written and read: the rules that every other module of this package follows.

A message is a frozen struct whose JSON begins with its major version. Within a major version it
only grows: a new field has a default, a reader ignores fields it does not know, and a word it does
not know stays that word (`OpenWord`). A message of another major version is refused, with a reason.
"""

from enum import StrEnum
from typing import Any, Generic, Self, TypeVar

import msgspec

MAJOR = 1
"""The version of the wire: in every subject and in every message."""


class Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a message. What is at its default is not written."""


class Message(Data, frozen=True, kw_only=True, omit_defaults=True, tag_field="v", tag=MAJOR):
    """A whole message: it says its version first."""


class OpenEnum(StrEnum):
    """A list of words that may grow: a word from a newer sender is kept as it came."""

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
        """Whether this reader's version of the list has the word."""
        return self._name_ in type(self).__members__


class MalformedMessage(Exception):
    """Bytes that are not the message they should be. The text says why, for a person."""


class _Version(msgspec.Struct):
    v: int = MAJOR


M = TypeVar("M")
K = TypeVar("K", bound=OpenEnum)
B = TypeVar("B", bound=Data)

_encode = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def encode(message: Data) -> bytes:
    """The message as JSON."""
    return _encode.encode(message)


def raw(body: Data) -> msgspec.Raw:
    """A body on its way into an envelope."""
    return msgspec.Raw(_encode.encode(body))


def decode(kind: type[M], data: bytes | msgspec.Raw) -> M:
    """Read `data` as a message of type `kind`, or raise `Unreadable`."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedMessage(_reason(kind, data, error)) from None


def _reason(kind: type[Any], data: bytes | msgspec.Raw, error: Exception) -> str:
    name = kind.__name__
    try:
        version = msgspec.json.decode(data, type=_Version).v
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        version = MAJOR
    if version != MAJOR:
        return version_mismatch(name, version)
    return f"not a readable {name}: {error}"


def version_mismatch(name: str, version: int) -> str:
    """Why a message of another major version is not read."""
    return (
        f"{name} of version {version}; this process reads version {MAJOR}:"
        f" upgrade whichever of sender and reader is older"
    )


class Bodies(Generic[K, B]):
    """Which body travels under which kind. An envelope has one of these for what it carries."""

    def __init__(self, carrier: str, kinds: dict[K, type[B]]) -> None:
        self.carrier = carrier
        self.kinds = kinds
        self._kind_of = {body: kind for kind, body in kinds.items()}

    def kind_of(self, body: B | type[B]) -> K:
        """The kind under which this body travels."""
        return self._kind_of[body if isinstance(body, type) else type(body)]

    def open(self, kind: K, body: msgspec.Raw) -> B:
        """The typed body, or `Unreadable`: a kind that is not known here is that too."""
        known = self.kinds.get(kind)
        if known is None:
            raise MalformedMessage(
                f"{self.carrier} kind {kind.value!r} is not known to this process"
            )
        return decode(known, body)
