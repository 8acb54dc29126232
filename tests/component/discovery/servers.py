"""The discovery service on both servers, with a bus on which a test reports for the agents."""

from collections.abc import AsyncIterator

from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.reports import Report, StateBody
from libs.contracts.subjects import STATE, STREAMS
from libs.kube.requests import Transport
from libs.runtime.env import Env
from libs.runtime.service import Service
from libs.testing.bus import LocalServer
from libs.testing.simulation import make_env
from services.discovery.cluster import resources
from services.discovery.cluster.role import LEASE, DiscoveryClusterSettings, run
from tests.component.installation import Installation, make_installation
from tests.component.kube.sandbox import ServerUnderTest

BOOT = {"status": {"nodeInfo": {"bootID": "boot-1"}}}


async def make_site(server: ServerUnderTest) -> AsyncIterator[Installation]:
    async for site in make_installation(server, Writer.DISCOVERY_CLUSTER):
        site.sandbox.delete_at_close(resources.POLICIES["ClusterPolicy"], "cluster-policy")
        yield site


class DiscoveredNode:
    """A node of the site whose agents a test plays, and the service that reads their reports."""

    def __init__(self, site: Installation, name: str, uid: str, bus: LocalServer) -> None:
        self._site = site
        self._bus = bus
        self.name = name
        self.uid = uid

    async def report(self, body: StateBody, *, writer: Writer, kind: str) -> None:
        """Report as an agent of the node."""
        report = Report.of(
            body, node=self.name, node_uid=self.uid, boot_id="boot-1", component=writer, at=1.0
        )
        agent = self._bus.connect(Identity(writer=writer, node=self.name))
        subject = subjects.State(cluster="default", node=self.name, component=writer, kind=kind)
        await agent.store(STATE, str(subject), encode(report))

    async def run(self, transport: Transport, env: Env, service: Service) -> None:
        await run(
            DiscoveryClusterSettings(namespace=self._site.namespace),
            kube=transport,
            bus=self._bus.connect(Identity(writer=Writer.DISCOVERY_CLUSTER)),
            env=env,
            service=service,
        )


async def add_node(site: Installation, **labels: str) -> DiscoveredNode:
    """Install the role, and register a node."""
    bus = LocalServer(env=make_env(clock=site.clock))
    scheduler = bus.connect(Identity(writer=Writer.SCHEDULER))
    for stream in STREAMS:
        await scheduler.ensure(stream)
    await site.install(lease=LEASE)
    name = await site.sandbox.node("a", labels=labels)
    await site.patch(resources.NODES, name, BOOT, subresource="status")
    uid = (await site.kube.get(resources.NODES, name)).metadata.uid
    return DiscoveredNode(site, name, uid, bus)
