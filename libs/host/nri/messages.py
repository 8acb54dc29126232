"""Messages of ttrpc on one connection: a header of ten bytes, and data.

Only unary calls are known: a request, and the response with the same number.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import msgspec

from libs.host.nri.frames import Malformed

MAX_BYTES: Final = 4 << 20
"""The most data in a message, in both directions."""
_HEADER: Final = struct.Struct(">IIBB")
_REMOTE_OPEN: Final = 0x2


class Kind(IntEnum):
    """What a message is."""

    REQUEST = 1
    RESPONSE = 2


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One request or response."""

    stream: int
    """The number of the request, which is odd."""
    kind: Kind
    data: bytes


def encode(message: Message) -> bytes:
    if len(message.data) > MAX_BYTES:
        raise ValueError(f"a message of {len(message.data)} bytes is too long")
    return _HEADER.pack(len(message.data), message.stream, message.kind, 0) + message.data


class MessageReader:
    """Puts the messages of one connection together; it keeps less than two of them."""

    def __init__(self, kind: Kind) -> None:
        """Accept messages of this kind alone."""
        self._kind = kind
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete with this data."""
        self._received += data
        while len(self._received) >= _HEADER.size:
            length, stream, kind, flags = _HEADER.unpack_from(self._received)
            if length > MAX_BYTES:
                raise Malformed(f"a message of {length} bytes is over the limit of {MAX_BYTES}")
            if kind != self._kind or flags & _REMOTE_OPEN or not stream % 2:
                raise Malformed(f"a message has kind {kind}, flags {flags} and number {stream}")
            end = _HEADER.size + length
            if len(self._received) < end:
                return
            body = bytes(self._received[_HEADER.size : end])
            del self._received[:end]
            yield Message(stream=stream, kind=self._kind, data=body)
