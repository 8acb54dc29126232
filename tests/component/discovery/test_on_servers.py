"""The same on both servers over HTTP; on the real one as the account and with the rights that an
installation gives, and nothing more.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import pytest

from libs.contracts import subjects
from libs.contracts.facts import Facts
from libs.contracts.identities import Identity, Writer
from libs.contracts.journal import Revision
from libs.contracts.message import encode
from libs.contracts.reports import Report
from libs.contracts.streams import STATE, STREAMS
from libs.kube.client import MERGE_PATCH
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.resources import LEASES
from libs.kube.transport import Transport
from libs.policy.crds import crd_manifests
from libs.policy.installation.objects import installation_objects
from libs.runtime.clock import SystemClock
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.bus import LocalServer
from libs.testing.env import make_env
from services.discovery.cluster import resources
from services.discovery.cluster.role import LEASE, DiscoveryClusterSettings, run
from tests.component.kube.sandbox import ADMIN, Sandbox, ServerUnderTest
from tests.component.kube.servers import RealServer
from tests.component.policy.strict_writes import apply, send
from tests.support import eventually
from tests.unit.discovery.cluster.builders import (
    ALL_OPERANDS,
    DEPLOY,
    PRESENT,
    SYSTEM,
    operands_in,
    record,
)
from tests.unit.policy.situations import cluster_policy

RBAC = "rbac.authorization.k8s.io"
ACCOUNT = "sluice-discovery-cluster"
KERNEL = "feature.node.kubernetes.io/kernel-version."
BOOT = {"status": {"nodeInfo": {"bootID": "boot-1"}}}


class Installation:
    """One test's installation on a server, and a bus beside it."""

    def __init__(self, server: ServerUnderTest, place: Sandbox, namespace: str) -> None:
        self.server = server
        self.place = place
        self.namespace = namespace
        self.user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
        self.wire = server.wire(ADMIN)
        self.kube = place.kube(manager="kubectl")
        self.clock = SystemClock()
        self.bus = LocalServer(env=make_env(clock=self.clock))

    async def install(self, *, real: bool) -> None:
        """As whoever installs Sluice does it."""
        scheduler = self.bus.connect(Identity(writer=Writer.SCHEDULER))
        for stream in STREAMS:
            await scheduler.ensure(stream)
        scheduler.kill()
        for obj in installation_objects(self.namespace):
            if real or not obj["apiVersion"].startswith(RBAC):
                await apply(self.wire, obj)
        await self.kube.create(LEASES, {"metadata": {"name": LEASE}}, namespace=self.namespace)
        for definition in crd_manifests().values():
            await self.place.install(definition)

    @contextlib.asynccontextmanager
    async def role(self) -> AsyncGenerator[Service]:
        """The process, until the end of the block; it stops in order."""
        service = Service("discovery-cluster", clock=self.clock)
        bus = self.bus.connect(Identity(writer=Writer.DISCOVERY_CLUSTER))
        async with self._way_in() as transport:

            async def live() -> None:
                async with service:
                    await run(
                        DiscoveryClusterSettings(namespace=self.namespace),
                        kube=transport,
                        bus=bus,
                        env=make_env(clock=self.clock, metrics=Metrics(version="1")),
                        service=service,
                    )

            task = asyncio.create_task(live(), name="role")
            try:
                yield service
            finally:
                service.stop("the test is over")
                await task
                bus.kill()

    @contextlib.asynccontextmanager
    async def _way_in(self) -> AsyncGenerator[Transport]:
        """As the account of the role, by a token such as its pod has."""
        if not isinstance(self.server, RealServer):
            yield self.server.wire(self.user)
            return
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{ACCOUNT}/token"
        api = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        status, _, answer = await send(self.wire, "POST", path, api)
        assert status == 201, answer
        token = StaticToken(answer["status"]["token"], tls=self.server.tls)
        async with HttpTransport(self.server.plane.url, credentials=token) as transport:
            yield transport

    async def report(self, name: str, facts: Facts) -> None:
        """The discovery agent of this node reports."""
        uid = (await self.kube.get(resources.NODES, name)).metadata.uid
        report = Report.of(
            facts, node=name, node_uid=uid, boot_id="boot-1", component="discovery", at=1.0
        )
        agent = self.bus.connect(Identity(writer=Writer.DISCOVERY, node=name))
        at = subjects.State(cluster="default", node=name, component="discovery", kind="facts")
        await agent.store(STATE, str(at), encode(report))
        agent.kill()

    async def patch(
        self, name: str, body: Any, *, subresource: str = "", manager: str = "kubectl"
    ) -> None:
        """`kubectl patch`."""
        await self.kube.request(
            "PATCH",
            resources.NODES.path(name=name, subresource=subresource),
            query={"fieldManager": manager},
            body=body,
            content_type=MERGE_PATCH,
        )

    async def label(
        self, name: str, labels: Mapping[str, str | None], *, manager: str = "kubectl"
    ) -> None:
        """`kubectl label`."""
        await self.patch(name, {"metadata": {"labels": labels}}, manager=manager)

    async def labels(self, name: str) -> dict[str, str]:
        return (await self.kube.get(resources.NODES, name)).metadata.labels

    async def revisions(self) -> list[Revision]:
        """What the role wrote to Nodes, or tried to."""
        found = await self.server.revisions()
        return [one for one in found if one.user == self.user and one.kind == "Node"]


