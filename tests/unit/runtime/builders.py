"""Resources, tasks and failures for the tests of services."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from libs.runtime.fatal import Fatal
from libs.runtime.service import Service


@asynccontextmanager
async def resource(name: str, journal: list[str]) -> AsyncGenerator[str]:
    journal.append(f"open {name}")
    yield name
    journal.append(f"close {name}")


def record_step(journal: list[str], what: str) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        journal.append(what)

    return step


async def run_forever(journal: list[str] | None = None, name: str = "") -> None:
    try:
        await asyncio.Event().wait()
    finally:
        if journal is not None:
            journal.append(f"end {name}")


async def crash() -> None:
    await asyncio.sleep(5)
    raise ConnectionError("the server\nhung up")


async def failure(service: Service, start: Callable[[], Awaitable[object]]) -> str:
    """Run a service with this start; return the text of its failure."""

    async def run_service() -> None:
        async with service:
            await start()

    with pytest.raises(Fatal) as caught:
        await run_service()
    assert caught.value is service.failure
    return str(caught.value)


def stop_at(service: Service, seconds: float) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, service.stop, "SIGTERM")
