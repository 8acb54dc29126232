"""Frames and messages of NRI: as bytes, put together from any pieces, and hostile ones."""

import asyncio
import struct
from collections import Counter
from random import Random

import pytest

from libs.host.nri import frames
from libs.host.nri.frames import Malformed
from libs.host.nri.messages import MAX_BYTES, Kind, Message, MessageReader, encode


def message(data: bytes, *, stream: int = 1, kind: Kind = Kind.REQUEST) -> Message:
    return Message(stream=stream, kind=kind, data=data)


async def all_frames(data: bytes) -> list[tuple[int, bytes]]:
    stream = asyncio.StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    found: list[tuple[int, bytes]] = []
    while not stream.at_eof():
        found.append(await frames.read(stream))
    return found


def test_a_request_is_sent_as_these_bytes() -> None:
    sent = frames.encode(frames.RUNTIME, encode(message(b"abc", stream=5)))
    assert sent.hex(" ") == (
        "00 00 00 02 00 00 00 0d"  # connection 2, 13 bytes
        " 00 00 00 03 00 00 00 05 01 00"  # 3 bytes, stream 5, a request, no flags
        " 61 62 63"
    )


@pytest.mark.parametrize(
    ("length", "parts"), [(0, [0]), (4096, [4096]), (4097, [4096, 1]), (8192, [4096, 4096])]
)
async def test_data_is_cut_into_frames(length: int, parts: list[int]) -> None:
    data = bytes(index % 251 for index in range(length))
    found = await all_frames(frames.encode(7, data))
    assert [(connection, len(part)) for connection, part in found] == [(7, n) for n in parts]
    assert b"".join(part for _, part in found) == data


async def test_a_stream_that_ends_within_a_frame() -> None:
    whole = frames.encode(1, b"abc")
    for end in range(len(whole)):
        stream = asyncio.StreamReader()
        stream.feed_data(whole[:end])
        stream.feed_eof()
        with pytest.raises(EOFError):
            await frames.read(stream)


@pytest.mark.parametrize("length", [frames.MAX_RECEIVED + 1, 2**31, 2**32 - 1])
async def test_a_frame_that_is_too_long_is_refused_by_its_header(length: int) -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(struct.pack(">II", 1, length))
    with pytest.raises(Malformed, match=f"a frame of {length} bytes"):
        await frames.read(stream)


@pytest.mark.parametrize("size", [1, 3, 10, 11, 1000])
def test_messages_are_put_together_from_pieces_of_any_size(size: int) -> None:
    sent = [message(b""), message(b"x" * 300, stream=3), message(b"y", stream=2**31 + 1)]
    data = b"".join(map(encode, sent))
    reader = MessageReader(Kind.REQUEST)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert [each for piece in pieces for each in reader.feed(piece)] == sent


def test_the_longest_message_is_read_and_written_and_no_longer_one() -> None:
    longest = message(bytes(MAX_BYTES))
    assert list(MessageReader(Kind.REQUEST).feed(encode(longest))) == [longest]
    with pytest.raises(ValueError, match="too long"):
        encode(message(bytes(MAX_BYTES + 1)))


@pytest.mark.parametrize(
    ("length", "stream", "kind", "flags"),
    [
        (MAX_BYTES + 1, 1, Kind.REQUEST, 0),
        (2**32 - 1, 1, Kind.REQUEST, 0),
        (0, 1, Kind.RESPONSE, 0),
        (0, 1, 3, 0),
        (0, 1, 0, 0),
        (0, 2, Kind.REQUEST, 0),
        (0, 0, Kind.REQUEST, 0),
        (0, 1, Kind.REQUEST, 2),
    ],
)
def test_hostile_headers_are_refused_without_their_data(
    length: int, stream: int, kind: int, flags: int
) -> None:
    reader = MessageReader(Kind.REQUEST)
    with pytest.raises(Malformed):
        list(reader.feed(struct.pack(">IIBB", length, stream, kind, flags)))


def test_a_request_may_say_that_no_more_follows() -> None:
    reader = MessageReader(Kind.REQUEST)
    assert list(reader.feed(struct.pack(">IIBB", 0, 1, 1, 1))) == [message(b"")]


def test_any_bytes_are_messages_or_malformed() -> None:
    random = Random(1)
    outcomes = Counter[str]()
    for _ in range(2000):
        whole = bytearray(encode(message(random.randbytes(random.randrange(40)))) * 3)
        for _ in range(random.randrange(4)):
            whole[random.randrange(len(whole))] = random.randrange(256)
        reader = MessageReader(Kind.REQUEST)
        try:
            found = len(list(reader.feed(bytes(whole))))
        except Malformed:
            outcomes["malformed"] += 1
        else:
            outcomes["messages" if found else "waits"] += 1
    assert min(outcomes[kind] for kind in ("malformed", "messages", "waits")) > 50
