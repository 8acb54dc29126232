"""Frames between an agent and its NVML process."""

import pytest

from libs.host.gpus.protocol import (
    LENGTH,
    MAX_FRAME,
    Describe,
    Described,
    Event,
    Failed,
    Frames,
    Linked,
    ListLinks,
    MalformedFrame,
    Open,
    Opened,
    RawGpu,
    RawMig,
    Request,
    Sample,
    Sampled,
    frame,
    requests,
)

REPLIES = [
    Opened(1, b"580.95\xff", -1, 1 << 63),
    Described(2, RawGpu(b"GPU-1", mig=(1, 0), migs=[RawMig(b"MIG-1", b"")], nvlinks=[1, 0])),
    Sampled(3, 1.5, {"energy": (1 << 64) - 1, "power": -1, "sm": 0.5}),
    Failed(4, 999, "why", 2),
    Event(5, 79, 2.5),
    Linked(6, [b"00000000:07:00.0", b"\xff"]),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_replies_are_cut_out_of_any_chunks(size: int) -> None:
    data = b"".join(map(frame, REPLIES))
    frames, found = Frames(), list[object]()
    for start in range(0, len(data), size):
        found += frames.feed(data[start : start + size])
    assert found == REPLIES


@pytest.mark.parametrize("question", [Open(1), Describe(2, 63), Sample(3, 0), ListLinks(4, 1)])
def test_questions_are_read_as_they_were_written(question: Request) -> None:
    data = frame(question)
    assert LENGTH.unpack(data[: LENGTH.size]) == (len(data) - LENGTH.size,)
    assert requests.decode(data[LENGTH.size :]) == question


@pytest.mark.parametrize(
    "data",
    [
        LENGTH.pack(MAX_FRAME + 1),
        LENGTH.pack(2) + b"\xff\xff",
        LENGTH.pack(0),
        LENGTH.pack(1) + b"\xc0",
        frame(REPLIES[4])[:4] + b"\x93\x09\x01\x02\x03",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        Frames().feed(data + bytes(64))


def test_a_frame_that_is_too_long_is_not_written() -> None:
    with pytest.raises(MalformedFrame, match="too long"):
        frame(Failed(1, 0, "x" * MAX_FRAME))
