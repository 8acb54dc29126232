"""Discovery's cluster role on both API servers, over HTTP."""

from collections.abc import AsyncIterator, Mapping

import pytest

from libs.contracts import subjects
from libs.contracts.identities import Identity, Writer
from libs.contracts.message import encode
from libs.contracts.node import RECORD_ANNOTATION
from libs.contracts.reports import Report
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
from tests.support import eventually
from tests.unit.discovery.cluster.builders import (
    ALL_OPERANDS,
    DEPLOY,
    PRESENT,
    SYSTEM,
    operands_in,
    record,
)

KERNEL = "feature.node.kubernetes.io/kernel-version."
BOOT = {"status": {"nodeInfo": {"bootID": "boot-1"}}}
PAUSED = dict.fromkeys(
    ("gpu-feature-discovery", "container-toolkit", "node-status-exporter", "client"),
    "paused-for-driver-upgrade",
)


@pytest.fixture
async def site(server: ServerUnderTest) -> AsyncIterator[Installation]:
    async for site in make_installation(server, Writer.DISCOVERY_CLUSTER):
        site.sandbox.delete_at_close(resources.POLICIES["ClusterPolicy"], "cluster-policy")
        yield site


async def test_a_node_is_labelled_paused_edited_and_unchanged_by_a_restart(
    site: Installation,
) -> None:
    bus = LocalServer(env=make_env(clock=site.clock))
    scheduler = bus.connect(Identity(writer=Writer.SCHEDULER))
    for stream in STREAMS:
        await scheduler.ensure(stream)
    await site.install(lease=LEASE)
    name = await site.sandbox.node("a", labels={f"{DEPLOY}dcgm": "false"})
    await site.patch(resources.NODES, name, BOOT, subresource="status")

    async def run_role(transport: Transport, env: Env, service: Service) -> None:
        await run(
            DiscoveryClusterSettings(namespace=site.namespace),
            kube=transport,
            bus=bus.connect(Identity(writer=Writer.DISCOVERY_CLUSTER)),
            env=env,
            service=service,
        )

    async def labels() -> dict[str, str]:
        return (await site.kube.get(resources.NODES, name)).metadata.labels

    async def wait_for_operands(expected: Mapping[str, str]) -> None:
        async def are_labelled() -> bool:
            return operands_in(await labels()) == expected

        await eventually(are_labelled, within=60)

    async def set_record(record: str | None) -> None:
        body = {"metadata": {"annotations": {RECORD_ANNOTATION: record}}}
        await site.patch(resources.NODES, name, body)

    operands = {**ALL_OPERANDS, "dcgm": "false"}
    async with site.role(run_role) as service:
        uid = (await site.kube.get(resources.NODES, name)).metadata.uid
        report = Report.of(
            SYSTEM, node=name, node_uid=uid, boot_id="boot-1", component="discovery", at=1.0
        )
        agent = bus.connect(Identity(writer=Writer.DISCOVERY, node=name))
        subject = subjects.State(cluster="default", node=name, component="discovery", kind="facts")
        await agent.store(STATE, str(subject), encode(report))
        await wait_for_operands(operands)
        found = await labels()
        assert (found[PRESENT], found[f"{KERNEL}full"]) == ("true", "5.15.0-139-generic")
        assert service.unready_reasons() == []

        await set_record(record(paused=True))
        await wait_for_operands(operands | PAUSED)
        await set_record(None)
        await wait_for_operands(operands)

        # Another feature discovery takes over a label, and a GPU Operator has left one.
        await site.label(name, {f"{KERNEL}minor": "99"}, manager="nfd-master")
        await site.label(name, {f"{DEPLOY}vfio-manager": "true"}, manager="gpu-operator")
        await wait_for_operands(operands)
        await site.label(name, {f"{DEPLOY}operands": "false"})
        await wait_for_operands({"operands": "false", "dcgm": "false"})
        assert (await labels())[f"{KERNEL}minor"] == "99"

    before = await site.revisions()
    assert {revision.kind for revision in before} == {"Node"}
    assert [revision.verb for revision in before if revision.code < 300] == [
        "apply", "apply", "apply", "patch", "apply",
    ]  # fmt: skip
    assert {revision.code for revision in before} <= {200, 409}

    async with site.role(run_role) as service:
        await eventually(lambda: service.unready_reasons() == [], within=60)
        await site.label(name, {f"{DEPLOY}operands": None})
        # The restored operands prove that the role has reconciled everything.
        await wait_for_operands(operands)
    after = (await site.revisions())[len(before) :]
    assert [revision.verb for revision in after if revision.code < 300] == ["apply"]
