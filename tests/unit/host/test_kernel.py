"""The simulated kernel."""

from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import pytest

from libs.host.linux import UnloadResult
from libs.host.tree import Tree
from libs.testing.machines.base_files import PLAIN, create_base_files, gpus
from libs.testing.machines.host_tree import HostTree
from libs.testing.machines.kernel import SimulatedKernel
from tests.builders.manual_clock import ManualClock
from tests.unit.host.kernel_suite import KernelSuite

P = ParamSpec("P")
T = TypeVar("T")

VERSION = "580.95.05"


class SimulatedKernelFixture:
    def __init__(self, root: Path) -> None:
        self._clock = ManualClock()
        self._tree = Tree(root)
        cards = gpus("n1", 2, PLAIN.gpu)
        self.gpus = [gpu.pci for gpu in cards]
        self.version = VERSION
        files = HostTree(root)
        create_base_files(files, name="n1", system=PLAIN, gpus=cards)
        self._kernel = SimulatedKernel(files, gpus=cards, clock=self._clock)
        self._boots = 0
        self._boot()

    def _boot(self) -> None:
        self._boots += 1
        self._kernel.boot(boot_id=f"boot-{self._boots}", release="6.8.0", nouveau=False)

    async def read(
        self, function: Callable[Concatenate[Tree, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return function(self._tree, *args, **kwargs)

    async def unload(self, module: str) -> UnloadResult:
        return self._kernel.unload(module)

    async def unmount_below(self, path: str) -> str | None:
        return self._kernel.unmount_below(path)

    async def load_driver(self) -> None:
        self._kernel.load("nvidia", version=VERSION)
        for name in ("nvidia_uvm", "nvidia_modeset"):
            self._kernel.load(name, version=VERSION, uses=("nvidia",))

    async def start(self, comm: str, *, pod_uid: str = "", container_id: str = "") -> int:
        return self._kernel.start(comm, pod_uid=pod_uid, container_id=container_id)

    async def open(self, pid: int, *devices: str) -> bool:
        return self._kernel.open(pid, devices)

    async def close(self, pid: int) -> None:
        self._kernel.close(pid)

    async def end(self, pid: int) -> None:
        self._kernel.end(pid)

    async def mount(self, path: str) -> None:
        self._kernel.mount(path)

    async def reboot(self) -> None:
        self._kernel.halt()
        self._boot()

    async def now(self) -> float:
        return self._clock.now()

    async def wait(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


class TestSimulatedKernel(KernelSuite):
    @pytest.fixture
    def kernel(self, tmp_path: Path) -> SimulatedKernelFixture:
        return SimulatedKernelFixture(tmp_path)
