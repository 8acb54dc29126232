"""A simulated machine with its kubelet, its containers and Sluice's agents.

    node = SimulatedNode(machine, kube_for=…, connect=…, …)
    task = asyncio.create_task(node.run())
    ...                              the driver's cluster role renders pods, and the agents start
    node.kill(Writer.DRIVER)         a process dies; the kubelet starts another
    await machine.reboot()
    await node.entries()             the agents' journals

It runs in virtual time with an in-process bus, and in a process with NATS. In a cluster, agents
take the uid of their Node from their token; here the uid is a setting.
"""

import asyncio
import random
from collections.abc import Callable, Mapping

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
from libs.host.machine import Offload
from libs.runtime.env import Env
from libs.testing.cluster.kubelet.container import ContainerProcess
from libs.testing.cluster.kubelet.fleet import KubeFor, KubeletFleet
from libs.testing.cluster.views import Pod
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.machines.processes import GpuProcess, workload_of
from libs.testing.stage.worlds import MachineModel


def _keep_connection(_bus: Bus) -> None:
    """Keep the connection: it closes with the process."""


class SimulatedNode:
    """A machine that is part of its cluster while `run` runs; its disk persists."""

    def __init__(
        self,
        machine: SimulatedMachine,
        *,
        kube_for: KubeFor,
        connect: ConnectAgent,
        model: MachineModel,
        access: Offload,
        env: Env,
        random_for: Callable[[str], random.Random],
        serve_pages: ServePages | None = None,
        cut: Callable[[Bus], None] = _keep_connection,
        labels: Mapping[str, str] | None = None,
        back_off: float = 1.0,
    ) -> None:
        """`serve_pages` serves the pages of an agent; `cut` breaks the connection of a killed agent
        that runs in this process; `labels` are those of its Node; `back_off` is a multiple of the
        usual back-off between restarts of a container.
        """
        self.machine = machine
        self._root = machine.root
        self.failures: list[str] = []
        """Failures of agents that ended by themselves."""
        self.fleet = KubeletFleet(
            kube_for,
            model=model,
            env=msgspec.structs.replace(env, random=random_for(f"kubelet of {machine.name}")),
            processes=self._process_for,
            back_off=back_off,
        )
        self.kubelet = machine.join(self.fleet, labels=labels)
        self._environment = AgentEnvironment(
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
        self._workloads: dict[str, list[GpuProcess]] = {}
        """The processes with GPUs, by workload."""

    async def run(self) -> None:
        """Run the machine until cancelled, which is like a power failure."""
        try:
            await self.fleet.run()
        finally:
            self.machine.power_off()
            agents = [agent for group in self._processes.values() for agent in group]
            if tasks := [agent.task for agent in agents if agent.task is not None]:
                await asyncio.wait(tasks)

    def kill(self, writer: Writer) -> bool:
        """Kill an agent's process, which the kubelet replaces; return False if none runs."""
        running = [agent for agent in self._processes.get(writer, ()) if agent.is_running]
        for agent in running:
            agent.kill()
        return bool(running)

    def finish(self, workload: str) -> None:
        """Let the processes of a workload here end, as their work is done."""
        for process in self._workloads.pop(workload, ()):
            process.finish()

    def is_running(self, writer: Writer) -> bool:
        return any(agent.is_running for agent in self._processes.get(writer, ()))

    async def entries(self) -> tuple[Entry, ...]:
        """Return the entries of all agents' journals."""
        entries: list[Entry] = []
        do = self._environment.access.run
        for writer in AGENT_KINDS:
            path = self._root / journal_path(writer)
            if await do(path.exists):  # an agent that never ran has no journal
                entries += await FileJournal(path, run=do).open()
        return tuple(entries)

    def _process_for(self, pod: Pod, container: str) -> ContainerProcess | None:
        writer = writer_of(pod, container)
        if writer is None:
            found = self.machine.process_for(pod, container)
            if isinstance(found, GpuProcess):
                self._workloads.setdefault(workload_of(pod), []).append(found)
            return found
        process = AgentContainer(self._environment, writer)
        known = self._processes.get(writer, [])
        self._processes[writer] = [*(agent for agent in known if not agent.is_finished), process]
        return process
