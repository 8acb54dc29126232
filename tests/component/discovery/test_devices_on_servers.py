"""Devices, the condition and Events on both API servers, over HTTP."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.contracts.identities import Writer
from libs.kube.errors import NotFound
from libs.kube.resources import EVENTS, NODES
from services.discovery.cluster.devices import FULL_DEVICES, FullDevice
from tests.component.discovery.servers import add_node, make_site
from tests.component.installation import Installation
from tests.component.kube.sandbox import ServerUnderTest
from tests.component.kube.servers import RealServer
from tests.support import eventually
from tests.unit.discovery.cluster.gpu_builders import UUIDS, XID, facts, gpu, health, judged

TWO = facts(gpu(0), gpu(1))
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
async def site(server: ServerUnderTest) -> AsyncIterator[Installation]:
    async for site in make_site(server):
        yield site


async def condition(site: Installation, name: str) -> str:
    """Return status and reason of the condition."""
    node = json.loads(await site.kube.request("GET", NODES.path(name=name)))
    found = [each for each in node["status"]["conditions"] if each["type"] == "GPUHealthy"]
    return f"{found[0]['status']} {found[0]['reason']}" if found else ""


async def device(site: Installation, name: str, index: int) -> FullDevice | None:
    try:
        return await site.kube.get(FULL_DEVICES, f"gpu-{index}-node-{name}")
    except NotFound:
        return None


async def events(site: Installation, name: str) -> list[str]:
    body = await site.kube.request(
        "GET",
        EVENTS.path(namespace="default"),
        query={"fieldSelector": f"involvedObject.name={name}"},
    )
    ours = [each for each in json.loads(body)["items"] if each["reason"].startswith("GPU")]
    return sorted(each["reason"] for each in ours)


async def test_a_gpu_fails_and_returns_and_its_devices_end_with_the_node(
    site: Installation,
) -> None:
    agents = await add_node(site)
    name = agents.name
    for index in (0, 1):
        site.sandbox.delete_at_close(FULL_DEVICES, f"gpu-{index}-node-{name}")

    async def until(expected: str) -> None:
        async def holds() -> bool:
            return await condition(site, name) == expected

        await eventually(holds, within=60)

    await agents.report(TWO, writer=Writer.DISCOVERY, kind="facts")
    await agents.report(health(judged(0), judged(1)), writer=Writer.TELEMETRY, kind="health")
    async with site.role(agents.run):
        await until("True GPUsHealthy")
        await agents.report(
            health(judged(0), judged(1, XID)), writer=Writer.TELEMETRY, kind="health"
        )
        await until("False GPUFailed")
        await agents.report(health(judged(0), judged(1)), writer=Writer.TELEMETRY, kind="health")
        await until("True GPUsHealthy")

        async def has_events() -> bool:
            return await events(site, name) == ["GPUFailed", "GPUHealthy"]

        await eventually(has_events, within=60)

    found = await device(site, name, 1)
    assert found is not None
    assert (found.spec.node, found.spec.memory, found.status.uuid) == (name, 81559, UUIDS[1])
    assert [(each.kind, each.uid) for each in found.metadata.owner_references] == [
        ("Node", agents.uid)
    ]
    assert found.status.health is not None
    assert found.status.health.state == "ok"
    assert await columns(site, name) == [name, 1, "NVIDIA-H100-80GB-HBM3", 81559, "ok", "Disabled"]

    before = await site.revisions()
    writes = [each.kind for each in before if each.code < 300]
    # Three conditions and one write of labels; two Devices, one of which changed twice.
    assert (writes.count("Node"), writes.count("Device"), writes.count("Event")) == (4, 4, 2)
    async with site.role(agents.run) as service:
        await eventually(lambda: service.unready_reasons() == [], within=60)
        await agents.report(
            health(judged(0), judged(1, XID)), writer=Writer.TELEMETRY, kind="health"
        )
        await until("False GPUFailed")
    after = [each for each in (await site.revisions())[len(before) :] if each.code < 300]
    # On a busy machine what is known may be too old for a moment, which the Node then says.
    assert sorted({each.kind for each in after}) == ["Device", "Event", "Node"]
    assert [each.kind for each in after].count("Device") == 1

    if isinstance(site.server, RealServer):
        await site.kube.request("DELETE", NODES.path(name=name))

        async def are_collected() -> bool:
            return await device(site, name, 0) is None and await device(site, name, 1) is None

        await eventually(are_collected, within=60)


async def columns(site: Installation, name: str) -> list[Any]:
    """Return the cells that `kubectl get device` shows, without name and age."""
    status, table = await site.sandbox.raw_response(
        "GET", FULL_DEVICES.path(name=f"gpu-1-node-{name}"), accept=TABLE
    )
    assert status == 200
    shown = [each["name"] for each in table["columnDefinitions"] if not each["priority"]]
    assert shown == ["Name", "Node", "Index", "Product", "Memory", "Health", "MIG", "Age"]
    cells = table["rows"][0]["cells"]
    return cells[1:7]
