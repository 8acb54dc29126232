"""A node whose GPUs are divided through pynvml and a stand-in, and whose driver agent can die.

A sub-step of the op `mig` is any blocking call of the agent and any write to its journal, from the
op's start to its result. The agent, or the whole machine, dies right before a sub-step, and comes
back later.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from libs.contracts.identities import Writer
from libs.contracts.journal import Entry, EntryPhase, Verb
from libs.contracts.node import MIG_CONFIG_LABEL, MIG_STATE_LABEL, MigState, NodeRecord
from libs.host.gpus.deadlines import Deadlines
from libs.host.machine import InlineOffload, Machine, Offload
from libs.policy.mig.geometry import found_geometry, mig_digest
from libs.testing.cluster.views import PODS
from libs.testing.machines.library_machine import LibraryMachine
from libs.testing.nvml import VARIABLE, library
from services.scheduler import resources
from tests.builders.objects import pod
from tests.component.pods_kept import deleted_pods
from tests.component.scheduler.test_mig_operation import digest
from tests.component.scheduler.world import NEW, OLD, World

T = TypeVar("T")

NODE: Final = "a"
AWAY: Final = 10.0
"""Seconds for which a killed agent is away."""
OFF: Final = 30.0
"""Seconds for which a machine is without power."""
_DEADLINES: Final = Deadlines(first=60.0, answer=60.0, kill=60.0, busy=60.0)
"""Of the real processes that read the stand-in, while other tests run beside this one."""
WITHIN: Final = 1800.0
"""Seconds of virtual time until a node with a MIG configuration is at rest again."""


class MigSubSteps:
    """Counts the sub-steps of the ops `mig`, and tells when the process dies."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._left = -1
        self.deaths = 0
        self.died = asyncio.Event()
        """Set until what died is started again."""

    def arm(self, after: int) -> None:
        """Let the process die after so many sub-steps from now on."""
        self._left = after

    def disarm(self) -> None:
        self._left = -1

    def is_last(self) -> bool:
        """Count a sub-step; return whether the process dies instead."""
        if self._left < 0 or not self._is_dividing():
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        self.deaths += 1
        self.died.set()
        return True

    def _is_dividing(self) -> bool:
        last = self._entries[-1] if self._entries else None
        phases = (EntryPhase.STARTED, EntryPhase.STEP)
        return last is not None and last.command == "mig" and last.phase in phases


class DyingOffload:
    """Does blocking calls, unless the process dies first."""

    def __init__(self, dies: Callable[[], bool]) -> None:
        self._dies = dies

    async def run(self, work: Callable[[], T]) -> T:
        if self._dies():
            await asyncio.Event().wait()
        return work()


class DyingMachine(LibraryMachine):
    """A machine whose driver agent dies at a sub-step."""

    dies: Callable[[], bool]
    driver_host: Machine

    def host(self, offload: Offload, *, changes: bool = False, **agent: Any) -> Machine:
        if not changes:
            return super().host(offload, **agent)
        self.driver_host = super().host(DyingOffload(self.dies), changes=True, **agent)
        return self.driver_host


class DyingWorld(World):
    """One node with two GPUs, a pod on them that may be evicted, and a pod without GPUs."""

    machine: DyingMachine
    web: str
    """The uid of the pod without GPUs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sub_steps = MigSubSteps(self.journals[NODE, Writer.DRIVER])
        self.loses_power = False
        """Whether the machine loses its power, instead of the driver agent being killed."""

    def add_machine(self, name: str, *, labels: Any, **more: Any) -> LibraryMachine:
        machine = self.machine = self.machines[name] = DyingMachine(
            self._folder / name,
            state=Path(os.environ[VARIABLE]),
            library=library(),
            deadlines=_DEADLINES,
            divides=True,
            name=name,
            model=self._model,
            env=self.sim.env(name),
            cache_reads=True,
            **more,
        )
        machine.dies = self._dies
        machine.join(self.cluster.fleet, labels=labels)
        return machine

    def _dies(self) -> bool:
        if not self.sub_steps.is_last():
            return False
        for agent in self.agents:
            if self.loses_power or agent.writer is Writer.DRIVER:
                agent.bus.kill()
        if self.loses_power:
            self.machine.power_off()
        else:
            self.machine.kill(self.machine.driver_host)
        return True

    async def write_journal(self, node: str, writer: Writer) -> None:
        if writer is Writer.DRIVER and self._dies():
            await asyncio.Event().wait()
        await super().write_journal(node, writer)

    async def set_up(self) -> None:
        await self.complete_first_rollout(NODE)
        self.version = OLD
        await self.start_job("train", NODE)
        web = await self.kube.create(PODS, pod("web", node=NODE), namespace="default")
        self.web = web.metadata.uid

    async def configure(self, config: str) -> None:
        await self.label(NODE, {MIG_CONFIG_LABEL: config})

    async def upgrade(self, config: str) -> None:
        """Ask for another driver, and for this division of the GPUs with it."""
        self.version = NEW if self.version == OLD else OLD
        await self.configure(config)
        await self.apply_policy(self.version)

    async def configure_and_reboot(self, config: str) -> None:
        await self.configure(config)
        await self.reboot(NODE, off=OFF)

    async def _power_on(self) -> None:
        await self.sleep(OFF)
        self.machine.power_on()
        await self.start_agents(NODE)

    async def _come_back(self) -> None:
        """Start again what died."""
        if self.loses_power:
            await self.kill_agents(NODE)
            await self._power_on()
        else:
            await self.kill_agents(NODE, Writer.DRIVER)
            await self.sleep(AWAY)
            await self.start_agent(NODE, Writer.DRIVER)

    async def until_at_rest(self, config: str) -> None:
        """Wait until the node is in service with the configuration; start again what dies."""
        wanted, end = digest(NODE, config), self.sim.clock.monotonic() + WITHIN
        while not await self._is_at_rest(wanted):
            assert self.sim.clock.monotonic() < end, await self.why(NODE)
            if self.sub_steps.died.is_set():
                self.sub_steps.died.clear()
                await self._come_back()
            await self.sleep(0.5)

    async def _is_at_rest(self, wanted: str) -> bool:
        """Whether the node is in service, and proven with the driver and the GPUs as asked."""
        found = await self.kube.get(resources.NODES, NODE)
        record, driver = found.record, self.machine.driver
        evidence = record.evidence if isinstance(record, NodeRecord) else None
        return (
            evidence is not None
            and evidence.passed
            and (evidence.mig_digest, evidence.boot_id) == (wanted, self.machine.boot_id)
            and driver is not None
            and driver.version == self.version
            and found.metadata.labels.get(MIG_STATE_LABEL) == MigState.SUCCESS
            and not found.spec.unschedulable
            and (await self.why(NODE)).in_place
        )

    async def check(self, config: str) -> None:
        """Check the GPUs, as another process reads them, and the pods."""
        host = self.machine.host(InlineOffload(), comm="check")
        host.gpus.open()
        found = mig_digest(found_geometry(host.gpus.describe()))
        self.machine.kill(host)
        assert found == digest(NODE, config)
        web = await self.kube.get(PODS, "web", namespace="default")
        assert (web.metadata.uid, web.deleting) == (self.web, False)
        revisions = self.server.journal.revisions
        assert list(deleted_pods(revisions)) == []
        evicted = {each.name for each in revisions if each.verb == Verb.EVICT}
        assert {name.partition("-")[0] for name in evicted} <= {"train"}
