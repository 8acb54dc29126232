"""Queries on both implementations, and NATS's own discovery tools."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.client import Client
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

from libs.bus.nats.bus import NatsBus, connect
from libs.bus.port import Bus, BusUnavailable, NoResponders
from libs.bus.queries import QueryResponder
from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import Message, decode, encode
from libs.contracts.queries import QueryError, QueryErrorCode, QueryVerb, WhyAnswer, WhyQuery
from libs.runtime.clock import SystemClock
from libs.testing.bus.queries import send_query
from libs.testing.nats import NatsServer
from libs.testing.simulation import make_env
from tests.component.bus.servers import MakeBus, ServerControl
from tests.support import eventually

SERVICE = Identity(writer=Writer.SCHEDULER)
ASKER = Identity(writer=Writer.CTL)
WHY = str(subjects.Query(cluster="default", service="scheduler", verb="why"))


class Scheduler:
    """A service that answers once `answering` is set."""

    def __init__(self) -> None:
        self.received = 0
        self.answering = asyncio.Event()
        self.long = ""

    async def why(self, query: WhyQuery) -> WhyAnswer:
        self.received += 1
        await self.answering.wait()
        return WhyAnswer(node=query.node, state=self.long)

    def responder(self, bus: Bus, *, concurrent: int = 16) -> QueryResponder:
        return QueryResponder(
            bus=bus,
            env=make_env(),
            name="scheduler",
            version="1.2.3",
            handlers={QueryVerb.WHY: self.why},
            concurrent=concurrent,
        )


async def why(bus: Bus, node: str, *, timeout: float = 20.0) -> Message:
    return await send_query(
        WhyQuery(node=node),
        bus=bus,
        clock=SystemClock(),
        cluster="default",
        service="scheduler",
        timeout=timeout,
    )


async def has_no_responder(bus: Bus) -> bool:
    try:
        await bus.request(WHY, encode(WhyQuery(node="late")), timeout=0.2)
    except NoResponders:
        return True
    except BusUnavailable:  # the query was received before the drain, and is waiting
        pass
    return False


async def test_queries_beyond_the_limit_wait(make_bus: MakeBus) -> None:
    scheduler, asker = Scheduler(), await make_bus(ASKER)
    async with scheduler.responder(await make_bus(SERVICE), concurrent=2):
        queries = [asyncio.ensure_future(why(asker, f"n{index}")) for index in range(6)]
        await eventually(lambda: scheduler.received == 2)
        await asker.request(subjects.service("PING"), b"")
        assert scheduler.received == 2
        scheduler.answering.set()
        assert len(await asyncio.gather(*queries)) == 6


async def test_draining_answers_received_queries(make_bus: MakeBus) -> None:
    scheduler, asker = Scheduler(), await make_bus(ASKER)
    async with scheduler.responder(await make_bus(SERVICE), concurrent=3) as responder:
        queries = [asyncio.ensure_future(why(asker, f"n{index}")) for index in range(10)]
        await eventually(lambda: scheduler.received == 3)
        # Its answer shows that the other queries, sent before, have arrived.
        await asker.request(subjects.service("PING"), b"")
        draining = asyncio.ensure_future(responder.drain())
        await eventually(lambda: has_no_responder(asker))
        assert not draining.done()
        scheduler.answering.set()
        await draining
        answers = await asyncio.gather(*queries)
        assert answers == [WhyAnswer(node=f"n{index}") for index in range(10)]


async def test_instances_share_queries_and_are_each_discoverable(make_bus: MakeBus) -> None:
    scheduler, asker = Scheduler(), await make_bus(ASKER)
    scheduler.answering.set()
    async with (
        scheduler.responder(await make_bus(SERVICE)) as first,
        scheduler.responder(await make_bus(SERVICE)) as second,
    ):
        await asyncio.gather(*(why(asker, f"n{index}") for index in range(60)))
        assert scheduler.received == 60
        counts: list[int] = []
        for instance in (first, second):
            stats = await asker.request(subjects.service("STATS", "scheduler", instance.id), b"")
            counts.append(json.loads(stats)["endpoints"][0]["num_requests"])
        assert sum(counts) == 60
        assert min(counts) > 0


async def test_a_malformed_query_is_answered_with_an_error(make_bus: MakeBus) -> None:
    scheduler, asker = Scheduler(), await make_bus(ASKER)
    async with scheduler.responder(await make_bus(SERVICE)):
        problem = decode(QueryError, await asker.request(WHY, b"?"))
        assert problem.code == QueryErrorCode.UNREADABLE
        assert scheduler.received == 0


async def test_a_service_answers_after_an_outage(make_bus: MakeBus, control: ServerControl) -> None:
    scheduler, asker, service = Scheduler(), await make_bus(ASKER), await make_bus(SERVICE)
    scheduler.answering.set()
    async with scheduler.responder(service):
        await control.stop()
        await eventually(lambda: not asker.link.is_up and not service.link.is_up)
        await control.start()
        await eventually(lambda: asker.link.is_up)
        assert await why(asker, "n") == WhyAnswer(node="n")


# On NATS only: plain clients.


@pytest.fixture
async def server() -> AsyncIterator[NatsServer]:
    async with NatsServer() as running:
        yield running


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[NatsBus]:
    async with connect(url=server.url, identity=SERVICE, env=make_env()) as connected:
        yield connected


@pytest.fixture
async def client(server: NatsServer) -> AsyncIterator[Client]:
    """A plain client, as `nats --inbox-prefix` connects it."""
    client = Client()
    await client.connect(server.url, inbox_prefix=subjects.inbox(ASKER).encode())  # pyright: ignore[reportUnknownMemberType]
    yield client
    await client.close()


async def test_nats_py_discovers_a_service(bus: NatsBus, client: Client) -> None:
    scheduler = Scheduler()
    scheduler.answering.set()
    async with scheduler.responder(bus) as responder:
        await client.request(WHY, encode(WhyQuery(node="n")), timeout=10)

        async def discover(*tokens: str) -> Any:
            answer = await client.request(subjects.service(*tokens), timeout=10)
            assert answer.headers is None
            return json.loads(answer.data)

        for tokens in ((), ("scheduler",), ("scheduler", responder.id)):
            ping = ServicePing.from_dict(await discover("PING", *tokens))
            assert (ping.name, ping.id, ping.version) == ("scheduler", responder.id, "1.2.3")
            info = ServiceInfo.from_dict(await discover("INFO", *tokens))
            assert [(e.name, e.subject, e.queue_group) for e in info.endpoints] == [
                ("why", WHY, "q")
            ]
            stats = ServiceStats.from_dict(await discover("STATS", *tokens))
            assert [(e.num_requests, e.num_errors) for e in stats.endpoints] == [(1, 0)]


async def test_the_headers_of_a_query_are_not_echoed(bus: NatsBus, client: Client) -> None:
    scheduler = Scheduler()
    scheduler.answering.set()
    async with scheduler.responder(bus):
        answer = await client.request(
            WHY, encode(WhyQuery(node="n")), timeout=10, headers={"Secret": "x", "Nats-Msg-Id": "1"}
        )
        assert decode(WhyAnswer, answer.data) == WhyAnswer(node="n")
        assert answer.headers is None


@pytest.mark.parametrize(
    "reply",
    [
        str(subjects.State(cluster="default", node="b", component="driver", kind="facts")),
        "somewhere.else",
        subjects.inbox(Identity(writer=Writer.DRIVER, node="b")) + ".x",
        subjects.inbox(Identity(cluster="other", writer=Writer.CTL)) + ".x",
    ],
)
async def test_no_answer_is_sent_to_a_forbidden_reply_subject(
    bus: NatsBus, client: Client, reply: str
) -> None:
    scheduler, received = Scheduler(), list[bytes]()
    scheduler.answering.set()

    async def on_message(message: Any) -> None:
        received.append(message.data)

    await client.subscribe(reply, cb=on_message)  # pyright: ignore[reportUnknownMemberType]
    async with scheduler.responder(bus) as responder:
        for subject in (WHY, subjects.service("PING"), subjects.service("INFO", "scheduler")):
            await client.publish(subject, encode(WhyQuery(node="n")), reply=reply)
        await eventually(lambda: responder.undeliverable == 3)
        await client.publish(reply, b"end of test")
        await eventually(lambda: len(received) > 0)
        assert received == [b"end of test"]
        assert scheduler.received == 0


async def test_a_too_long_answer_becomes_an_error(bus: NatsBus, client: Client) -> None:
    scheduler = Scheduler()
    scheduler.answering.set()
    scheduler.long = "x" * 2_000_000
    async with scheduler.responder(bus):
        answer = await client.request(WHY, encode(WhyQuery(node="n")), timeout=10)
        assert decode(QueryError, answer.data).code == QueryErrorCode.INTERNAL
