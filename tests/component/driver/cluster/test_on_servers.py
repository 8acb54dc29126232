"""The driver's cluster role on both API servers, over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.contracts.identities import Writer
from libs.contracts.node import DRIVER_LABEL
from libs.kube.requests import Transport
from libs.kube.resources import LEASES, Resource
from libs.runtime.env import Env
from libs.runtime.service import Service
from services.driver.cluster import resources
from services.driver.cluster.role import LEASE, DriverClusterSettings, run
from tests.component.definitions import open_definition
from tests.component.driver.cluster.world import (
    AGENTS,
    CLUSTER_POLICIES,
    DRIVER_PREFIX,
    EXPORTER,
    EXPORTER_OFF,
    POLICY,
    VALIDATOR,
    is_driver,
)
from tests.component.installation import Installation, make_installation
from tests.component.kube.sandbox import ServerUnderTest
from tests.support import eventually
from tests.unit.policy.situations import SETTINGS, node


@pytest.fixture
async def site(server: ServerUnderTest) -> AsyncIterator[Installation]:
    async for site in make_installation(server, Writer.DRIVER_CLUSTER):
        site.sandbox.delete_at_close(CLUSTER_POLICIES, POLICY)
        for name in ("nvidia", "nvidia-cdi", "nvidia-legacy"):
            site.sandbox.delete_at_close(resources.RUNTIME_CLASSES, name)
        yield site
        path = resources.DAEMON_SETS.path(namespace=site.namespace)
        await site.kube.request("DELETE", path)


async def test_a_policy_is_rendered_edited_and_unchanged_by_a_restart(site: Installation) -> None:
    await site.install(lease=LEASE)
    await site.sandbox.install(open_definition(resources.SERVICE_MONITORS))
    name = await site.sandbox.node("a", labels=dict(node("a").labels))

    async def run_role(transport: Transport, env: Env, service: Service) -> None:
        await run(
            DriverClusterSettings(namespace=site.namespace, images=SETTINGS.images),
            kube=transport,
            commanded_drivers=dict,
            env=env,
            service=service,
        )

    async def daemon_sets() -> list[str]:
        page = await site.kube.list_page(resources.DAEMON_SETS, namespace=site.namespace)
        return [each.metadata.name for each in page.items]

    async def has_exporter(resource: Resource[Any]) -> bool:
        page = await site.kube.list_page(resource, namespace=site.namespace)
        return [each.metadata.name for each in page.items] == ["nvidia-dcgm-exporter"]

    async def has_no_exporter(resource: Resource[Any]) -> bool:
        return not await has_exporter(resource)

    async def drivers() -> list[str]:
        return [each for each in await daemon_sets() if is_driver(each)]

    async def wait_for_count(count: int) -> None:
        async def counted() -> bool:
            return len(await daemon_sets()) == count

        await eventually(counted, within=180)

    async def wait_for_status() -> None:
        """Wait until all conditions are of the latest policy, and name the missing driver."""

        async def written() -> bool:
            policy = await site.kube.get(CLUSTER_POLICIES, POLICY)
            conditions = (policy.status or {}).get("conditions", [])
            errors = [each["message"] for each in conditions if each["type"] == "Error"]
            observed = {each["observedGeneration"] for each in conditions}
            return observed == {policy.metadata.generation} and any(
                f"state-driver on {name}: no driver is running" in error for error in errors
            )

        await eventually(written, within=180)

    async with site.role(run_role) as service:
        await wait_for_count(len(AGENTS) + 1)
        await wait_for_status()
        await eventually(lambda: has_exporter(resources.SERVICES), within=180)
        assert not await has_exporter(resources.SERVICE_MONITORS)
        monitor = {"enabled": True, "interval": "15s", "relabelings": [{"targetLabel": "y"}]}
        await site.patch(
            CLUSTER_POLICIES, POLICY, {"spec": {"dcgmExporter": {"serviceMonitor": monitor}}}
        )
        await eventually(lambda: has_exporter(resources.SERVICE_MONITORS), within=180)
        assert service.unready_reasons() == []
        (old,) = await drivers()
        await site.label(name, {DRIVER_LABEL: old.removeprefix(DRIVER_PREFIX)})
        await site.patch(CLUSTER_POLICIES, POLICY, {"spec": {"driver": {"version": "590.10"}}})
        await wait_for_count(len(AGENTS) + 2)
        assert len(await drivers()) == 2
        await site.patch(CLUSTER_POLICIES, POLICY, {"spec": EXPORTER_OFF})
        await wait_for_count(len(AGENTS) + 1)
        assert EXPORTER not in await daemon_sets()
        for resource in (resources.SERVICES, resources.SERVICE_MONITORS):
            await eventually(lambda kind=resource: has_no_exporter(kind), within=180)
        await wait_for_status()

    before = await site.revisions()
    # A busy server may answer 504, and the role then asks again.
    assert [each for each in before if 400 <= each.code < 500 and each.code != 409] == []
    assert {each.verb for each in before if each.kind in resources.OPERANDS} == {"apply", "delete"}

    async def is_leading() -> bool:
        lease = await site.kube.get(LEASES, LEASE, namespace=site.namespace)
        return bool(lease.spec.holder_identity)

    async with site.role(run_role) as service:
        await eventually(lambda: service.unready_reasons() == [], within=180)
        await eventually(is_leading, within=180)
        await site.label(name, {"looked": "at"})
        path = resources.DAEMON_SETS.path(namespace=site.namespace, name=VALIDATOR)
        await site.kube.request("DELETE", path)

        async def is_recreated() -> bool:
            return VALIDATOR in await daemon_sets()

        # The recreated DaemonSet proves that the role has reconciled everything.
        await eventually(is_recreated, within=180)
    after = (await site.revisions())[len(before) :]
    assert {(each.verb, each.kind) for each in after} <= {
        ("apply", "DaemonSet"),
        ("patch", "ClusterPolicy"),
    }
    assert [each.name for each in after if each.verb == "apply"] == [VALIDATOR]
