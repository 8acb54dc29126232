"""Liveness of a process that has failed or whose loop is stalled."""

import asyncio
import random

import aiohttp
import pytest
from structlog.testing import capture_logs

from libs.runtime.fatal import Fatal
from libs.runtime.http import HttpSettings
from libs.runtime.metrics import Metrics
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.service import Service
from libs.testing.simulation import make_env

LOOPBACK = HttpSettings(host="127.0.0.1", port=0)


class StoppedClock:
    """A clock that the test advances; sleeps never end."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


async def livez(process: Process[ProcessSettings]) -> tuple[int, str]:
    host, port = process.probes_address
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/livez") as answer,
    ):
        return answer.status, await answer.text()


async def test_livez_fails_after_a_failure_or_a_stall():
    clock = StoppedClock()
    drains: list[float] = []
    process = Process(
        ProcessSettings(metrics=LOOPBACK, probes=LOOPBACK),
        env=make_env(clock=clock, random=random.Random(0), metrics=Metrics(version="1")),
        on_drain=lambda: drains.append(clock.at),
    )
    answers: list[tuple[int, str]] = []

    async def start(_process: Process[ProcessSettings], service: Service) -> None:
        async def draining() -> None:
            answers.append(await livez(process))

        answers.append(await livez(process))
        clock.at = 20
        answers.append(await livez(process))
        service.on_drain("probe", draining)
        service.fail("the connection closed for good")

    with capture_logs() as logs, pytest.raises(Fatal, match="one: the connection closed for good"):
        await process.run({"one": start})
    stalled = "the event loop has been stalled for 20 s\n"
    assert answers == [
        (200, "ok\n"),
        (503, stalled),
        (503, f"{stalled}one: the connection closed for good\n"),
    ]
    assert drains == [20], "the shutdown deadline starts with the drain"
    assert not [entry for entry in logs if entry["log_level"] == "warning"]
