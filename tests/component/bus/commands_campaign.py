"""One seeded run of leaders and an agent on the in-process bus, with faults; the test judges it.

A run records every command and report that was stored, each life of the agent's journal, and each
effect of its handler.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from libs.bus.commands.executor import Op, OpDone, OpFailed
from libs.bus.port import Bus, LastPerSubject
from libs.contracts import subjects
from libs.contracts.commands import Command, CommandKind, Order
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Entry
from libs.contracts.message import decode, encode
from libs.contracts.reports import Refusal, RefusalCode, Report, Result, StateKind
from libs.contracts.subjects import COMMANDS, STATE, STREAMS
from libs.runtime.fatal import Fatal
from libs.testing.bus import BusFaults, LocalServer, TraceRecord
from libs.testing.bus.memory_journal import MemoryJournal
from libs.testing.simulation import Sim
from tests.component.bus.campaign_leaders import Leader, ResultObserver
from tests.unit.bus.command_world import AGENT, NODE, SCHEDULER, SLOT, AgentProcess, persist

OBSERVER = Identity(writer=Writer.DRIVER_CLUSTER)
PERSON = Identity(writer=Writer.VALIDATOR_CLUSTER)
RESULTS = str(
    subjects.State(
        cluster="default", node=NODE, component=Writer.DRIVER, kind=StateKind.RESULT.value
    )
)
REFUSALS = RESULTS.replace("result", "refusal")


class Effect(msgspec.Struct, frozen=True):
    """A step of the handler."""

    life: int
    uid: str
    boot: str
    command: Command
    highest: int
    step: int


class JournalLife(msgspec.Struct):
    """A journal from its creation until its loss."""

    entries: list[Entry]
    results: list[tuple[str, Report, Result]]
    """Each stored result during this life, with the agent's boot."""


