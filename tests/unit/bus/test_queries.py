"""Queries in virtual time: concurrency, draining and allowed reply subjects."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.bus.port import BusUnavailable, NoResponders
from libs.bus.queries import MAX_WAITING, QueryHandlers, QueryResponder
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import MalformedMessage, Message, decode, encode
from libs.contracts.queries import (
    QueryError,
    QueryErrorCode,
    QueryVerb,
    StatusAnswer,
    StatusQuery,
    WhyAnswer,
    WhyQuery,
)
from libs.testing.bus import LocalBus, LocalServer
from libs.testing.bus.queries import send_query
from libs.testing.simulation import Sim
from tests.unit.bus.simulated import in_simulation

SERVICE = Identity(writer=Writer.SCHEDULER)
ASKER = Identity(writer=Writer.CTL)
WHY = str(subjects.Query(cluster="default", service="scheduler", verb="why"))


class World:
    """A server, an asker, and a service that takes a second for each answer."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.server = LocalServer(env=sim.env("bus"))
        self.asker: LocalBus = self.server.connect(ASKER)
        self.running = 0
        self.most = 0

    async def why(self, query: WhyQuery) -> Message:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.sim.clock.sleep(1.0)
            if query.node == "hangs":
                await asyncio.Event().wait()
            if query.node == "cancelled":
                raise asyncio.CancelledError
        finally:
            self.running -= 1
        if query.node == "broken":
            raise RuntimeError("secret detail")
        if query.node == "unknown":
            return QueryError(code=QueryErrorCode.NOT_FOUND, message="no such node")
        if query.node == "confused":
            return StatusAnswer(at=1.0)
        return WhyAnswer(node=query.node)

    @asynccontextmanager
    async def responder(self, *, concurrent: int = 8) -> AsyncGenerator[QueryResponder]:
        answers: QueryHandlers = {QueryVerb.WHY: self.why}
        async with QueryResponder(
            bus=self.server.connect(SERVICE),
            env=self.sim.env(),
            name="scheduler",
            version="1.2.3",
            handlers=answers,
            concurrent=concurrent,
        ) as responder:
            yield responder

    async def ask(self, node: str, *, timeout: float = 10.0) -> Message:
        return await send_query(
            WhyQuery(node=node),
            bus=self.asker,
            clock=self.sim.clock,
            cluster="default",
            service="scheduler",
            timeout=timeout,
        )

    async def discover(self, verb: str, *tokens: str) -> Any:
        return json.loads(await self.asker.request(subjects.service(verb, *tokens), b""))


@asynccontextmanager
async def enter_world(sim: Sim) -> AsyncGenerator[World]:
    yield World(sim)


in_virtual_time = in_simulation(enter_world)


