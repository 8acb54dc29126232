"""Frames of several connections in one stream, as NRI has them.

A frame has the number of its connection, the length of its data, and the data. What a runtime sends
is not trusted: a length over the limit ends the stream before its data is read.
"""

import asyncio
import struct
from typing import Final

PLUGIN: Final = 1
"""The connection on which the runtime asks and the plugin answers."""
RUNTIME: Final = 2
"""The connection on which the plugin asks."""
MAX_SENT: Final = 4096
"""Bytes of data in a frame to the runtime, which reads into a buffer of this size."""
MAX_RECEIVED: Final = 10 + (4 << 20)
"""Bytes of data in a frame of the runtime: its longest message."""
_HEADER: Final = struct.Struct(">II")


class Malformed(Exception):
    """The stream is not of this protocol. The text says what is wrong."""


def encode(connection: int, data: bytes) -> bytes:
    """Return the frames of one message."""
    parts = [data[start : start + MAX_SENT] for start in range(0, len(data), MAX_SENT)] or [b""]
    return b"".join(_HEADER.pack(connection, len(part)) + part for part in parts)


async def read(stream: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the next frame's connection and data; raise EOFError at the end of the stream."""
    connection, length = _HEADER.unpack(await stream.readexactly(_HEADER.size))
    if length > MAX_RECEIVED:
        raise Malformed(f"a frame of {length} bytes is over the limit of {MAX_RECEIVED}")
    return connection, await stream.readexactly(length)
