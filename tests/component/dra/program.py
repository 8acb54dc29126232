"""The program of the plugin for claims, on a machine with a stand-in for NVIDIA's library."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from libs.contracts.identities import Writer
from libs.host.cdi import published
from libs.host.tree import Tree
from libs.testing.nvml import library
from tests.builders.fake_machine import FakeMachine
from tests.component.command_sender import CommandSender
from tests.component.deviceplugin.program import cdi_spec
from tests.component.gpus.machine import StandInMachine
from tests.component.programs import Programs, run_programs

if TYPE_CHECKING:
    from libs.testing.child_process import ChildProcess


class DraPlugin:
    """Runs from `start` to `kill`, and again."""

    def __init__(
        self, programs: Programs, bench: StandInMachine, settings: Mapping[str, str]
    ) -> None:
        self.programs = programs
        self.bench = bench
        self.settings = settings
        node = {name: settings[name] for name in ("node", "node_uid")}
        self.send = CommandSender(programs, Writer.DRA, node).send
        self.child: ChildProcess

    @property
    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.bench.stand_in.gpus]

    async def start(self) -> None:
        self.child = await self.programs.start_agent(
            "driver",
            role="dra",
            host=self.bench.root,
            nvml_library=str(library()),
            environ=self.bench.stand_in.environment,
            **self.settings,
        )


@asynccontextmanager
async def dra_on(
    bench: StandInMachine, folder: Path, *, kubelet: Path, **settings: str
) -> AsyncGenerator[DraPlugin]:
    """Run the plugin on the machine; `kubelet` is the folder of its kubelet."""
    async with run_programs(folder) as programs:
        FakeMachine(bench.root).set_modules("nvidia")
        Tree(bench.root).write(published.GPU_FILE, cdi_spec(bench))
        await programs.create_streams()
        folders = {
            "plugins": str(kubelet / "plugins"),
            "plugin_registry": str(kubelet / "plugins_registry"),
            "pod_resources": str(kubelet / "pod-resources/kubelet.sock"),
            "namespace": "",  # it is no pod, so the kubelet lists none of its namespace
        }
        plugin = DraPlugin(programs, bench, {**folders, **settings})
        await plugin.start()
        yield plugin
