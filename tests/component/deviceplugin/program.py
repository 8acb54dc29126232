"""The program of the device plugin on a machine with a stand-in for NVIDIA's library."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from libs.contracts.identities import Writer
from libs.host.cdi import published
from libs.host.cdi.spec import Device, Edits, encode, make_spec
from libs.host.tree import Tree
from libs.testing.child_process import ChildProcess
from libs.testing.nvml import library
from tests.builders.fake_machine import FakeMachine
from tests.component.command_sender import NODE, CommandSender
from tests.component.gpus.machine import StandInMachine
from tests.component.programs import Programs, run_programs


class Plugin:
    def __init__(self, programs: Programs, bench: StandInMachine, child: ChildProcess) -> None:
        self.bench = bench
        self.child = child
        self.send = CommandSender(programs, Writer.PLUGIN).send

    @property
    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.bench.stand_in.gpus]


def cdi_spec(bench: StandInMachine) -> bytes:
    """Return a spec by which a container sees in its environment which GPU it has."""
    devices = [
        Device(name=gpu.uuid, container_edits=Edits(env=(f"GIVEN_{number}={gpu.uuid}",)))
        for number, gpu in enumerate(bench.stand_in.gpus)
    ]
    return encode(make_spec(published.GPU_KIND, common=Edits(), devices=tuple(devices)))


@asynccontextmanager
async def plugin_on(
    bench: StandInMachine,
    folder: Path,
    *,
    sockets: Path,
    has_nats: bool = True,
    **settings: str,
) -> AsyncGenerator[Plugin]:
    """Run the device plugin on the machine; `sockets` is the folder of its kubelet."""
    async with run_programs(folder) as programs:
        FakeMachine(bench.root).set_modules("nvidia")
        Tree(bench.root).write(published.GPU_FILE, cdi_spec(bench))
        await programs.create_streams()
        if not has_nats:
            await programs.nats.stop()
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
