"""The same on both servers over HTTP; on the real one as the account and with the rights that an
installation gives, and nothing more.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from libs.contracts.journal import Revision
from libs.contracts.node import DRIVER_LABEL
from libs.kube.client import MERGE_PATCH
from libs.kube.http import HttpTransport, StaticToken
from libs.kube.requests import Transport
from libs.kube.resources import LEASES
from libs.policy.crds import crd_manifests
from libs.policy.installation import installation_objects
from libs.runtime.clock import SystemClock
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.simulation import make_env
from services.driver.cluster import resources
from services.driver.cluster.role import LEASE, DriverClusterSettings, run
from tests.component.kube.sandbox import ADMIN, Sandbox, ServerUnderTest
from tests.component.kube.servers import RealServer
from tests.component.policy.strict_writes import apply, send
from tests.support import eventually
from tests.unit.policy.situations import SETTINGS, cluster_policy, node

RBAC = "rbac.authorization.k8s.io"
ACCOUNT = "sluice-driver-cluster"
POLICY = "cluster-policy"
AGENTS = 4


class Installation:
    """One test's installation on a server."""

    def __init__(self, server: ServerUnderTest, place: Sandbox, namespace: str) -> None:
        self.server = server
        self.place = place
        self.namespace = namespace
        self.user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
        self.wire = server.wire(ADMIN)
        self.kube = place.kube(manager="kubectl")

    @contextlib.asynccontextmanager
    async def role(self) -> AsyncGenerator[Service]:
        """The process, until the end of the block; it stops in order."""
        said = DriverClusterSettings(namespace=self.namespace, images=SETTINGS.images)
        clock = SystemClock()
        service = Service("driver-cluster", clock=clock)
        async with self._way_in() as transport:

            async def live() -> None:
                async with service:
                    await run(
                        said,
                        kube=transport,
                        commanded_drivers=dict,
                        env=make_env(clock=clock, metrics=Metrics(version="1")),
                        service=service,
                    )

            task = asyncio.create_task(live(), name="role")
            try:
                yield service
            finally:
                service.stop("the test is over")
                await task

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

    async def daemon_sets(self) -> dict[str, resources.DaemonSet]:
        page = await self.kube.list_page(resources.DAEMON_SETS, namespace=self.namespace)
        return {one.metadata.name: one for one in page.items}

    async def policy(self) -> resources.PolicyObject:
        return await self.kube.get(resources.POLICIES["ClusterPolicy"], POLICY)

    async def revisions(self) -> list[Revision]:
        """What the role wrote, or tried to, but for its lease."""
        found = await self.server.revisions()
        return [one for one in found if one.user == self.user and one.kind != "Lease"]


async def install(site: Installation, *, real: bool) -> None:
    """As whoever installs Sluice does it."""
    for obj in installation_objects(site.namespace):
        if real or not obj["apiVersion"].startswith(RBAC):
            await apply(site.wire, obj)
    lease = {"metadata": {"name": LEASE, "labels": {"app": LEASE}}}
    await site.kube.create(LEASES, lease, namespace=site.namespace)
    for definition in crd_manifests().values():
        await site.place.install(definition)


@pytest.fixture
async def site(server: ServerUnderTest) -> AsyncIterator[Installation]:
    """An installation of its own, of which nothing is left that others would see."""
    token = secrets.token_hex(4)
    place = Sandbox(server, token=token)
    here = Installation(server, place, f"t-{token}")
    place.delete_at_close(resources.POLICIES["ClusterPolicy"], POLICY)
    for name in ("nvidia", "nvidia-cdi", "nvidia-legacy"):
        place.delete_at_close(resources.RUNTIME_CLASSES, name)
    yield here
    await here.kube.request("DELETE", resources.DAEMON_SETS.path(namespace=here.namespace))
    await place.close()


@pytest.fixture
def real(site: Installation) -> bool:
    """Whether rights count there."""
    return isinstance(site.server, RealServer)


