"""The driver agent's program, over NATS, is killed (SIGKILL) while it divides GPUs."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from libs.bus.port import Bus
from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import Command, GpuGeometry, Mig, Order
from libs.contracts.identities import Writer
from libs.contracts.message import decode
from libs.contracts.reports import Outcome, Report, Result
from libs.contracts.subjects import STATE
from libs.runtime.clock import SystemClock
from libs.testing.nvml import library
from tests.builders.fake_machine import BOOT, FakeMachine
from tests.component.gpus.conftest import bench
from tests.component.gpus.machine import StandInMachine
from tests.component.programs import Programs, run_programs
from tests.unit.driver.node.mig_world import MIXED, OFF, SEVEN, VERSION, facts, uuids_of

__all__ = ["bench"]

NODE, UID = "a", "uid-1"
KILLS = 2
"""The most kills of one op, each after the program has changed something."""


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Programs]:
    async with run_programs(tmp_path) as programs:
        yield programs


LOOKS_PER_RESULT = 25


class Node:
    """A machine with the stand-in's GPUs, and a scheduler that sends commands to its agent."""

    def __init__(self, programs: Programs, bench: StandInMachine, scheduler: Bus) -> None:
        self._programs = programs
        self._bench = bench
        self._scheduler = scheduler
        self._clock = SystemClock()
        self._machine = FakeMachine(programs.folder / "machine")
        self._machine.load_driver(VERSION)
        (self._uuid, *_) = uuids_of(bench.gpus)

    async def send_mig(self, number: int, wanted: Sequence[str] | None) -> Order:
        geometry = GpuGeometry(
            uuid=self._uuid, index=0, mig=wanted is not None, profiles=tuple(wanted or ())
        )
        command = Command.of(
            Mig(config="test", digest="d", gpus=(geometry,)),
            node=NODE,
            node_uid=UID,
            boot_id=BOOT,
            epoch=1,
            order=Order(1, number),
            deadline=self._clock.now() + 300.0,
        )
        slot = subjects.Command(cluster="default", node=NODE, component="driver")
        await SlotWriter(bus=self._scheduler, clock=self._clock).write(slot, command)
        return command.order

    async def result(self, order: Order) -> Result | None:
        subject = subjects.State(cluster="default", node=NODE, component="driver", kind="result")
        found = await self._scheduler.last(STATE, str(subject))
        body = None if found is None else decode(Report, found.data).open()
        return body if isinstance(body, Result) and body.order == order else None

    def changes(self) -> tuple[int, int]:
        """Return what every change of the GPU changes."""
        mig = self._bench.stand_in.gpus[0].mig
        return mig.mode, sum(each.serial for each in mig.gpu_instances)

    async def run_agent(self, order: Order, *, is_killed: bool) -> Result | None:
        """Run the program until the op has ended, or is killed after its first change."""
        before = self.changes()
        agent = await self._programs.start_agent(
            "driver",
            host=self._machine.root,
            environ=self._bench.stand_in.environment,
            node=NODE,
            node_uid=UID,
            nvml_library=str(library()),
            change_this_machine="true",
        )
        result: Result | None = None
        for look in itertools.count():
            # The GPU's state is shared memory; a result costs a request, and may be late.
            if is_killed and self.changes() != before:
                break
            if look % LOOKS_PER_RESULT == 0 and (result := await self.result(order)):
                break
            await asyncio.sleep(0.002)
        await agent.end(signal.SIGKILL, code=-signal.SIGKILL)
        return result


@pytest.mark.dear("the program starts again after each kill")
async def test_a_program_that_was_killed_goes_on_where_it_was(
    programs: Programs, bench: StandInMachine
) -> None:
    await programs.create_streams()
    kills = 0
    async with programs.connect(Writer.SCHEDULER) as scheduler:
        node = Node(programs, bench, scheduler)
        for number, wanted in enumerate((SEVEN, MIXED, OFF), start=1):
            order = await node.send_mig(number, wanted)
            for left in range(KILLS, -1, -1):
                if result := await node.run_agent(order, is_killed=left > 0):
                    assert result.outcome is Outcome.DONE
                    break
                kills += 1
            assert await node.result(order)
            assert facts(bench.gpus)[0] == wanted
    assert kills > 3
