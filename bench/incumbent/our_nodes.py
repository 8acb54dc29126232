"""Our agents on simulated machines, all below one fleet of kubelets in one process."""

import random
from collections.abc import Callable, Sequence

import msgspec

from bench.incumbent.world import ScaledWorld
from demo.node_agents import AgentContainer, AgentEnvironment, ConnectAgent, writer_of
from demo.paths import DemoPaths
from libs.host.machine import Offload
from libs.runtime.env import Env
from libs.testing.cluster.kubelet.container import ContainerProcess
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from libs.testing.cluster.views import Pod
from libs.testing.machines.machine import SimulatedMachine


class OurNodes:
    """Add the machines to the fleet that `attach` names; their agents run as its pods ask."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        paths: DemoPaths,
        world: ScaledWorld,
        connect: ConnectAgent,
        access: Offload,
        env: Env,
        failed: Callable[[str], None],
    ) -> None:
        self._machines = {
            name: SimulatedMachine(
                paths.machine(name),
                name=name,
                model=world,
                env=msgspec.structs.replace(env, random=random.Random(name)),
                cache_reads=False,
            )
            for name in names
        }
        self._connect = connect
        self._access = access
        self._env = env
        self._failed = failed
        self._environments: dict[str, AgentEnvironment] = {}

    def attach(self, fleet: KubeletFleet) -> None:
        for name, machine in self._machines.items():
            kubelet = machine.join(fleet)
            self._environments[name] = AgentEnvironment(
                machine=machine,
                access=self._access,
                connect=self._connect,
                serve_pages=None,
                cut=lambda _bus: None,
                clock=self._env.clock,
                random_for=lambda what, name=name: random.Random(f"{name}/{what}"),
                node_uid=lambda kubelet=kubelet: kubelet.node_uid,
                failed=self._failed,
            )

    def process_for(self, pod: Pod, container: str) -> ContainerProcess | None:
        """Return the process of an agent, of a driver pod, or of a pod with GPUs."""
        name = pod.spec.node_name
        if name not in self._machines:
            return None
        writer = writer_of(pod, container)
        if writer is None:
            return self._machines[name].process_for(pod, container)
        return AgentContainer(self._environments[name], writer)