async def test_a_policy_is_carried_out_edited_and_left_behind(
    site: Installation, real: bool
) -> None:
    await install(site, real=real)
    labels = dict(node("a").labels)
    name = await site.place.node("a", labels=labels)
    policy = cluster_policy()
    del policy["metadata"]["uid"]
    await apply(site.wire, policy)

    async def drivers(count: int) -> bool:
        found = [one for one in await site.daemon_sets() if "driver-daemonset-" in one]
        return len(found) == count

    async def counted(count: int) -> bool:
        return len(await site.daemon_sets()) == count

    async def said() -> bool:
        status = (await site.policy()).status or {}
        words = [one["message"] for one in status.get("conditions", []) if one["type"] == "Error"]
        return any(f"state-driver on {name}: no driver is running" in word for word in words)

    async with site.role() as service:
        await eventually(lambda: counted(AGENTS + 1), within=60)
        assert await drivers(1)
        await eventually(said, within=60)
        assert service.unready_reasons() == []

        (old,) = [one for one in await site.daemon_sets() if "driver-daemonset-" in one]
        stamp = {DRIVER_LABEL: old.removeprefix("nvidia-driver-daemonset-")}
        await change(site, resources.NODES, name, {"metadata": {"labels": stamp}})
        version = {"spec": {"driver": {"version": "590.10"}}}
        await change(site, resources.POLICIES["ClusterPolicy"], POLICY, version)
        await eventually(lambda: drivers(2), within=60)
        off = {"spec": {"dcgmExporter": {"enabled": False}}}
        await change(site, resources.POLICIES["ClusterPolicy"], POLICY, off)

        async def gone() -> bool:
            return "nvidia-dcgm-exporter" not in await site.daemon_sets()

        await eventually(gone, within=60)

        async def observed() -> bool:
            one = await site.policy()
            conditions = (one.status or {})["conditions"]
            return {each["observedGeneration"] for each in conditions} == {one.metadata.generation}

        await eventually(observed, within=60)
        await eventually(said, within=60)

    before = await quiet(site)
    assert [one for one in before if one.code >= 400 and one.code != 409] == []
    assert {one.verb for one in before if one.kind in resources.OPERANDS} == {"apply", "delete"}
    async with site.role() as service:
        await eventually(lambda: service.unready_reasons() == [], within=60)
        await eventually(lambda: leads(site), within=60)
        marker = {"metadata": {"labels": {"looked": "at"}}}
        await change(site, resources.NODES, name, marker)
        await remove(site, "nvidia-operator-validator")

        async def back() -> bool:
            return "nvidia-operator-validator" in await site.daemon_sets()

        # That it was made anew shows that everything was looked at.
        await eventually(back, within=60)
    after = (await quiet(site))[len(before) :]
    assert {(one.verb, one.kind) for one in after} <= {
        ("apply", "DaemonSet"),
        ("patch", "ClusterPolicy"),
    }
    assert [one.name for one in after if one.verb == "apply"] == ["nvidia-operator-validator"]


async def leads(site: Installation) -> bool:
    lease = await site.kube.get(LEASES, LEASE, namespace=site.namespace)
    return bool(lease.spec.holder_identity)


async def change(site: Installation, resource: Any, name: str, body: object) -> None:
    """`kubectl patch`."""
    await site.kube.request("PATCH", resource.path(name=name), body=body, content_type=MERGE_PATCH)


async def remove(site: Installation, name: str) -> None:
    path = resources.DAEMON_SETS.path(namespace=site.namespace, name=name)
    await site.kube.request("DELETE", path)


async def quiet(site: Installation) -> list[Revision]:
    """What was written once no more is: a real server's log may lag."""
    found = await site.revisions()

    async def still() -> bool:
        nonlocal found
        before, found = len(found), await site.revisions()
        return len(found) == before

    await eventually(still, every=0.2)
    return list(found)
