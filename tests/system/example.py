"""An example service on the bus: it creates a stream, answers queries and stops in order."""

import asyncio
from typing import Any, cast

import msgspec

from libs.bus.connect import NatsSettings, connect_bus
from libs.bus.port import BusRetry
from libs.bus.queries import QueryResponder
from libs.contracts.identities import Writer
from libs.contracts.queries import QueryVerb, WhyAnswer, WhyQuery
from libs.contracts.subjects import STATE
from libs.runtime.logs import logger
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.program import Role, run_program
from libs.runtime.service import Service

_log = logger()


class Settings(ProcessSettings, frozen=True, kw_only=True):
    """`stream` renames the created stream, so that it overlaps with an existing one."""

    nats: NatsSettings = NatsSettings()
    stream: str = STATE.name
    crash: bool = False


async def start(process: Process[Settings], service: Service) -> None:
    """Answer queries only after the stop has begun, so that all are in flight then."""
    bus = await connect_bus(
        process=cast(Process[Any], process),
        service=service,
        settings=process.settings.nats,
        writer=Writer.SCHEDULER,
    )
    stream = msgspec.structs.replace(STATE, name=process.settings.stream)
    await BusRetry(env=process.env).until_success(lambda: bus.ensure(stream))
    stopping = asyncio.Event()

    async def why(query: WhyQuery) -> WhyAnswer:
        _log.info("query received", node=query.node)
        await stopping.wait()
        return WhyAnswer(node=query.node, in_place=True)

    responder = await service.enter(
        "responder",
        QueryResponder(
            bus=bus,
            env=process.env,
            name="scheduler",
            version="1.0.0",
            handlers={QueryVerb.WHY: why},
            concurrent=8,
        ),
    )

    async def drain() -> None:
        stopping.set()
        await responder.drain()

    service.on_drain("questions", drain)
    if process.settings.crash:
        service.run_forever("worker", _crash())


async def _crash() -> None:
    raise ValueError("the worker met\nsomething odd")


if __name__ == "__main__":
    run_program("example", {"example": Role(Settings, start)})
