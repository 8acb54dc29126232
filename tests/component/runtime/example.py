"""A small program on `libs.runtime`; a setting chooses the behaviour of its services."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

from libs.runtime.logs import logger
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.program import Role, run_program
from libs.runtime.service import Service

_log = logger()


class Settings(ProcessSettings, frozen=True, kw_only=True):
    """`behaviour` is that of the service `odd`; the service `calm` only serves."""

    behaviour: Literal["serve", "stuck", "crash", "return", "hang", "block", "lost"] = "serve"


async def calm(process: Process[Settings], service: Service) -> None:
    """Process one message, which ends after the intake is closed."""
    await service.enter("bus", _bus(away=False))
    drained = asyncio.Event()

    async def close_intake() -> None:
        drained.set()

    async def message() -> None:
        await drained.wait()
        _log.info("message answered")

    service.on_drain("messages", close_intake)
    service.run("message", message())
    service.run_forever("worker", asyncio.Event().wait())


async def odd(process: Process[Settings], service: Service) -> None:
    """Behave as set in `behaviour`."""
    behaviour = process.settings.behaviour
    await service.enter("bus", _bus(away=behaviour == "lost"))
    if behaviour == "stuck":
        await service.enter("cache", _never())
    if behaviour == "crash":
        service.run_forever("worker", _crash())
    if behaviour == "return":
        service.run_forever("worker", asyncio.sleep(0))
    if behaviour == "hang":
        service.run("message", asyncio.Event().wait())
    if behaviour == "block":
        service.on_drain("messages", _block)


@asynccontextmanager
async def _bus(*, away: bool) -> AsyncGenerator[None]:
    yield
    if away:
        raise ConnectionError("the server is away")
    _log.info("bus closed")


@asynccontextmanager
async def _never() -> AsyncGenerator[None]:
    await asyncio.Event().wait()
    yield


async def _crash() -> None:
    await asyncio.sleep(0)
    raise ConnectionError("the server\nhung up")


async def _block() -> None:
    _log.info("loop blocked")
    threading.Event().wait()


if __name__ == "__main__":
    run_program(
        "example",
        {
            "both": Role(Settings, {"calm": calm, "odd": odd}),
            "calm": Role(Settings, calm),
            "example": Role(Settings, calm),
            "chore": lambda: 7,
        },
    )
