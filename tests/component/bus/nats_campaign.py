"""One seeded run of writers and an agent on a real server, with faults; the test judges it."""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from libs.bus.commands.executor import Op, OpDone
from libs.bus.commands.receiver import CommandReceiver
from libs.bus.events import RecordedEvent, read_events
from libs.bus.journal import FileJournal
from libs.bus.nats.bus import NatsBus, connect
from libs.bus.port import BusError, BusRetry
from libs.bus.reporter import Reporter
from libs.bus.reports import ReportCache
from libs.bus.slots import SlotOutranked, SlotWriter, SlotWritten
from libs.contracts import subjects
from libs.contracts.commands import Command, CommandBody, CommandKind, Idle, Order, Quiesce, Swap
from libs.contracts.events import Event, FactsEvent
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Report, Result, StateKind, Usage
from libs.contracts.subjects import COMMANDS, EVENTS, STREAMS, State
from libs.runtime.clock import SystemClock
from libs.testing.nats import NatsServer
from libs.testing.proxy import Proxy
from libs.testing.simulation import make_env
from tests.component.bus.campaign_leaders import next_order
from tests.support import eventually

NODE, UID, BOOT = "gpu-1.example", "uid-1", "boot-1"
SCHEDULER = Identity(writer=Writer.SCHEDULER)
READER = Identity(writer=Writer.DRIVER_CLUSTER)
AGENT = Identity(writer=Writer.DRIVER, node=NODE)
SLOT = subjects.Command(cluster="default", node=NODE, component=Writer.DRIVER)
WITHIN = 60.0


class NatsAgentProcess:
    """The tasks and the connection of one process of the agent."""

    def __init__(
        self,
        bus: NatsBus,
        stack: AsyncExitStack,
        receiver: CommandReceiver,
        tasks: asyncio.Task[None],
    ):
        self.bus = bus
        self.receiver = receiver
        self._stack = stack
        self._tasks = tasks

    async def kill(self) -> None:
        """Kill the process between any two steps."""
        self._tasks.cancel()
        await asyncio.gather(self._tasks, return_exceptions=True)
        await self._stack.aclose()


