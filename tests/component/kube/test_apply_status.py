"""Server-side apply to the status, which has owners of its own."""

import pytest

from libs.kube.client import Preconditions
from libs.kube.errors import Conflict, FieldConflict, NotFound
from libs.kube.resources import DAEMON_SETS, NODES
from tests.component.kube.builders import condition
from tests.component.kube.raw_requests import get_json, managed_fields, managed_fields_entry
from tests.component.kube.sandbox import Kube, Sandbox, settled_node


async def test_the_status_has_owners_of_its_own(sandbox: Sandbox, kube: Kube) -> None:
    node = await sandbox.node("n", conditions=[condition("Ready", "True")])
    now = await settled_node(kube, node)
    fence = Preconditions(uid=now.metadata.uid, resource_version=now.metadata.resource_version)
    wanted = {
        "metadata": {"name": node},
        "status": {"conditions": [condition("Ours", "True")]},
    }

    await kube.apply(NODES, wanted, force=False, preconditions=fence, subresource="status")

    read = await get_json(kube, NODES, node)
    assert {item["type"] for item in read["status"]["conditions"]} == {"Ready", "Ours"}
    assert next(
        item for item in managed_fields(read) if item["manager"] == kube.manager
    ) == managed_fields_entry(
        kube.manager,
        "Apply",
        {
            "f:status": {
                "f:conditions": {
                    'k:{"type":"Ours"}': {
                        ".": {},
                        "f:lastTransitionTime": {},
                        "f:status": {},
                        "f:type": {},
                    }
                }
            }
        },
        subresource="status",
    )
    other = sandbox.kube(manager="other")
    wanted["status"] = {"conditions": [condition("Ours", "False")]}
    with pytest.raises(Conflict) as refused:
        await other.apply(
            NODES,
            wanted,
            force=False,
            preconditions=Preconditions(
                uid=now.metadata.uid, resource_version=read["metadata"]["resourceVersion"]
            ),
            subresource="status",
        )
    assert refused.value.field_conflicts == (
        FieldConflict(manager=kube.manager, field='.status.conditions[type="Ours"].status'),
    )
    assert f'conflict with "{kube.manager}" with subresource "status"' in refused.value.message


async def test_a_condition_is_removed_by_a_strategic_patch_and_not_by_an_apply(
    sandbox: Sandbox, kube: Kube
) -> None:
    async def types(node: str) -> list[str]:
        read = await get_json(kube, NODES, node)
        return [item["type"] for item in read["status"].get("conditions") or []]

    async def apply(node: str, *conditions: object) -> None:
        now = (await settled_node(kube, node)).metadata
        await kube.apply(
            NODES,
            {"metadata": {"name": node}, "status": {"conditions": list(conditions)}},
            force=True,
            preconditions=Preconditions(uid=now.uid, resource_version=now.resource_version),
            subresource="status",
        )

    async def remove(node: str) -> None:
        now = (await settled_node(kube, node)).metadata
        removed = {"$patch": "delete", "type": "Ours"}
        await kube.merge(
            NODES,
            node,
            {"metadata": {"uid": now.uid}, "status": {"conditions": [removed]}},
            resource_version=now.resource_version,
            subresource="status",
            strategic=True,
        )

    # The kubelet's condition was created with the Node, so that no manager owns it.
    nodes = [
        await sandbox.node(name, conditions=[condition("Ready", "True")]) for name in ("n", "m")
    ]
    for node in nodes:
        await apply(node, condition("Ours", "True"))
        await apply(node, condition("Ours", "False"))
        assert await types(node) == ["Ready", "Ours"]
    await remove(nodes[0])
    await apply(nodes[1])
    assert (await types(nodes[0]), await types(nodes[1])) == (["Ready"], [])


async def test_an_apply_to_the_status_owns_only_the_status(sandbox: Sandbox, kube: Kube) -> None:
    node = await sandbox.node("n")
    now = await settled_node(kube, node)
    wanted = {
        "metadata": {"name": node, "labels": {"l": "1"}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [condition("Ours", "True")]},
    }

    after = await kube.apply(
        NODES,
        wanted,
        force=True,
        preconditions=Preconditions(
            uid=now.metadata.uid, resource_version=now.metadata.resource_version
        ),
        subresource="status",
    )

    assert after.spec.unschedulable is False
    read = await get_json(kube, NODES, node)
    mine = next(item for item in managed_fields(read) if item["manager"] == kube.manager)
    assert "f:spec" not in mine["fieldsV1"]


async def test_an_apply_to_the_status_creates_no_object(sandbox: Sandbox, kube: Kube) -> None:
    wanted = {"metadata": {"name": "d"}, "status": {"observedGeneration": 1}}
    with pytest.raises(NotFound):
        await kube.apply(DAEMON_SETS, wanted, force=True, subresource="status")
