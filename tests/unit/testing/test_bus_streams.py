"""Retention in streams of the in-process bus."""

from msgspec.structs import replace

from libs.testing.bus.streams import LocalStream
from tests.unit.testing.bus import KEPT


def kept(**changes: object) -> LocalStream:
    return LocalStream(replace(KEPT, **{"per_subject": 3, **changes}), id=1)


def add(
    stream: LocalStream,
    subject: str,
    data: bytes = b"",
    *,
    now: float = 0.0,
    expect: int | None = None,
    id: str = "",
) -> int:
    message, _ = stream.add(subject, data, now=now, expect=expect, id=id)
    return message.sequence


def sequences(stream: LocalStream, *, now: float = 0.0) -> list[int]:
    return [message.sequence for message in stream.since(0, ">", now=now)]


def test_a_full_stream_drops_its_oldest_message() -> None:
    stream = kept(max_bytes=2_000, max_message=-1)
    add(stream, "kept.a", b"x" * 900)
    add(stream, "kept.b", b"x" * 900)
    assert sequences(stream) == [1, 2]
    add(stream, "kept.c", b"x" * 500)
    assert sequences(stream) == [2, 3]
    assert stream.last("kept.a", now=0.0) is None
    add(stream, "kept.a", b"x" * 100, expect=0)
    assert sequences(stream) == [2, 3, 4]


def test_messages_expire_after_max_age() -> None:
    stream = kept(max_age=60.0)
    add(stream, "kept.a", now=100.0)
    add(stream, "kept.b", now=130.0)
    assert sequences(stream, now=159.9) == [1, 2]
    assert sequences(stream, now=160.0) == [2]
    assert add(stream, "kept.a", now=160.0, expect=0) == 3
    assert [message.sequence for message in stream.last_of_each(">", now=190.0)] == [3]


def test_an_id_is_remembered_for_two_minutes() -> None:
    stream = kept()
    assert add(stream, "kept.a", id="one", now=0.0) == 1
    assert add(stream, "kept.a", id="one", now=119.9) == 1
    assert add(stream, "kept.a", id="one", now=120.0) == 2
    assert sequences(stream) == [1, 2]
