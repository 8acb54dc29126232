"""When a session is renewed, from what its token says about itself."""

import base64
import json
import logging
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.bus.token_renewal import EARLIEST, LATEST, TokenLife, TokenRenewal, token_life
from tests.builders.manual_clock import ManualClock

ISSUED, EXPIRES = 1_000.0, 2_000.0


def jwt(**claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.x"


def renewal(clock: ManualClock, seed: int = 1) -> TokenRenewal:
    return TokenRenewal(name="/token", clock=clock, source=random.Random(seed))


def test_the_life_of_a_token_is_read_without_its_key() -> None:
    assert token_life(jwt(iat=1_000, exp=2_000, sub="x")) == TokenLife(ISSUED, EXPIRES)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="empty"),
        pytest.param("abc", id="a static token"),
        pytest.param("a.b", id="two parts"),
        pytest.param("a.b.c.d", id="four parts"),
        pytest.param("a.!.c", id="not base64"),
        pytest.param("a.é.c", id="not ASCII"),
        pytest.param("a.W10.c", id="a list"),
        pytest.param(jwt(exp=2_000), id="no beginning"),
        pytest.param(jwt(iat=1_000), id="no end"),
        pytest.param(jwt(iat="1000", exp="2000"), id="texts"),
        pytest.param(jwt(iat=2_000, exp=2_000), id="no life"),
        pytest.param(jwt(iat=1_000, exp=float("inf")), id="for ever"),
        pytest.param(jwt(iat=1_000, exp=10**400), id="a huge number"),
        pytest.param(f"a.{'A' * 20_000}.c", id="too long"),
        pytest.param(
            f"a.{base64.urlsafe_b64encode(b'[' * 9_000).decode().rstrip('=')}.c", id="too deep"
        ),
    ],
)
def test_a_token_that_does_not_say_when_it_expires_has_no_life(token: str) -> None:
    assert token_life(token) is None
    clock = ManualClock(ISSUED)
    session = renewal(clock)
    session.used(token)
    clock.time = 1e12
    assert not session.is_due()
    assert not session.is_newer(jwt(iat=1e12, exp=2e12))


@given(st.binary(max_size=300))
def test_no_payload_raises(payload: bytes) -> None:
    part = base64.urlsafe_b64encode(payload).decode().rstrip("=")
    token_life(f"e30.{part}.x")
    token_life(payload.decode(errors="replace"))


def test_sessions_are_renewed_spread_over_the_end_of_their_tokens_life() -> None:
    due: list[float] = []
    for seed in range(200):
        clock = ManualClock(ISSUED)
        session = renewal(clock, seed)
        session.used(jwt(iat=ISSUED, exp=EXPIRES))
        while not session.is_due():
            clock.time += 1.0
        due.append(clock.time)
    life = EXPIRES - ISSUED
    assert ISSUED + EARLIEST * life <= min(due) < ISSUED + 0.87 * life
    assert ISSUED + 0.93 * life < max(due) <= ISSUED + LATEST * life + 1.0


def test_only_a_token_that_lasts_longer_renews_a_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(ISSUED)
    session = renewal(clock)
    session.used(jwt(iat=ISSUED, exp=EXPIRES))
    clock.time = 1_960.0
    assert session.is_due()
    others = (jwt(iat=ISSUED, exp=EXPIRES), jwt(iat=1_500, exp=1_999), "", "garbage")
    assert not any(session.is_newer(other) for other in others)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "/token holds no newer token" in caplog.messages[0]
    assert "expires in 40 s" in caplog.messages[0]

    newer = jwt(iat=1_800, exp=2_800)
    assert session.is_newer(newer)
    session.used(newer)
    assert not session.is_due()
