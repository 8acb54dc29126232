"""Descriptions of errors in one line, and where they were raised."""

import socket

import pytest

from libs.runtime.fatal import Fatal, describe_connect_error, describe_error, fatal, raised_at


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Fatal("no bus"), "no bus"),
        (KeyError("x"), "KeyError: 'x'"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("one\n  two"), "ValueError: one two"),
        (ExceptionGroup("g", [OSError("a")]), "OSError: a"),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [OSError("a"), OSError("b")]), KeyError()]),
            "OSError: a (and 2 more)",
        ),
    ],
)
def test_an_error_is_described_in_one_line(error: BaseException, line: str):
    assert describe_error(error) == line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConnectionRefusedError(111, "Connect call failed"), "connection refused: nothing listens"),
        (socket.gaierror(-2, "Name or service not known"), "the host name cannot be resolved"),
        (OSError(113, "Connect call failed"), "no route to host"),
        (
            OSError(
                "Multiple exceptions: [Errno 111] a ('::1', 1), [Errno 111] a ('127.0.0.1', 1)"
            ),
            "connection refused: nothing listens",
        ),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 113] b"), "Multiple exceptions"),
    ],
)
def test_why_nothing_could_be_connected_to_is_told_without_numbers(error: OSError, line: str):
    assert describe_connect_error(error).startswith(line)


def test_a_fatal_keeps_its_cause_and_where_that_was_raised():
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // 0
    error = fatal(fatal(caught.value, what="upgrade failed"), what="driver")
    assert (
        str(error)
        == "driver: upgrade failed: ZeroDivisionError: integer division or modulo by zero"
    )
    where = raised_at(error)
    assert where is not None
    assert where.startswith("test_fatal.py:")
    assert raised_at(fatal("the connection closed")) is None