@in_virtual_time
async def test_failures_are_answered_without_internals(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.responder() as responder:
        assert await world.ask("unknown") == QueryError(
            code=QueryErrorCode.NOT_FOUND, message="no such node"
        )
        for node in ("broken", "confused"):
            answer = await world.ask(node)
            assert isinstance(answer, QueryError)
            assert answer.code == QueryErrorCode.INTERNAL
            assert responder.id in answer.message
            assert "secret" not in answer.message
        for data in (b"", b"\xff", b'{"v":2,"node":"a"}', b'{"v":1}'):
            problem = decode(QueryError, await world.asker.request(WHY, data))
            assert problem.code == QueryErrorCode.UNREADABLE
            assert "WhyQuery" in problem.message
    assert "secret detail" in caplog.text


@in_virtual_time
async def test_a_hanging_or_cancelled_handler_is_answered_and_blocks_no_other(world: World) -> None:
    async with world.responder(concurrent=2) as responder:
        hung = [asyncio.create_task(world.ask("hangs", timeout=300.0)) for _ in range(2)]
        assert isinstance(await world.ask("cancelled", timeout=300.0), QueryError)
        assert await world.ask("n", timeout=300.0) == WhyAnswer(node="n")
        assert all(isinstance(answer, QueryError) for answer in await asyncio.gather(*hung))
        flood = (world.ask("n", timeout=5.0) for _ in range(2 * MAX_WAITING + 10))
        ends = await asyncio.gather(*flood, return_exceptions=True)
        assert responder.rejected == 10
        assert WhyAnswer(node="n") in ends
        await world.sim.clock.sleep(2.0 * MAX_WAITING)
        assert await world.ask("n", timeout=300.0) == WhyAnswer(node="n")


@in_virtual_time
async def test_leaving_without_draining_cancels_handlers(world: World) -> None:
    async with world.responder():
        query = asyncio.ensure_future(world.ask("n", timeout=2.0))
        await world.sim.clock.sleep(0.5)
        assert world.running == 1
    assert world.running == 0
    with pytest.raises(BusUnavailable):
        await query


@in_virtual_time
async def test_draining_ends_during_an_outage(world: World) -> None:
    async with world.responder() as responder:
        query = asyncio.ensure_future(world.ask("n"))
        await world.sim.clock.sleep(0.5)
        world.server.stop()
        with pytest.raises(BusUnavailable):
            await query
        await responder.drain()
        assert world.sim.clock.monotonic() == pytest.approx(1.0)


@in_virtual_time
async def test_a_query_is_repeated_while_the_service_restarts(world: World) -> None:
    query = asyncio.ensure_future(world.ask("n"))
    await world.sim.clock.sleep(5.0)
    async with world.responder():
        assert await query == WhyAnswer(node="n")
    assert world.sim.clock.monotonic() < 7.0
    began = world.sim.clock.monotonic()
    with pytest.raises(NoResponders):
        await world.ask("n", timeout=3.0)
    assert 2.5 < world.sim.clock.monotonic() - began <= 3.0


@in_virtual_time
async def test_a_malformed_answer_raises(world: World) -> None:
    service = world.server.connect(SERVICE)

    def nonsense(_subject: str, _data: bytes, reply: str) -> None:
        asyncio.get_running_loop().create_task(
            service.publish(reply, encode(WhyAnswer(node="n")).replace(b'"v":1', b'"v":2'))
        )

    subscription = await service.subscribe(WHY, nonsense)
    with pytest.raises(MalformedMessage, match="WhyAnswer of version 2"):
        await world.ask("n")
    await subscription.close()


@in_virtual_time
async def test_services_are_discovered_as_in_adr_32(world: World) -> None:
    async with world.responder() as responder:
        identity: dict[str, Any] = {
            "name": "scheduler",
            "id": responder.id,
            "version": "1.2.3",
            "metadata": {},
        }
        ping = {"type": "io.nats.micro.v1.ping_response", **identity}
        assert await world.discover("PING") == ping
        assert await world.discover("PING", "scheduler") == ping
        assert await world.discover("PING", "scheduler", responder.id) == ping
        with pytest.raises(NoResponders):
            await world.discover("PING", "other")
        info = await world.discover("INFO", "scheduler")
        assert info == {
            "type": "io.nats.micro.v1.info_response",
            **identity,
            "description": "read-only questions: why",
            "endpoints": [{"name": "why", "subject": WHY, "queue_group": "q", "metadata": {}}],
        }
        await world.ask("n")
        await world.ask("unknown")
        assert await world.discover("STATS", "scheduler", responder.id) == {
            "type": "io.nats.micro.v1.stats_response",
            **identity,
            "started": "2027-01-15T08:00:00.000000Z",
            "endpoints": [
                {
                    "name": "why",
                    "subject": WHY,
                    "queue_group": "q",
                    "num_requests": 2,
                    "num_errors": 1,
                    "last_error": "no such node",
                    "processing_time": 2_000_000_000,
                    "average_processing_time": 1_000_000_000,
                    "data": None,
                }
            ],
        }


@pytest.mark.parametrize(("name", "version"), [("a b", "1.0.0"), ("", "1.0.0"), ("a", "1.0")])
@in_virtual_time
async def test_an_undiscoverable_name_or_version_is_refused(
    world: World, name: str, version: str
) -> None:
    with pytest.raises(ValueError, match="service"):
        QueryResponder(
            bus=world.server.connect(SERVICE),
            env=world.sim.env(),
            name=name,
            version=version,
            handlers={},
            concurrent=1,
        )


@in_virtual_time
async def test_a_service_subscribes_only_to_its_verbs(world: World) -> None:
    async with world.responder():
        with pytest.raises(NoResponders):
            await send_query(
                StatusQuery(),
                bus=world.asker,
                clock=world.sim.clock,
                cluster="default",
                service="scheduler",
                timeout=0.1,
            )
