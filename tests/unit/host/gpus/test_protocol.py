"""Frames between an agent and its NVML process."""

import pytest

from libs.contracts.facts import Gpu, Mig
from libs.contracts.gpus import RecoveryAction
from libs.host.gpus.protocol import (
    LENGTH,
    MAX_FRAME,
    Describe,
    Described,
    Description,
    Event,
    Failed,
    Frames,
    Linked,
    ListLinks,
    MalformedFrame,
    Open,
    Opened,
    Request,
    Sample,
    Sampled,
    frame,
    requests,
)

GPU = Gpu(
    uuid="GPU-1",
    index=0,
    minor=-1,
    pci="",
    name="H100",
    memory_mib=0,
    mig_mode=True,
    migs=(Mig(uuid="MIG-1", profile="", number=2),),
    recovery=RecoveryAction("newer"),
)
REPLIES = [
    Opened(1, "580.95", "13.1", 1 << 63, {"version": "?"}),
    Described(2, Description(GPU, {"name": "b'\\xff'"}, {"serial": 999})),
    Sampled(3, 1.5, {"energy": (1 << 64) - 1, "power": -1, "sm": 0.5}),
    Failed(4, 999, "why", 2),
    Event(5, 79, 2.5),
    Linked(6, ("00000000:07:00.0",), {"NVLink": "b'\\xff'"}),
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
