"""The machines of a column in one process: `python -m bench.incumbent.machines ROLE`.

The kubelets are simulated. Under `operator` they run the incumbent's pods, under `sluice` also our
agents, which connect to NATS. Settings come from SLUICE_* variables, as for our services.
"""

import asyncio
from functools import partial
from pathlib import Path

from bench.incumbent.operator_pods import (
    DEPLOY_DRIVER,
    DEPLOY_VALIDATOR,
    POLL_SECONDS,
    OperatorMachine,
    operator_process,
)
from bench.incumbent.our_nodes import OurNodes
from bench.incumbent.plan import KUBELETS, Plan
from demo.admin import DemoAdmin
from demo.paths import DemoPaths
from demo.tokens import token_of_pod
from libs.bus.nats.bus import connect as connect_nats
from libs.bus.port import Bus
from libs.contracts.identities import Identity
from libs.host.machine import ThreadOffload
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.requests import Transport
from libs.runtime.logs import logger
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.program import Role, run_program
from libs.runtime.service import Service
from libs.testing.cluster.kubelet.container import ContainerProcess, ProcessFactory
from libs.testing.cluster.kubelet.fleet import KubeletFleet
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.views import Pod

CONNECT_SECONDS = 60.0
LABELS = {
    "nvidia.com/gpu.present": "true",
    DEPLOY_DRIVER: "true",
    DEPLOY_VALIDATOR: "true",
}
"""What the operator's labelling controller would write."""

_log = logger()


class MachinesSettings(ProcessSettings, frozen=True, kw_only=True):
    folder: Path
    nodes: int
    factor: float
    nats_url: str = ""


class Machines:
    """The kubelets of one column."""

    def __init__(self, process: Process[MachinesSettings], transport: Transport) -> None:
        self.settings, self.env = process.settings, process.env
        self.paths = DemoPaths(self.settings.folder)
        self.plan = Plan(nodes=self.settings.nodes, factor=self.settings.factor)
        self.world = self.plan.world(self.paths.folder)
        self._transport = transport
        self.kube = self._kube("", "k8s-driver-manager")

    def fleet(self, processes: ProcessFactory) -> KubeletFleet:
        return KubeletFleet(
            self._kube,
            model=self.world,
            env=self.env,
            processes=processes,
            back_off=1.0 / self.settings.factor,
        )

    def _kube(self, _user: str, manager: str) -> Kube:
        return Kube(self._transport, manager=manager, clock=self.env.clock)


async def _machines(process: Process[MachinesSettings], service: Service) -> Machines:
    paths = DemoPaths(process.settings.folder)
    clock = process.env.clock
    transport = await open_transport(clock=clock, kubeconfig=paths.kubeconfig(KUBELETS))
    return Machines(process, await service.enter("kube", transport))


async def start_operator(process: Process[MachinesSettings], service: Service) -> None:
    """Run the machines with the incumbent's pods."""
    own = await _machines(process, service)
    machines = {
        name: OperatorMachine(
            name=name,
            root=own.paths.machine(name),
            kube=own.kube,
            world=own.world,
            poll=POLL_SECONDS / own.settings.factor,
            loaded=asyncio.Event(),
        )
        for name in own.plan.names
    }

    def process_for(pod: Pod, container: str) -> ContainerProcess | None:
        machine = machines.get(pod.spec.node_name)
        return None if machine is None else operator_process(machine, container)

    fleet = own.fleet(process_for)
    for name in own.plan.names:
        fleet.add(name, Hardware(labels=LABELS))
    service.run_forever("kubelets", fleet.run())


async def start_sluice(process: Process[MachinesSettings], service: Service) -> None:
    """Run the machines with our agents."""
    own = await _machines(process, service)
    nodes = OurNodes(
        own.plan.names,
        paths=own.paths,
        world=own.world,
        connect=partial(_connect, own),
        access=await service.enter("disk", ThreadOffload("disk")),
        env=own.env,
        failed=lambda failure: _log.error("agent failed", failure=failure),
    )
    fleet = own.fleet(nodes.process_for)
    nodes.attach(fleet)
    service.run_forever("kubelets", fleet.run())


async def _connect(own: Machines, agent: Service, identity: Identity, pod: Pod) -> Bus:
    connection = connect_nats(
        url=own.settings.nats_url,
        identity=identity,
        env=own.env,
        credentials=await token_of_pod(DemoAdmin(own.kube), own.paths, identity, pod),
        wait=CONNECT_SECONDS,
    )
    bus = await agent.enter("nats", connection)
    agent.run_forever("nats", bus.guard())
    return bus


if __name__ == "__main__":
    run_program(
        "machines",
        {
            "operator": Role(MachinesSettings, start_operator),
            "sluice": Role(MachinesSettings, start_sluice),
        },
    )
