"""Retries while the bus is unavailable."""

import logging

import pytest

from libs.bus.port import BusMisconfigured, BusRetry, BusUnavailable
from libs.testing.simulation import Sim, run


class FlakyServer:
    """Answers from the given try on."""

    def __init__(self, *, answers_from: int, error: Exception) -> None:
        self.tries = 0
        self._answers_from = answers_from
        self._error = error

    async def call(self) -> str:
        """One try."""
        self.tries += 1
        if self.tries < self._answers_from:
            raise self._error
        return "made"


def test_a_call_is_retried_until_success_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = FlakyServer(answers_from=6, error=BusUnavailable("EVENTS: no answer within 5 s"))

    async def main(sim: Sim) -> None:
        patience = BusRetry(env=sim.env())
        reasons = list[str]()

        async def noted() -> str:
            reasons.append(patience.reason)
            return await server.call()

        assert await patience.until_success(noted) == "made"
        assert reasons == ["", *["EVENTS: no answer within 5 s"] * 5]
        assert patience.reason == ""
        assert 0 < sim.clock.monotonic() < 1 + 2 + 4 + 8 + 10

    with caplog.at_level(logging.WARNING):
        run(main, seed=1)
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for the bus before starting: EVENTS: no answer within 5 s"
    ]


def test_a_misconfiguration_is_not_retried() -> None:
    server = FlakyServer(answers_from=6, error=BusMisconfigured("stream EVENTS cannot be created"))

    async def main(sim: Sim) -> None:
        patience = BusRetry(env=sim.env())
        with pytest.raises(BusMisconfigured, match="cannot be created"):
            await patience.until_success(server.call)

    run(main, seed=1)
    assert server.tries == 1
