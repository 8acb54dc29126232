"""The driver agent on a machine whose GPUs can be divided, and that can be killed at any call."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from libs.contracts.commands import GpuGeometry, Mig, Order
from libs.contracts.reports import Result
from libs.host.gpus.division import Activation
from libs.host.gpus.memory_mig import MemoryMig
from libs.host.gpus.port import Gpus
from libs.policy.mig.geometry import found_geometry, mig_digest
from libs.policy.mig.profiles import largest_first
from libs.testing.nvml.products import H100
from libs.testing.simulation import Sim
from tests.builders.agent_world import in_world_of
from tests.builders.fake_machine import FakeDriver
from tests.unit.driver.node.world import World

T = TypeVar("T")

VERSION = "580.95.05"
SEVEN = ("1g.10gb",) * 7
MIXED = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")
OFF = None
"""Stands for a GPU whose MIG mode is off."""


class KillingOffload:
    """Does blocking calls until the agent is killed, if not before then after so many calls."""

    def __init__(self, *, after: int) -> None:
        self.is_killed = False
        self._left = after

    def kill(self) -> None:
        self.is_killed = True

    async def run(self, work: Callable[[], T]) -> T:
        if not self._left:
            self.is_killed = True
        self._left -= 1
        result = None if self.is_killed else work()
        if self.is_killed:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # the end of the simulated process
                raise asyncio.CancelledError
            await asyncio.Event().wait()
        return cast(T, result)


class KillingGpus:
    """GPUs whose agent is killed right after a change."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus
        self.on_change: Callable[[], object] = lambda: None
        self.changes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gpus, name)

    def set_mig_mode(self, uuid: str, *, on: bool) -> Activation:
        return self._changed(self._gpus.set_mig_mode(uuid, on=on))

    def create_instance(self, uuid: str, *args: Any, **more: Any) -> None:
        self._changed(self._gpus.create_instance(uuid, *args, **more))

    def destroy_instance(self, uuid: str, number: int) -> None:
        self._changed(self._gpus.destroy_instance(uuid, number))

    def _changed(self, result: T) -> T:
        self.changes += 1
        self.on_change()
        return result


class MigWorld(World):
    """`gpus` are those in memory, or other ones."""

    def __init__(self, sim: Sim, root: Path) -> None:
        super().__init__(sim, root)
        self.used = set[str]()
        """GPUs on which a process computes."""
        self.mig = MemoryMig(["GPU-0", "GPU-1"], H100.mig, is_used=lambda uuid: uuid in self.used)
        self.driver = FakeDriver(loaded=VERSION, mig=self.mig)
        self.machine.load_driver(VERSION)
        self.gpus: Gpus = self.driver.gpus

    async def send_mig(
        self, *wanted: Sequence[str] | None, reboot: bool = False, deadline: float = 120.0
    ) -> Order:
        """Command that the first GPUs are divided so."""
        uuids = uuids_of(self.gpus)
        return await self.send_mig_to(
            *zip(uuids, wanted, strict=False), reboot=reboot, deadline=deadline
        )

    async def send_mig_to(
        self,
        *wanted: tuple[str, Sequence[str] | None],
        reboot: bool = False,
        deadline: float = 120.0,
    ) -> Order:
        """Command that the GPUs with these UUIDs are divided so."""
        geometry = tuple(
            GpuGeometry(
                uuid=uuid,
                index=index,
                mig=names is not None,
                profiles=largest_first(tuple(names or ())),
            )
            for index, (uuid, names) in enumerate(wanted)
        )
        body = Mig(config="test", digest=mig_digest(geometry), gpus=geometry, reboot=reboot)
        return await self.send_command(body, deadline=deadline)

    async def divide(
        self, *wanted: Sequence[str] | None, reboot: bool = False, deadline: float = 120.0
    ) -> Result:
        """Run an agent until it has divided the first GPUs so, or failed to."""
        async with self.agent():
            order = await self.send_mig(*wanted, reboot=reboot, deadline=deadline)
            return await self.wait_for_result(order)

    @asynccontextmanager
    async def killable(self, *, after: int) -> AsyncGenerator[KillingOffload]:
        """Let the agents of the machine be killed at a blocking call."""
        machine, offload = self.machine.machine, KillingOffload(after=after)
        self.machine.machine = replace(machine, offload=offload)
        try:
            yield offload
        finally:
            self.machine.machine = machine
            self.gpus.close()

    async def crawl(
        self, *wanted: Sequence[str] | None, reboot: bool = False, kills: int = 100
    ) -> tuple[Result, int]:
        """Divide by agents of which the first are killed, each right after its first change.

        Return the result, and how many agents were killed.
        """
        gpus = KillingGpus(self.gpus)
        order, killed = await self.send_mig(*wanted, reboot=reboot), 0
        self.driver.gpus = cast(Any, gpus)
        while (result := self.result(order)) is None:
            async with self.killable(after=-1) as offload, self.agent():
                gpus.on_change = offload.kill if killed < kills else lambda: None
                await self.until(lambda agent=offload: agent.is_killed or self.result(order))
            killed += offload.is_killed
        self.driver.gpus = cast(Any, self.gpus)
        return result, killed

    async def divide_with_kills(
        self, *wanted: Sequence[str] | None, after: int, reboot: bool = False
    ) -> tuple[Result, bool]:
        """Divide, and kill the agent after so many blocking calls; return whether it was."""
        async with self.killable(after=after) as offload, self.agent():
            order = await self.send_mig(*wanted, reboot=reboot)
            await self.until(lambda: offload.is_killed or self.result(order))
        if (result := self.result(order)) is None:
            async with self.agent():
                result = await self.wait_for_result(order)
        return result, offload.is_killed


def uuids_of(gpus: Gpus) -> list[str]:
    gpus.open()
    uuids = [gpu.uuid for gpu in gpus.describe()]
    gpus.close()
    return uuids


def facts(gpus: Gpus) -> list[tuple[str, ...] | None]:
    """Return the MIG devices of all GPUs, as facts show them."""
    gpus.open()
    found = [each.profiles if each.mig else None for each in found_geometry(gpus.describe())]
    gpus.close()
    return found


in_world = in_world_of(MigWorld)