@pytest.fixture
async def site(server: ServerUnderTest) -> AsyncIterator[Installation]:
    """An installation of its own, of which nothing is left that others would see."""
    token = secrets.token_hex(4)
    place = Sandbox(server, token=token)
    place.delete_at_close(resources.POLICIES["ClusterPolicy"], "cluster-policy")
    yield Installation(server, place, f"t-{token}")
    await place.close()


async def test_a_node_is_labelled_paused_edited_and_left_behind(site: Installation) -> None:
    await site.install(real=isinstance(site.server, RealServer))
    name = await site.place.node("a", labels={f"{DEPLOY}dcgm": "false"})
    await site.patch(name, BOOT, subresource="status")
    policy = cluster_policy()
    del policy["metadata"]["uid"]
    await apply(site.wire, policy)

    async def is_so(wanted: Mapping[str, str]) -> bool:
        return operands_in(await site.labels(name)) == wanted

    mine = {**ALL_OPERANDS, "dcgm": "false"}
    async with site.role() as service:
        await site.report(name, SYSTEM)
        await eventually(lambda: is_so(mine), within=60)
        labels = await site.labels(name)
        assert (labels[PRESENT], labels[f"{KERNEL}full"]) == ("true", "5.15.0-139-generic")
        assert service.unready_reasons() == []

        await site.patch(name, annotated(record(paused=True)))
        aside = dict.fromkeys(
            ("gpu-feature-discovery", "container-toolkit", "node-status-exporter", "client"),
            "paused-for-driver-upgrade",
        )
        await eventually(lambda: is_so(mine | aside), within=60)
        await site.patch(name, annotated(None))
        await eventually(lambda: is_so(mine), within=60)

        # Somebody else's feature discovery takes one of ours, and an operator left one.
        await site.label(name, {f"{KERNEL}minor": "99"}, manager="nfd-master")
        await site.label(name, {f"{DEPLOY}vfio-manager": "true"}, manager="gpu-operator")
        await eventually(lambda: is_so(mine), within=60)
        off = {f"{DEPLOY}operands": "false"}
        await site.label(name, off)
        await eventually(lambda: is_so({"operands": "false", "dcgm": "false"}), within=60)
        assert (await site.labels(name))[f"{KERNEL}minor"] == "99"

    found = await quiet(site)
    assert [one.verb for one in found if one.code < 300] == [
        "apply", "apply", "apply", "patch", "apply",
    ]  # fmt: skip
    assert {one.code for one in found} <= {200, 409}

    async with site.role() as service:
        await eventually(lambda: service.unready_reasons() == [], within=60)
        await site.label(name, {f"{DEPLOY}operands": None})
        # That its operands are back shows that everything was looked at.
        await eventually(lambda: is_so(mine), within=60)
    after = (await quiet(site))[len(found) :]
    assert [one.verb for one in after if one.code < 300] == ["apply"]


def annotated(record: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {"sluice.dev/upgrade": record}}}


async def quiet(site: Installation) -> list[Revision]:
    """What was written once no more is: a real server's log may lag."""
    found = await site.revisions()

    async def still() -> bool:
        nonlocal found
        before, found = len(found), await site.revisions()
        return len(found) == before

    await eventually(still, every=0.2)
    return list(found)
