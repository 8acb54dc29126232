"""The messages of a forwarded port: what belongs to the pod, and what went wrong there."""

import pytest

from libs.kube.portforward import BrokenStream, Channels

PORT = (4222).to_bytes(2, "little")


@pytest.mark.parametrize("prefix", [(PORT,), (PORT[:1], PORT[1:]), ()])
def test_the_port_that_comes_first_is_not_the_pods(prefix: tuple[bytes, ...]) -> None:
    channels = Channels()
    head = b"" if prefix else PORT
    for each in prefix:
        assert channels.received(b"\0" + each) == b""
    assert channels.received(b"\0" + head + b"INFO {}\r\n") == b"INFO {}\r\n"
    assert channels.received(b"\0" + PORT) == PORT


def test_what_went_wrong_is_kept_apart_and_is_one_short_line() -> None:
    channels = Channels()
    assert channels.problem == ""
    assert channels.received(b"\1" + PORT) == b""
    assert channels.problem == ""
    assert channels.received(b"\1connection\n") == b""
    channels.received(b"\1refused\xff")
    assert channels.problem == "connection refused\N{REPLACEMENT CHARACTER}"
    for _ in range(100):
        channels.received(b"\1" + b"x" * 1000)
    assert len(channels.problem) <= 4096


def test_an_empty_message_says_nothing_and_a_third_channel_is_refused() -> None:
    channels = Channels()
    assert channels.received(b"") == channels.received(b"\0") == b""
    with pytest.raises(BrokenStream, match="channel 2"):
        channels.received(b"\2x")


def test_bytes_for_the_pod_go_by_its_channel() -> None:
    assert Channels.sent(b"CONNECT {}\r\n") == b"\0CONNECT {}\r\n"
