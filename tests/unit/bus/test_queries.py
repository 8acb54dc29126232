"""Queries in virtual time: concurrency, draining and allowed reply subjects."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.bus.port import BusUnavailable, NoResponders
from libs.bus.queries import MAX_WAITING, QueryHandlers, QueryResponder, send_query
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
from libs.testing.simulation import Sim, run

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

    async def why(self, question: WhyQuery) -> Message:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.sim.clock.sleep(1.0)
            if question.node == "hangs":
                await asyncio.Event().wait()
            if question.node == "cancelled":
                raise asyncio.CancelledError
        finally:
            self.running -= 1
        if question.node == "broken":
            raise RuntimeError("secret detail")
        if question.node == "unknown":
            return QueryError(code=QueryErrorCode.NOT_FOUND, message="no such node")
        if question.node == "confused":
            return StatusAnswer(at=1.0)
        return WhyAnswer(node=question.node)

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

    async def ask(self, node: str, *, timeout: float = 10.0) -> WhyAnswer | QueryError:
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


def in_virtual_time(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    run(lambda sim: story(World(sim)), seed=7)


def test_queries_run_concurrently_up_to_the_limit() -> None:
    async def story(w: World) -> None:
        async with w.responder(concurrent=5):
            began = w.sim.clock.monotonic()
            answers = await asyncio.gather(*(w.ask(f"n{index}") for index in range(5)))
            assert answers == [WhyAnswer(node=f"n{index}") for index in range(5)]
            assert w.sim.clock.monotonic() - began == pytest.approx(1.0)
            await asyncio.gather(*(w.ask("n") for _ in range(11)))
            assert w.sim.clock.monotonic() - began == pytest.approx(4.0)
            assert w.most == 5

    in_virtual_time(story)


def test_failures_are_answered_without_internals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(w: World) -> None:
        async with w.responder() as responder:
            assert await w.ask("unknown") == QueryError(
                code=QueryErrorCode.NOT_FOUND, message="no such node"
            )
            for node in ("broken", "confused"):
                answer = await w.ask(node)
                assert isinstance(answer, QueryError)
                assert answer.code == QueryErrorCode.INTERNAL
                assert responder.id in answer.message
                assert "secret" not in answer.message
            for data in (b"", b"\xff", b'{"v":2,"node":"a"}', b'{"v":1}'):
                problem = decode(QueryError, await w.asker.request(WHY, data))
                assert problem.code == QueryErrorCode.UNREADABLE
                assert "WhyQuery" in problem.message

    with caplog.at_level(logging.ERROR):
        in_virtual_time(story)
    assert "secret detail" in caplog.text


def test_a_hanging_or_cancelled_handler_is_answered_and_blocks_no_other() -> None:
    async def story(w: World) -> None:
        async with w.responder(concurrent=2) as responder:
            hung = [asyncio.create_task(w.ask("hangs", timeout=300.0)) for _ in range(2)]
            assert isinstance(await w.ask("cancelled", timeout=300.0), QueryError)
            assert await w.ask("n", timeout=300.0) == WhyAnswer(node="n")
            assert all(isinstance(answer, QueryError) for answer in await asyncio.gather(*hung))
            flood = (w.ask("n", timeout=5.0) for _ in range(2 * MAX_WAITING + 10))
            ends = await asyncio.gather(*flood, return_exceptions=True)
            assert responder.rejected == 10
            assert WhyAnswer(node="n") in ends
            await w.sim.clock.sleep(2.0 * MAX_WAITING)
            assert await w.ask("n", timeout=300.0) == WhyAnswer(node="n")

    in_virtual_time(story)


def test_draining_answers_received_queries_and_accepts_no_more() -> None:
    async def story(w: World) -> None:
        async with w.responder(concurrent=2) as responder:
            asked = [asyncio.ensure_future(w.ask(f"n{index}")) for index in range(5)]
            await w.sim.clock.sleep(0.5)
            draining = asyncio.ensure_future(responder.drain())
            await w.sim.clock.sleep(0.1)
            with pytest.raises(NoResponders):
                await w.ask("late", timeout=0.2)
            await draining
            assert w.sim.clock.monotonic() == pytest.approx(3.0)
            answers = await asyncio.gather(*asked)
            assert answers == [WhyAnswer(node=f"n{index}") for index in range(5)]
            with pytest.raises(NoResponders):
                await w.discover("PING")

    in_virtual_time(story)


def test_leaving_without_draining_cancels_handlers() -> None:
    async def story(w: World) -> None:
        async with w.responder():
            asked = asyncio.ensure_future(w.ask("n", timeout=2.0))
            await w.sim.clock.sleep(0.5)
            assert w.running == 1
        assert w.running == 0
        with pytest.raises(BusUnavailable):
            await asked

    in_virtual_time(story)


def test_draining_ends_during_an_outage() -> None:
    async def story(w: World) -> None:
        async with w.responder() as responder:
            asked = asyncio.ensure_future(w.ask("n"))
            await w.sim.clock.sleep(0.5)
            w.server.stop()
            with pytest.raises(BusUnavailable):
                await asked
            await responder.drain()
            assert w.sim.clock.monotonic() == pytest.approx(1.0)

    in_virtual_time(story)


def test_a_query_is_repeated_while_the_service_restarts() -> None:
    async def story(w: World) -> None:
        asked = asyncio.ensure_future(w.ask("n"))
        await w.sim.clock.sleep(5.0)
        async with w.responder():
            assert await asked == WhyAnswer(node="n")
        assert w.sim.clock.monotonic() < 7.0
        began = w.sim.clock.monotonic()
        with pytest.raises(NoResponders):
            await w.ask("n", timeout=3.0)
        assert 2.5 < w.sim.clock.monotonic() - began <= 3.0

    in_virtual_time(story)


def test_a_malformed_answer_raises() -> None:
    async def story(w: World) -> None:
        service = w.server.connect(SERVICE)

        def nonsense(_subject: str, _data: bytes, reply: str) -> None:
            asyncio.get_running_loop().create_task(
                service.publish(reply, encode(WhyAnswer(node="n")).replace(b'"v":1', b'"v":2'))
            )

        hearing = await service.subscribe(WHY, nonsense)
        with pytest.raises(MalformedMessage, match="WhyAnswer of version 2"):
            await w.ask("n")
        await hearing.close()

    in_virtual_time(story)


def test_services_are_discovered_as_in_adr_32() -> None:
    async def story(w: World) -> None:
        async with w.responder() as responder:
            who: dict[str, Any] = {
                "name": "scheduler",
                "id": responder.id,
                "version": "1.2.3",
                "metadata": {},
            }
            ping = {"type": "io.nats.micro.v1.ping_response", **who}
            assert await w.discover("PING") == ping
            assert await w.discover("PING", "scheduler") == ping
            assert await w.discover("PING", "scheduler", responder.id) == ping
            with pytest.raises(NoResponders):
                await w.discover("PING", "other")
            info = await w.discover("INFO", "scheduler")
            assert info == {
                "type": "io.nats.micro.v1.info_response",
                **who,
                "description": "read-only questions: why",
                "endpoints": [{"name": "why", "subject": WHY, "queue_group": "q", "metadata": {}}],
            }
            await w.ask("n")
            await w.ask("unknown")
            assert await w.discover("STATS", "scheduler", responder.id) == {
                "type": "io.nats.micro.v1.stats_response",
                **who,
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

    in_virtual_time(story)


@pytest.mark.parametrize(("name", "version"), [("a b", "1.0.0"), ("", "1.0.0"), ("a", "1.0")])
def test_an_undiscoverable_name_or_version_is_refused(name: str, version: str) -> None:
    async def story(w: World) -> None:
        with pytest.raises(ValueError, match="service"):
            QueryResponder(
                bus=w.server.connect(SERVICE),
                env=w.sim.env(),
                name=name,
                version=version,
                handlers={},
                concurrent=1,
            )

    in_virtual_time(story)


def test_a_service_subscribes_only_to_its_verbs() -> None:
    async def story(w: World) -> None:
        async with w.responder():
            with pytest.raises(NoResponders):
                await send_query(
                    StatusQuery(),
                    bus=w.asker,
                    clock=w.sim.clock,
                    cluster="default",
                    service="scheduler",
                    timeout=0.1,
                )

    in_virtual_time(story)


@pytest.mark.parametrize("asker", [Identity(writer=Writer.DRIVER, node="a.example")])
def test_a_query_of_a_forbidden_asker_is_not_answered(asker: Identity) -> None:
    async def story(w: World) -> None:
        async with w.responder() as responder:
            node = w.server.connect(asker)
            for subject in (WHY, subjects.service("PING")):
                with pytest.raises(BusUnavailable):
                    await node.request(subject, encode(WhyQuery(node="n")), timeout=5.0)
            await node.publish(WHY, encode(WhyQuery(node="n")))
            await w.sim.clock.sleep(1.0)
            assert responder.undeliverable == 3
            assert w.most == 0

    in_virtual_time(story)