class CommandsCampaign:
    """One run: an agent, its leaders and faults."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.chance = sim.random_for("chaos")
        self.server = LocalServer(env=sim.env("bus"), faults=faults(self.chance))
        self.observer = ResultObserver()
        self.failures = list[Fatal]()
        self.effects: list[Effect] = []
        self.lives = [JournalLife([], [])]
        self.stored: list[list[Command]] = [[]]
        """The commands that leaders wrote into the slot, by life of COMMANDS."""
        self.refusals: list[Refusal] = []
        self.uid, self.boot = "uid-1", "boot-1"
        self.births = 1
        self.epoch = 0
        self.leaders: list[Leader] = []
        self.agent: AgentProcess | None = None
        self.steps_left = 0
        self.was_cut = asyncio.Event()
        self.quiet = False
        self.last: Command | None = None
        self.server.add_tracer(self._on_trace)

    # Trace of the bus.

    def _on_trace(self, record: TraceRecord) -> None:
        if record.action == "store" and record.subject == RESULTS:
            report = decode(Report, record.data)
            body = report.open()
            assert isinstance(body, Result)
            self.lives[-1].results.append((self.boot, report, body))
        elif record.action == "store" and record.subject == REFUSALS:
            body = decode(Report, record.data).open()
            assert isinstance(body, Refusal)
            self.refusals.append(body)
        elif (
            record.action == "store"
            and record.subject == str(SLOT)
            and record.identity == str(SCHEDULER)
        ):
            self.stored[-1].append(decode(Command, record.data))
        if record.identity == str(AGENT):
            self._count_step()

    def _count_step(self) -> None:
        """Count a step towards the planned kill, if there is one."""
        if self.steps_left:
            self.steps_left -= 1
            if not self.steps_left and self.agent is not None:
                self.agent.cut()
                self.was_cut.set()

    def highest_order(self) -> Order:
        """Return the highest order that the running agent has seen."""
        if self.agent is None or self.agent.uid != self.uid:
            return Order(0, 0)
        return self.agent.receiver.seen.order

    # The agent.

    def _start_agent(self) -> None:
        life = len(self.lives) - 1
        number = self.births
        self.births += 1

        async def pause() -> None:
            self._count_step()
            await self.sim.clock.sleep(self.chance.uniform(0.0, 0.02))

        async def handler(op: Op) -> OpDone | OpFailed:
            for step in range(self.chance.randint(0, 3)):
                await op.checkpoint(f"step {step}")
                effect(op, step)
                await self.sim.clock.sleep(self.chance.uniform(0.0, 8.0))
            op.progress("last")
            return OpFailed("chance", "drawn") if self.chance.random() < 0.1 else OpDone()

        def effect(op: Op, step: int) -> None:
            self._count_step()
            if not agent.bus.is_killed:
                highest = agent.receiver.seen.epoch
                self.effects.append(Effect(life, agent.uid, agent.boot, op.command, highest, step))

        agent = self.agent = AgentProcess(
            self.sim,
            self.server,
            MemoryJournal(self.lives[-1].entries, pause=pause),
            chance=self.sim.random_for(f"agent {number}"),
            failed=self.failures.append,
            handlers=dict.fromkeys(
                (CommandKind.QUIESCE, CommandKind.IDLE, CommandKind.SWAP), handler
            ),
            checks={},
            uid=self.uid,
            boot=self.boot,
        )
        agent.start()

    async def _stop_agent(self, *, steps: int = 0) -> None:
        """Kill the agent now, or after this many further steps."""
        assert self.agent is not None
        if steps:
            self.was_cut.clear()
            self.steps_left = steps
            try:
                async with asyncio.timeout(20.0):
                    await self.was_cut.wait()
            except TimeoutError:
                self.steps_left = 0
        await self.agent.kill()
        self.agent = None

    # Faults.

    async def _restart(self) -> None:
        await self._stop_agent(steps=self.chance.randint(0, 25))
        await self.sim.clock.sleep(self.chance.uniform(0.0, 10.0))
        self._start_agent()

    async def _restart_without_journal(self) -> None:
        await self._stop_agent(steps=self.chance.randint(0, 25))
        self.lives.append(JournalLife([], []))
        self._start_agent()

    async def _reboot(self) -> None:
        await self._stop_agent(steps=self.chance.randint(0, 25))
        await self.sim.clock.sleep(self.chance.uniform(0.0, 60.0))
        self.boot = f"boot-{self.births}"
        self._start_agent()

    async def _recreate(self) -> None:
        await self._stop_agent()
        self.uid = f"uid-{self.births}"
        self._start_agent()

    async def _lose_commands(self) -> None:
        self.server.lose_stream(COMMANDS, remade=True)
        self.stored.append([])

    async def _lose_state(self) -> None:
        self.server.lose_stream(STATE, remade=True)

    async def _replace_leader(self) -> None:
        if self.chance.random() < 0.6:
            await self.leaders[-1].kill()  # otherwise it continues as a deposed leader
        self._new_leader()

    async def _cut(self) -> None:
        identity = self.chance.choice([AGENT, SCHEDULER])
        self.server.cut(identity)
        await self.sim.clock.sleep(self.chance.uniform(0.0, 40.0))
        self.server.restore(identity)

    def _new_leader(self) -> None:
        self.epoch += 1
        self.leaders.append(Leader(self, self.epoch))

    async def chaos(self) -> None:
        """Cause some faults, one after another."""
        frequent: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self._restart,
            self._replace_leader,
            self._cut,
        ]
        rare = [
            self._restart_without_journal,
            self._reboot,
            self._recreate,
            self._lose_commands,
            self._lose_state,
        ]
        for _ in range(self.chance.randint(3, 9)):
            await self.sim.clock.sleep(self.chance.expovariate(1 / 12.0))
            await self.chance.choice(frequent if self.chance.random() < 0.6 else rare)()

    # The run.

    async def play(self) -> None:
        """Run chaos, then quiet, then one command of each kind that must be refused."""
        owner = self.server.connect(PERSON)
        for stream in STREAMS:
            await persist(self.sim.clock, partial(owner.ensure, stream))
        follow = self.server.connect(OBSERVER)
        reading = await follow.follow(STATE, RESULTS, self.observer, start=LastPerSubject())
        self._start_agent()
        self._new_leader()
        try:
            await self.chaos()
            for leader in self.leaders[:-1]:
                await leader.kill()
            self.quiet = True
            await self._until(self._settled)
            await self._refuse_all(owner)
        finally:
            for leader in self.leaders:
                await leader.kill()
            if self.agent is not None:
                await self.agent.kill()
            await reading.close()

    def _settled(self) -> bool:
        last = self.last
        if last is None or self.agent is None:
            return False
        receiver = self.agent.receiver
        observed = self.observer.last.get(self.uid) == last.order
        return observed and receiver.current == last

    async def _refuse_all(self, owner: Bus) -> None:
        last = self.last
        assert last is not None
        await self.leaders[-1].kill()
        change = msgspec.structs.replace
        later = {"op": last.op + 1, "kind": CommandKind.QUIESCE}
        for code, wrong in (
            (RefusalCode.OLDER_EPOCH, change(last, epoch=last.epoch - 1, **later)),
            (RefusalCode.OTHER_NODE, change(last, node_uid="uid-0", **later)),
            (RefusalCode.OLDER_TOKEN, change(last, token=last.token - 1)),
            (RefusalCode.OLDER_OP, change(last, op=last.op - 1)),
            (RefusalCode.OTHER_BOOT, change(last, boot_id="boot-0", **later)),
        ):
            data = encode(wrong)
            await persist(self.sim.clock, partial(owner.store, COMMANDS, str(SLOT), data))
            refusal = (code, wrong.epoch, wrong.order)
            await self._until(
                lambda refusal=refusal: (
                    refusal
                    in [(refusal.code, refusal.epoch, refusal.order) for refusal in self.refusals]
                )
            )

    async def _until(self, holds: Callable[[], bool]) -> None:
        end = self.sim.clock.monotonic() + 4 * 3600.0
        while not holds():
            assert self.sim.clock.monotonic() < end, f"not settled; wanted {self.last}"
            await self.sim.clock.sleep(1.0)


def faults(chance: random.Random) -> BusFaults:
    """Draw the faults of a run: from none to many."""
    bad = chance.choice([0.0, 0.5, 1.0])
    return BusFaults(
        lost=0.3 * bad,
        repeated=0.2 * bad,
        reordered=0.2 * bad,
        delayed=0.1 * bad,
        delay=(0.001, 2.0),
        call_lost=0.05 * bad,
        answer_lost=0.05 * bad,
        between_drops=(10.0, 120.0) if bad == 1.0 else None,
        dropped=(0.1, 15.0),
    )
