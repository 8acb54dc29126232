"""Retries while the bus is unavailable."""

import logging

import pytest

from libs.bus.port import BusMisconfigured, BusRetry, BusUnavailable
from libs.testing.simulation import Sim, run


def test_a_call_is_retried_until_success_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reasons: list[str] = []

    async def main(sim: Sim) -> None:
        retry = BusRetry(env=sim.env())

        async def call() -> str:
            reasons.append(retry.reason)
            if len(reasons) < 6:
                raise BusUnavailable("EVENTS: no answer within 5 s")
            return "result"

        assert await retry.until_success(call) == "result"
        assert retry.reason == ""
        assert 0 < sim.clock.monotonic() < 1 + 2 + 4 + 8 + 10

    with caplog.at_level(logging.WARNING):
        run(main, seed=1)
    assert reasons == ["", *["EVENTS: no answer within 5 s"] * 5]
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for the bus before starting: EVENTS: no answer within 5 s"
    ]


def test_a_misconfiguration_is_not_retried() -> None:
    calls: list[None] = []

    async def call() -> None:
        calls.append(None)
        raise BusMisconfigured("stream EVENTS cannot be created")

    async def main(sim: Sim) -> None:
        with pytest.raises(BusMisconfigured, match="cannot be created"):
            await BusRetry(env=sim.env()).until_success(call)

    run(main, seed=1)
    assert len(calls) == 1