class NatsCampaign:
    """One run: call `play`, then read `effects`, `taken` and `last`."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.journal = folder / f"{seed}.journal"
        self.effects: list[Command] = []
        self.taken: list[Result] = []
        self.epoch = 1
        self.numbers = 1
        self.token = 1
        self.last: Command | None = None
        self.agent: NatsAgentProcess | None = None
        self.stored: set[int] = set()
        """The numbers of the stored events."""
        self.owed = frozenset[int]()
        """The numbers of the events that the reader must find."""
        self.recorded: list[int] = []
        self.last_reported = 0
        """The newest report of the agent."""

    async def play(self) -> None:
        async with AsyncExitStack() as stack:
            self.server = await stack.enter_async_context(NatsServer())
            self.proxy = await stack.enter_async_context(Proxy("127.0.0.1", self.server.port))
            self.writer = await self._connect(stack, self.server.url, SCHEDULER)
            reader = await self._connect(stack, self.server.url, READER)
            for stream in STREAMS:
                await self.writer.ensure(stream)
            cache = ReportCache(bus=reader, clock=SystemClock(), cluster="default")
            cache.on_change(self._observe)
            await stack.enter_async_context(cache)
            try:
                await self._start_agent()
                for _ in range(self.chance.randint(6, 10)):
                    await self._command()
                    await asyncio.sleep(self.chance.expovariate(1.0))
                    await self.chance.choice(self._troubles())()
                await self._last_command()
                await self._last_report(cache)
                await self._read_events(reader)
            finally:
                if self.agent is not None:
                    await self.agent.kill()

    async def _connect(self, stack: AsyncExitStack, url: str, identity: Identity) -> NatsBus:
        connection = connect(
            url=url,
            identity=identity,
            env=make_env(random=self.chance),
            wait=WITHIN,
        )
        return await stack.enter_async_context(connection)

    def _observe(self, _of: State, _before: Report | None, after: Report | None) -> None:
        if after is None or after.kind is not StateKind.RESULT:
            return
        result = after.open()
        assert isinstance(result, Result)
        if not self.taken or result.order > self.taken[-1].order:
            self.taken.append(result)

    # The agent.

    async def _start_agent(self) -> None:
        stack = AsyncExitStack()
        bus = await self._connect(stack, self.proxy.url, AGENT)
        reporter = Reporter(
            bus=bus,
            env=make_env(random=self.chance),
            node_uid=UID,
            boot_id=BOOT,
        )
        kinds = (CommandKind.QUIESCE, CommandKind.IDLE, CommandKind.SWAP)
        receiver = CommandReceiver(
            bus=bus,
            env=make_env(random=self.chance),
            journal=FileJournal(self.journal, run=asyncio.to_thread),
            reporter=reporter,
            node_uid=UID,
            boot_id=BOOT,
            handlers=dict.fromkeys(kinds, self._work),
            checks={},
        )

        retry = BusRetry(env=make_env(random=self.chance))
        subject = subjects.Event(
            cluster="default", node=NODE, writer=bus.identity.writer, kind="facts"
        )

        async def publish_facts() -> None:
            for number in itertools.count(self.numbers):
                self.numbers = number + 1
                event = Event.of(
                    FactsEvent(changed=(str(number),)),
                    id=str(number),
                    at=time.time(),
                    writer=bus.identity.writer,
                    message="A fact changed.",
                    node=NODE,
                )
                await retry.until_success(
                    partial(bus.store, EVENTS, str(subject), encode(event), id=event.id)
                )
                self.stored.add(number)
                self.last_reported = number
                reporter.report(Usage(host_processes=number))
                await asyncio.sleep(0.02)

        async def live() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(reporter.run())
                group.create_task(receiver.run())
                group.create_task(publish_facts())

        self.agent = NatsAgentProcess(
            bus, stack, receiver, asyncio.create_task(live(), name="agent")
        )

    async def _work(self, op: Op) -> OpDone:
        for step in range(self.chance.randint(1, 3)):
            await op.checkpoint(f"step {step}")
            self.effects.append(op.command)
            await asyncio.sleep(self.chance.uniform(0.0, 0.05))
        return OpDone()

    # The writers.

    async def _command(self) -> None:
        """Write a command; sometimes as a deposed leader."""
        slots = SlotWriter(bus=self.writer, clock=SystemClock())
        old = self.epoch > 1 and self.chance.random() < 0.2
        if not old and self.chance.random() < 0.2:
            self.epoch += 1
        try:
            await self._write(slots, self.epoch - old, self._body())
        except BusError:
            return

    async def _write(self, slots: SlotWriter, epoch: int, body: CommandBody) -> Command | None:
        slot = await slots.read(SLOT)
        known = [slot.content.order if slot and slot.content else None, self._highest()]
        if self.chance.random() < 0.2:
            self.token += 1
        self.token = max([self.token, *(order.token for order in known if order)])
        command = Command.of(
            body,
            node=NODE,
            node_uid=UID,
            boot_id=BOOT,
            epoch=epoch,
            order=next_order(self.token, *known),
            deadline=4e9,
        )
        answer = await slots.write(SLOT, command)
        assert isinstance(answer, SlotWritten | SlotOutranked)
        return command if isinstance(answer, SlotWritten) else None

    def _highest(self) -> Order | None:
        return self.agent.receiver.seen.order if self.agent else None

    def _body(self) -> CommandBody:
        return self.chance.choice([Quiesce(), Idle(), Swap(label="a"), Swap(label="b")])

    async def _last_command(self) -> None:
        """Write a last command without faults, and wait for its result."""
        self.proxy.restore()
        self.epoch += 1
        while self.last is None:
            try:
                slots = SlotWriter(bus=self.writer, clock=SystemClock())
                self.last = await self._write(slots, self.epoch, Idle())
            except BusError:
                await asyncio.sleep(0.05)
        order = self.last.order
        await eventually(
            lambda: self.taken[-1:] != [] and self.taken[-1].order == order, within=WITHIN
        )

    async def _last_report(self, cache: ReportCache) -> None:
        """Wait until the cache holds the agent's last report."""
        assert self.agent is not None

        def is_cached() -> bool:
            report = cache.get(NODE, Writer.DRIVER, StateKind.USAGE)
            usage = report.open() if report else None
            return isinstance(usage, Usage) and usage.host_processes >= self.last_reported

        await eventually(is_cached, within=WITHIN)

    async def _read_events(self, bus: NatsBus) -> None:
        # The agent continues to publish, and the stream drops its oldest events meanwhile.
        self.owed = frozenset(sorted(self.stored)[-EVENTS.per_subject // 2 :])
        reading = read_events(bus=bus, cluster="default")
        async with reading as entries:
            async for entry in entries:
                assert isinstance(entry, RecordedEvent)
                body = entry.event.open()
                assert isinstance(body, FactsEvent)
                self.recorded.append(int(body.changed[0]))

    # Faults.

    def _troubles(self) -> list[Callable[[], Awaitable[None]]]:
        return [
            self._nothing,
            self._kill_server,
            self._lose_commands,
            self._cut,
            self._cut_in_a_message,
            self._restart_agent,
            self._restart_agent,
        ]

    async def _nothing(self) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, 0.3))

    async def _kill_server(self) -> None:
        await self.server.kill()
        await asyncio.sleep(self.chance.uniform(0.0, 0.2))
        await self.server.start()

    async def _lose_commands(self) -> None:
        await self.server.lose_stream(COMMANDS.name)
        await eventually(lambda: self.writer.link.is_up, within=WITHIN)
        await self.writer.ensure(COMMANDS)

    async def _cut(self) -> None:
        self.proxy.cut(reset=self.chance.random() < 0.5)

    async def _cut_in_a_message(self) -> None:
        self.proxy.cut_after(self.chance.randint(1, 400), way=self.chance.choice(["up", "down"]))
        await asyncio.sleep(self.chance.uniform(0.0, 0.3))
        self.proxy.restore()

    async def _restart_agent(self) -> None:
        if self.agent is not None:
            await self.agent.kill()
            self.agent = None
        await self._start_agent()
