"""What the log says while there is no connection, and the words for errors of TLS."""

import ssl

import pytest

from libs.bus.nats.failures import REPEAT_SECONDS, ConnectFailures
from libs.bus.nats.tls_errors import describe_tls_error
from libs.contracts.identities import Identity, Writer
from tests.builders.manual_clock import ManualClock

AGENT = Identity(writer=Writer.DRIVER, node="a")


def test_a_cause_is_logged_once_and_again_while_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(50.0)
    failures = ConnectFailures(clock)
    for _ in range(int(2.5 * REPEAT_SECONDS)):
        failures.failed(AGENT, "tls://nats", "refused")
        clock.time += 1.0
    waits = f"{AGENT} is waiting for NATS at tls://nats"
    assert caplog.messages == [
        f"{waits}: refused; trying again",
        f"{waits} for 600 s: refused; trying again",
        f"{waits} for 1200 s: refused; trying again",
    ]


def test_causes_that_alternate_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    failures = ConnectFailures(ManualClock(50.0))
    for why in ("a", "b") * 10:
        failures.failed(AGENT, "tls://nats", why)
    assert len(caplog.messages) == 2
    assert failures.reason == "b"


def test_causes_that_always_differ_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(50.0)
    failures = ConnectFailures(clock)
    for number in range(1_000):
        failures.failed(AGENT, "tls://nats", f"cause {number}")
    assert len(caplog.messages) == 20
    clock.time += REPEAT_SECONDS
    failures.failed(AGENT, "tls://nats", "cause 0")
    assert len(caplog.messages) == 21


def test_after_a_connection_a_cause_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = ConnectFailures(ManualClock(50.0))
    assert failures.reason == ""
    failures.failed(AGENT, "tls://nats", "refused")
    failures.ended()
    assert failures.reason == ""
    failures.failed(AGENT, "tls://nats", "refused")
    assert len(caplog.messages) == 2


def test_only_some_names_of_a_certificate_are_shown() -> None:
    error = ssl.SSLCertVerificationError("wrong name")
    error.verify_code = 62
    names = tuple(f"n{number}" for number in range(13))
    assert "but for n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 3 more:" in describe_tls_error(
        error, asked="nats", names=names
    )
    assert "but for other names:" in describe_tls_error(error, asked="nats")


def test_other_errors_of_tls_are_named() -> None:
    assert describe_tls_error(ssl.SSLError(1, "odd")).startswith("the TLS handshake failed: ")
