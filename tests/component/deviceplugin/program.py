"""The program of the device plugin on a machine with a stand-in for NVIDIA's library."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from libs.bus.reports import ReportCache
from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import Command, Idle, Order, Quiesce
from libs.contracts.identities import Writer
from libs.contracts.reports import Result, StateKind
from libs.host.cdi import published
from libs.host.cdi.spec import Device, Edits, encode, make_spec
from libs.host.tree import Tree
from libs.runtime.clock import SystemClock
from libs.testing.child_process import ChildProcess
from libs.testing.nvml import library
from tests.component.gpus.machine import StandInMachine
from tests.component.programs import Programs, run_programs
from tests.unit.fake_machine import BOOT, FakeMachine

NODE = {"node": "a", "node_uid": "uid-1"}


class Plugin:
    def __init__(self, programs: Programs, bench: StandInMachine, child: ChildProcess) -> None:
        self.bench = bench
        self.child = child
        self._programs = programs
        self._op = 0

    @property
    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.bench.stand_in.gpus]

    async def send(self, body: Quiesce | Idle) -> Result:
        """Send a command, and return the result that the agent reports."""
        clock = SystemClock()
        self._op += 1
        order = Order(1, self._op)
        command = Command.of(
            body, boot_id=BOOT, epoch=1, order=order, deadline=clock.now() + 60.0, **NODE
        )
        slot = subjects.Command(cluster="default", node="a", component=Writer.PLUGIN)
        async with self._programs.connect(Writer.SCHEDULER) as bus:
            await SlotWriter(bus=bus, clock=clock).write(slot, command)
            async with ReportCache(bus=bus, clock=clock, cluster="default") as reports:
                while True:
                    found = reports.get("a", Writer.PLUGIN, StateKind.RESULT)
                    result = None if found is None else found.open()
                    if isinstance(result, Result) and result.order == order:
                        return result
                    await asyncio.sleep(0.05)


def cdi_spec(bench: StandInMachine) -> bytes:
    """Return a spec by which a container sees in its environment which GPU it has."""
    devices = [
        Device(name=gpu.uuid, container_edits=Edits(env=(f"GIVEN_{number}={gpu.uuid}",)))
        for number, gpu in enumerate(bench.stand_in.gpus)
    ]
    return encode(make_spec(published.GPU_KIND, common=Edits(), devices=tuple(devices)))


@asynccontextmanager
async def plugin_on(
    bench: StandInMachine, folder: Path, *, sockets: Path, **settings: str
) -> AsyncGenerator[Plugin]:
    """Run the device plugin on the machine; `sockets` is the folder of its kubelet."""
    async with run_programs(folder) as programs:
        FakeMachine(bench.root).set_modules("nvidia")
        Tree(bench.root).write(published.GPU_FILE, cdi_spec(bench))
        await programs.create_streams()
        child = await programs.start_agent(
            "driver",
            role="plugin",
            host=bench.root,
            nvml_library=str(library()),
            device_plugins=str(sockets),
            environ=bench.stand_in.environment,
            **NODE,
            **settings,
        )
        yield Plugin(programs, bench, child)
