"""Attack every reader of the bus with random operations under each identity's token.

`fuzz_bus` may run for long; the test in `test_fuzz_bus` runs it with a few seeds.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

import msgspec

from libs.bus.events import RecordedEvent, read_events
from libs.bus.heartbeats import HeartbeatMonitor
from libs.bus.nats.bus import NatsBus
from libs.bus.queries import QueryResponder
from libs.bus.reports import ReportCache
from libs.bus.slot_cache import SlotCache
from libs.bus.slots import SlotReader
from libs.bus.telemetry import TelemetryCollector
from libs.contracts import subjects, telemetry
from libs.contracts.commands import Command, Idle, Order
from libs.contracts.events import CommandEvent, Event
from libs.contracts.identities import COMPONENTS, Identity, Writer
from libs.contracts.message import MAJOR, encode
from libs.contracts.queries import QueryVerb, StatusAnswer, StatusQuery
from libs.contracts.reports import Beat, Report, Usage
from libs.contracts.senders import report_subjects
from libs.contracts.subjects import COMMANDS, EVENTS, STATE
from libs.contracts.telemetry import Batch
from libs.runtime.clock import SystemClock
from libs.testing.bus.queries import send_query
from libs.testing.simulation import make_env
from tests.security.fuzz_messages import operation
from tests.security.identities import (
    A_DRIVER,
    A_TELEMETRY,
    B_DRIVER,
    B_TELEMETRY,
    BYSTANDER,
    CTL,
    DISCOVERY_CLUSTER,
    DRIVER_CLUSTER,
    SCHEDULER,
    TELEMETRY_CLUSTER,
    VALIDATOR_CLUSTER,
    batch,
    beat,
    event,
    notification,
    slot,
    state,
)
from tests.security.world import World
from tests.support import eventually

ATTACKERS = (
    *(A_DRIVER, A_TELEMETRY, BYSTANDER, CTL, SCHEDULER),
    *(DISCOVERY_CLUSTER, DRIVER_CLUSTER, VALIDATOR_CLUSTER, TELEMETRY_CLUSTER),
)
OPERATIONS = 120
"""Per attacker and seed."""


class RawSocket:
    """A connection without any client library; connects again when the server closes it."""

    def __init__(self, *, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def send(self, data: bytes) -> None:
        with suppress(OSError):
            if self._writer is None or self._reading is None or self._reading.done():
                await self._connect()
            assert self._writer is not None
            self._writer.write(data)
            await self._writer.drain()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        self._writer = self._reading = None

    async def _connect(self) -> None:
        await self.close()
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        options = {
            "auth_token": self._token,
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
        }
        self._writer.write(b"CONNECT " + msgspec.json.encode(options) + b"\r\nPING\r\n")
        await self._writer.drain()
        self._reading = asyncio.create_task(_discard(reader), name="discard")


async def _discard(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(65_536):
            pass


class Readers:
    """Every reader of the bus, on the connections of its services."""

    def __init__(self) -> None:
        self.buses: dict[Identity, NatsBus] = {}
        self.failures: list[str] = []
        self.reports: ReportCache
        self.slots = SlotCache()
        self.beats: HeartbeatMonitor
        self.batches: list[Batch] = []
        self.events: list[str] = []
        self.notified = asyncio.Event()

    @asynccontextmanager
    async def run(self, world: World) -> AsyncGenerator[None]:
        clock = SystemClock()
        readers = (SCHEDULER, TELEMETRY_CLUSTER, CTL, B_DRIVER, B_TELEMETRY)
        self.buses = {each: await world.bus(each) for each in readers}
        bus = self.buses[SCHEDULER]
        self.reports = ReportCache(bus=bus, clock=clock, cluster="default")
        self.beats = HeartbeatMonitor(bus=bus, clock=clock, cluster="default")
        collector = TelemetryCollector(
            bus=self.buses[TELEMETRY_CLUSTER], cluster="default", on_batch=self._collect
        )
        responder = QueryResponder(
            bus=bus,
            env=make_env(),
            name="scheduler",
            version="1.0.0",
            handlers={QueryVerb.STATUS: _status},
            concurrent=4,
        )
        async with AsyncExitStack() as stack:
            for context in (self.reports, self.beats, collector, responder, self.slots.follow(bus)):
                await stack.enter_async_context(cast("Any", context))
            agent = self.buses[B_DRIVER]
            await agent.subscribe(notification(slot(B_DRIVER)), self._notified)
            for each in self.buses.values():
                each.link.watch(partial(self._link_changed, each))
            tasks = [
                asyncio.create_task(self._watch(each, each.guard()), name="guard")
                for each in self.buses.values()
            ]
            tasks.append(
                asyncio.create_task(
                    self._watch(self.buses[CTL], self._read_events()), name="events"
                )
            )
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    def _notified(self, _subject: str, _data: bytes, _reply: str) -> None:
        self.notified.set()

    def _link_changed(self, bus: NatsBus, up: bool) -> None:
        if not up:
            self.failures.append(f"{bus.identity}: the link broke")

    def _collect(self, batch: Batch) -> None:
        if batch.node == B_TELEMETRY.node:
            self.batches.append(batch)

    async def _read_events(self) -> None:
        async with read_events(bus=self.buses[CTL], cluster="default", follow=True) as entries:
            async for entry in entries:
                if isinstance(entry, RecordedEvent):
                    self.events.append(entry.event.id)

    async def _watch(self, bus: NatsBus, running: Any) -> None:
        try:
            await running
        except Exception as error:  # noqa: BLE001  (whatever it is, the test names it)
            self.failures.append(f"{bus.identity}: {error!r}")


async def _status(_: StatusQuery) -> StatusAnswer:
    return StatusAnswer(at=1.0, leader="me")


async def fuzz_bus(world: World, seeds: range) -> None:
    """Attack with each seed; raise `AssertionError` unless every reader still works after each."""
    readers = Readers()
    async with readers.run(world):
        for seed in seeds:
            sockets = {
                each: RawSocket(port=world.server.port, token=world.sign_in.tokens[each])
                for each in ATTACKERS
            }
            chance = random.Random(f"bus {seed}")
            for _ in range(OPERATIONS):
                for identity, socket in sockets.items():
                    await socket.send(operation(chance, identity))
            for socket in sockets.values():
                await socket.close()
            await _check(readers, world, mark=f"seed-{seed}")


async def _check(readers: Readers, world: World, *, mark: str) -> None:
    """Require that every reader gets a valid message, and that none had to reconnect."""
    buses = readers.buses
    agent, sender = buses[B_DRIVER], buses[B_TELEMETRY]
    of_b = _of_b(mark)
    name, uid, boot = of_b.values()
    report = Report.of(Usage(), **of_b, component=B_DRIVER.writer, at=1.0)
    await agent.store(STATE, state(B_DRIVER, "usage"), encode(report))
    alive = Beat(node=name, node_uid=uid, boot_id=boot, component="driver")
    batch_of_b = Batch(MAJOR, name, uid, boot, mark, 0, 1.0, "580", [])
    await agent.store(EVENTS, event(B_DRIVER), encode(_event(mark)))
    await eventually(lambda: readers.reports.get(B_DRIVER.node, "driver", "usage") == report)

    # Sent until it arrives: the operations before may have used up what is read in a second.
    async def beats() -> bool:
        await agent.publish(beat(B_DRIVER), encode(alive))
        return _boot_of_b(readers) == mark

    async def sends() -> bool:
        await sender.publish(batch(B_TELEMETRY), telemetry.encode(batch_of_b))
        return readers.batches[-1:] == [batch_of_b]

    await eventually(beats)
    await eventually(sends)
    await eventually(lambda: mark in readers.events)
    await _check_slot(readers, world, mark=mark)
    answer = await send_query(
        StatusQuery(),
        bus=buses[CTL],
        clock=SystemClock(),
        cluster="default",
        service=Writer.SCHEDULER,
        timeout=10.0,
    )
    assert answer == StatusAnswer(at=1.0, leader="me")
    assert readers.failures == []
    _check_memory(readers)


async def _check_slot(readers: Readers, world: World, *, mark: str) -> None:
    command = Command.of(Idle(), **_of_b(mark), epoch=1, order=Order(1, 1), deadline=1.0)
    readers.notified.clear()
    await world.scheduler.store(COMMANDS, slot(B_DRIVER), encode(command))
    await eventually(readers.notified.is_set)
    await eventually(lambda: readers.slots.commands_of(B_DRIVER.node).get("driver") == command)
    parsed = subjects.parse(slot(B_DRIVER))
    assert isinstance(parsed, subjects.Command)
    reader = SlotReader(bus=readers.buses[B_DRIVER], env=make_env(), slot=parsed, kind=Command)
    read = await reader.read()
    assert read is not None
    assert read.content == command


def _check_memory(readers: Readers) -> None:
    """Require that no node takes more of the readers' memory than the contracts allow."""
    for node in readers.reports.nodes():
        held = readers.reports.reports(node)
        known = [
            str(each)
            for component in COMPONENTS
            for each in report_subjects(component, cluster="default", node=node)
        ]
        assert {str(subject) for subject, _ in held} <= set(known)
        assert sum(len(report.body) for _, report in held) <= len(known) * STATE.max_message
    nodes = {each.node for each in (A_DRIVER, B_DRIVER, BYSTANDER)}
    assert set(readers.reports.nodes()) <= nodes


def _of_b(mark: str) -> dict[str, Any]:
    return {"node": B_DRIVER.node, "node_uid": "uid", "boot_id": mark}


def _boot_of_b(readers: Readers) -> str:
    last = readers.beats.last(B_DRIVER.node, "driver")
    return last.beat.boot_id if last else ""


def _event(mark: str) -> Event:
    return Event.of(
        CommandEvent(epoch=1, token=1, op=1, command="idle", phase="started"),
        id=mark,
        at=1.0,
        writer=B_DRIVER.writer,
        message="a message",
        node=B_DRIVER.node,
        node_uid="uid",
    )
