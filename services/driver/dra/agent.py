"""The plugin for claims of a node: prepares them, and publishes the GPUs; it changes no machine.

It holds the driver only while no command forbids it. As long as one does, the node's slice is empty
and no claim is prepared; claims that are prepared stay so. Where the policy gives GPUs by claims no
more, it never holds the driver, and stays so until pods have given back what they have.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from libs.bus.commands.executor import Op, OpDone
from libs.contracts.commands import CommandKind
from libs.host.dra.host import DraHost
from libs.host.dra.port import Claims
from libs.host.gpus.port import GpuHandle
from libs.host.machine import Machine
from libs.host.podresources.assignments import DeviceList
from libs.host.podresources.client import PodResources
from libs.host.tree import Tree
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.errors import Misconfigured
from libs.kube.requests import Transport
from libs.runtime.env import Env
from libs.runtime.fatal import Fatal
from libs.runtime.service import Service
from services.agent_frame import Given
from services.driver.dra.checkpoint import BadCheckpoint, Checkpoint
from services.driver.dra.claims import NodeClaims
from services.driver.dra.offering import ClaimOffering
from services.driver.dra.publication import Publication
from services.driver.dra.resources import DRIVER, Node
from services.driver.dra.settings import DraSettings
from services.driver.plugin.known_health import known_health
from services.driver.plugin.sickness import XidSwitches
from services.driver.plugin.watch import GpuWatch
from services.health_file import moment

MANAGER = "sluice-dra"


class Kubelet(Protocol):
    """The kubelet of the node."""

    @property
    def is_registered(self) -> bool:
        """Whether it knows this driver."""
        ...

    @property
    def problem(self) -> str:
        """Why it does not; empty if it does."""
        ...

    def list_uses(self) -> DeviceList:
        """Return which containers have which devices, or raise `KubeletUnavailable`."""
        ...


ConnectKubelet = Callable[[Claims], Awaitable[Kubelet]]


async def run(
    settings: DraSettings,
    given: Given,
    *,
    kube: Transport | None = None,
    connect_kubelet: ConnectKubelet | None = None,
) -> None:
    """Start the agent for one boot of the machine.

    None: the API server and the kubelet that the settings name.
    """
    host, env, service = given.host, given.env, given.service
    boot = await given.boot(settings)
    node = Node(name=settings.node, uid=boot.node_uid)
    transport = kube or await _connect(settings, env, service)
    client = Kube(transport, manager=MANAGER, clock=env.clock)
    checkpoint = Checkpoint(Tree(settings.state_dir), host.offload)
    try:
        await checkpoint.load()
    except BadCheckpoint as error:
        raise Fatal(str(error)) from None
    claims = NodeClaims(client, checkpoint=checkpoint, pool=node.name, ends=settings.ends)
    publication = Publication(client, node=node, env=env)
    if connect_kubelet is None:
        connect_kubelet = partial(_kubelet, settings, host=host, env=env, service=service)
    kubelet = await connect_kubelet(claims)
    hold = GpuHandle(host.gpus)
    health = known_health(host, settings.state_dir, boot_id=boot.boot_id, xids=XidSwitches())
    await host.offload.run(lambda: health.open(moment(env.clock)))
    offering = ClaimOffering(
        watch=GpuWatch(machine=host, hold=hold, health=health, clock=env.clock),
        list_uses=kubelet.list_uses,
        claims=claims,
        publication=publication,
        is_registered=lambda: kubelet.is_registered,
    )
    agent = boot.agent(
        {CommandKind.QUIESCE: _hold_nothing, CommandKind.IDLE: _hold_nothing}
        if settings.ends
        else {CommandKind.QUIESCE: offering.quiesce, CommandKind.IDLE: offering.idle}
    )
    hold.is_quiesced = await agent.open() is CommandKind.QUIESCE
    agent.start(service)
    service.run_forever("slice", publication.run())
    service.ready_when("kubelet", lambda: kubelet.problem or None)
    if settings.ends:
        await publication.put(())
        service.ready_when("slice", lambda: publication.problem or None)
        return
    service.run_forever("devices", offering.run())
    service.ready_when("devices", lambda: offering.problem or None)


async def _hold_nothing(_op: Op) -> OpDone:
    """Do as both commands say: the driver is never held."""
    return OpDone()


async def _connect(settings: DraSettings, env: Env, service: Service) -> Transport:
    try:
        transport = await open_transport(
            clock=env.clock, kubeconfig=Path(settings.kubeconfig) if settings.kubeconfig else None
        )
    except Misconfigured as error:
        raise Fatal(str(error)) from None
    return await service.enter("kube", transport)


class _LocalKubelet:
    """The kubelet behind the sockets of the settings."""

    def __init__(self, dra: DraHost, pods: PodResources) -> None:
        self._dra = dra
        self.list_uses = pods.list

    @property
    def is_registered(self) -> bool:
        return self._dra.is_registered

    @property
    def problem(self) -> str:
        return self._dra.problem


async def _kubelet(
    settings: DraSettings, claims: Claims, *, host: Machine, env: Env, service: Service
) -> Kubelet:
    dra = DraHost(
        DRIVER,
        plugins=settings.plugins,
        registry=settings.plugin_registry,
        kubelet_plugins=settings.kubelet_plugins,
        claims=claims,
        offload=host.offload,
        clock=env.clock,
    )
    await service.enter("kubelet", dra)
    service.run_forever("registration", dra.run())
    return _LocalKubelet(
        dra, PodResources(settings.pod_resources, own_namespace=settings.namespace)
    )
