"""One simulated machine, whole: its kubelet, what lives in its containers, and our agents there.

    station = Station(machine, kube_for=…, join=…, …)
    task = asyncio.create_task(station.run())
    ...                              driver's cluster role renders pods, and the agents live
    station.kill(Writer.DRIVER)      a process dies; its kubelet starts another
    await machine.reboot()
    await station.entries()          what its agents have written down

It runs in virtual time with an in-process bus, and in a process with NATS: bus, API, clock, ids and
random are given. Agents know their Node's uid by their token in a cluster; here it is told them.
"""

import asyncio
import random as chance
from collections.abc import Callable

import msgspec

from demo.node_agents import (
    AGENT_KINDS,
    AgentContainer,
    AgentEnvironment,
    ConnectAgent,
    ServePages,
    journal_path,
    writer_of,
)
from libs.bus.journal import FileJournal
from libs.bus.port import Bus
from libs.contracts.identities import Writer
from libs.contracts.journal import Entry
from libs.forecast.world import WorldModel
from libs.host.machine import Offload
from libs.runtime.env import Env
from libs.testing.cluster.kubelet.container_process import ContainerProcess
from libs.testing.cluster.kubelet.fleet import KubeFor, KubeletFleet
from libs.testing.cluster.views import Pod
from libs.testing.machines.machine import SimulatedMachine


def _nothing(_bus: Bus) -> None:
    """A process that is killed takes its connections with it."""


class SimulatedNode:
    """While `run` does, the machine is on its cluster; what it has on its disk stays."""

    def __init__(
        self,
        machine: SimulatedMachine,
        *,
        kube_for: KubeFor,
        connect: ConnectAgent,
        model: WorldModel,
        access: Offload,
        env: Env,
        random_for: Callable[[str], chance.Random],
        serve_pages: ServePages | None = None,
        cut: Callable[[Bus], None] = _nothing,
    ) -> None:
        """`show` serves the pages of an agent; `cut` breaks the connection of one that was killed,
        where it lives in this process.
        """
        self.machine = machine
        self._root = machine.root
        self.failures: list[str] = []
        """Agents that ended by themselves, and why."""
        self.fleet = KubeletFleet(
            kube_for,
            model=model,
            env=msgspec.structs.replace(env, random=random_for(f"kubelet of {machine.name}")),
            processes=self._occupant,
        )
        self.kubelet = machine.join(self.fleet)
        self._ground = AgentEnvironment(
            machine=machine,
            access=access,
            connect=connect,
            serve_pages=serve_pages,
            cut=cut,
            clock=env.clock,
            random_for=random_for,
            node_uid=lambda: self.kubelet.node_uid,
            failed=self.failures.append,
        )
        self._processes: dict[Writer, list[AgentContainer]] = {}

    async def run(self) -> None:
        """Until it is cancelled; then the machine is as if it had lost its power."""
        try:
            await self.fleet.run()
        finally:
            self.machine.power_off()
            every = [each for group in self._processes.values() for each in group]
            if tasks := [each.task for each in every if each.task is not None]:
                await asyncio.wait(tasks)

    def kill(self, writer: Writer) -> bool:
        """The process of this agent dies at once; False: none lives. Its kubelet starts another."""
        living = [each for each in self._processes.get(writer, ()) if each.is_running]
        for each in living:
            each.kill()
        return bool(living)

    def is_running(self, writer: Writer) -> bool:
        """Whether a process of this agent does."""
        return any(each.is_running for each in self._processes.get(writer, ()))

    async def entries(self) -> tuple[Entry, ...]:
        """What the agents have kept in their journals, of each in its order."""
        found: list[Entry] = []
        do = self._ground.access.do
        for writer in AGENT_KINDS:
            place = self._root / journal_path(writer)
            if await do(place.exists):  # an agent that never lived here has written nothing
                found += await FileJournal(place, run=do).open()
        return tuple(found)

    def _occupant(self, pod: Pod, container: str) -> ContainerProcess | None:
        writer = writer_of(pod, container)
        if writer is None:
            return self.machine.process_for(pod, container)
        process = AgentContainer(self._ground, writer)
        known = self._processes.get(writer, [])
        self._processes[writer] = [*(each for each in known if not each.is_finished), process]
        return process
