"""The kernel of the guest, as the suite of all kernels sees it."""

import asyncio
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from libs.host.linux import UnloadResult
from libs.host.tree import Tree
from libs.testing.guest import actions, processes
from libs.testing.guest.actions import STAND_IN_VERSION
from libs.testing.guest.guest import GPUS, Guest
from libs.testing.machines.kernel import cgroup_of

P = ParamSpec("P")
T = TypeVar("T")


class GuestKernelFixture:
    def __init__(
        self,
        guest: Guest,
        *,
        version: str = STAND_IN_VERSION,
        load: Callable[[], None] = actions.load_driver,
    ) -> None:
        """`load` loads the driver of this version, in the guest."""
        self.gpus = GPUS
        self.version = version
        self._load = load
        self.guest = guest

    async def read(
        self, function: Callable[Concatenate[Tree, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.guest.call(function, Tree("/"), *args, **kwargs)

    async def unload(self, module: str) -> UnloadResult:
        return await self.guest.call(actions.unload, module)

    async def unmount_below(self, path: str) -> str | None:
        return await self.guest.call(actions.unmount_below, path)

    async def load_driver(self) -> None:
        await self.guest.call(self._load)

    async def start(self, comm: str, *, pod_uid: str = "", container_id: str = "") -> int:
        cgroup = cgroup_of(pod_uid, container_id)
        return await self.guest.call(processes.start, comm, cgroup=cgroup)

    async def open(self, pid: int, *devices: str) -> bool:
        return await self.guest.call(processes.open_devices, pid, devices)

    async def close(self, pid: int) -> None:
        await self.guest.call(processes.close, pid)

    async def end(self, pid: int) -> None:
        await self.guest.call(processes.end, pid)

    async def mount(self, path: str) -> None:
        await self.guest.call(actions.mount, path)

    async def reboot(self) -> None:
        await self.guest.reboot()

    async def now(self) -> float:
        return await self.guest.call(actions.now)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
