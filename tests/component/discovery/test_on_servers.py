"""Discovery's cluster role on both API servers, over HTTP."""

from collections.abc import AsyncIterator, Mapping

import pytest

from libs.contracts.identities import Writer
from libs.contracts.node import RECORD_ANNOTATION, NodeRecord
from services.discovery.cluster import resources
from tests.builders.fleet import record, written
from tests.component.discovery.servers import add_node, make_site
from tests.component.installation import Installation
from tests.component.kube.sandbox import ServerUnderTest
from tests.support import eventually
from tests.unit.discovery.cluster.builders import (
    ALL_OPERANDS,
    DEPLOY,
    PRESENT,
    SYSTEM,
    operands_in,
)

KERNEL = "feature.node.kubernetes.io/kernel-version."
PAUSED = dict.fromkeys(
    ("gpu-feature-discovery", "container-toolkit", "node-status-exporter", "client"),
    "paused-for-driver-upgrade",
)


@pytest.fixture
async def site(server: ServerUnderTest) -> AsyncIterator[Installation]:
    async for site in make_site(server):
        yield site


async def test_a_node_is_labelled_paused_edited_and_unchanged_by_a_restart(
    site: Installation,
) -> None:
    node = await add_node(site, **{f"{DEPLOY}dcgm": "false"})
    name = node.name

    async def labels() -> dict[str, str]:
        return (await site.kube.get(resources.NODES, name)).metadata.labels

    async def wait_for_operands(expected: Mapping[str, str]) -> None:
        async def are_labelled() -> bool:
            return operands_in(await labels()) == expected

        await eventually(are_labelled, within=60)

    async def set_record(record: NodeRecord | None) -> None:
        body = {"metadata": {"annotations": {RECORD_ANNOTATION: None, **written(record)}}}
        await site.patch(resources.NODES, name, body)

    operands = {**ALL_OPERANDS, "dcgm": "false"}
    async with site.role(node.run) as service:
        await node.report(SYSTEM, writer=Writer.DISCOVERY, kind="facts")
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

    async with site.role(node.run) as service:
        await eventually(lambda: service.unready_reasons() == [], within=60)
        await site.label(name, {f"{DEPLOY}operands": None})
        # The restored operands prove that the role has reconciled everything.
        await wait_for_operands(operands)
    after = (await site.revisions())[len(before) :]
    assert [revision.verb for revision in after if revision.code < 300] == ["apply"]
