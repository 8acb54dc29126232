"""Server-side apply to Nodes: owners of labels, conflicts, and deleted nodes."""

import pytest

from libs.contracts.node import MANAGER
from libs.kube.client import APPLY_PATCH, Preconditions
from libs.kube.errors import Conflict, FieldConflict, NotFound
from libs.kube.resources import NODES
from libs.kube.views import Node
from tests.component.kube.node_writes import LABEL, REQUEST, apply_node, desired_node, preconditions
from tests.component.kube.raw_requests import field_owners, label, patch, send_request
from tests.component.kube.sandbox import Kube, Sandbox, settled_node

# Force, and the two conflicts


async def test_an_unforced_apply_of_an_edited_label_is_always_a_conflict(
    kube: Kube, alice: Kube, node: str
) -> None:
    await apply_node(kube, node, force=False, labels={LABEL: "a"})
    await label(alice, node, {LABEL: "b"})

    for _ in range(2):  # a new read of the node does not help
        with pytest.raises(Conflict) as refused:
            await apply_node(kube, node, force=False, labels={LABEL: "a"})
        assert refused.value.field_conflicts == (
            FieldConflict(manager="kubectl-label", field=f".metadata.labels.{LABEL}"),
        )
        assert refused.value.message == (
            'Apply failed with 1 conflict: conflict with "kubectl-label" using v1: '
            f".metadata.labels.{LABEL}"
        )


async def test_a_field_conflict_precedes_a_stale_revision(
    kube: Kube, alice: Kube, node: str
) -> None:
    before = await apply_node(kube, node, force=False, labels={LABEL: "a"})
    await label(alice, node, {LABEL: "b"})

    with pytest.raises(Conflict) as refused:
        await kube.apply(
            NODES,
            desired_node(node, labels={LABEL: "a"}),
            force=False,
            preconditions=preconditions(before),
        )

    assert [claim.manager for claim in refused.value.field_conflicts] == ["kubectl-label"]


async def test_force_does_not_override_a_stale_revision(kube: Kube, alice: Kube, node: str) -> None:
    before = await apply_node(kube, node, labels={LABEL: "a"})
    await label(alice, node, {LABEL: "b"})

    with pytest.raises(Conflict) as refused:
        await kube.apply(
            NODES,
            desired_node(node, labels={LABEL: "a"}),
            force=True,
            preconditions=preconditions(before),
        )

    assert refused.value.field_conflicts == ()
    assert (await kube.get(NODES, node)).metadata.labels[LABEL] == "b"


async def test_force_takes_an_edited_label_over(kube: Kube, alice: Kube, node: str) -> None:
    await apply_node(kube, node, labels={LABEL: "a"})
    await label(alice, node, {LABEL: "b"})
    assert await field_owners(kube, NODES, node, f"f:metadata.f:labels.f:{LABEL}") == [
        "kubectl-label"
    ]

    now = await apply_node(kube, node, labels={LABEL: "a"})

    assert now.metadata.labels[LABEL] == "a"
    assert await field_owners(kube, NODES, node, f"f:metadata.f:labels.f:{LABEL}") == [kube.manager]


async def test_an_edit_to_the_same_value_changes_no_owner(
    kube: Kube, alice: Kube, node: str
) -> None:
    before = await apply_node(kube, node, labels={LABEL: "a"})

    await label(alice, node, {LABEL: "a"})

    assert (await kube.get(NODES, node)) == before
    assert await field_owners(kube, NODES, node, f"f:metadata.f:labels.f:{LABEL}") == [kube.manager]


async def test_a_removed_label_has_no_owner(kube: Kube, alice: Kube, node: str) -> None:
    await apply_node(kube, node, labels={LABEL: "a"})

    await label(alice, node, {LABEL: None})

    assert await field_owners(kube, NODES, node, f"f:metadata.f:labels.f:{LABEL}") == []
    now = await apply_node(kube, node, force=False, labels={LABEL: "a"})
    assert now.metadata.labels[LABEL] == "a"


async def test_two_appliers_of_one_value_share_its_ownership(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    other = sandbox.kube(manager="other")
    await apply_node(kube, node, force=False, labels={LABEL: "a"})
    await apply_node(other, node, force=False, labels={LABEL: "a"})
    path = f"f:metadata.f:labels.f:{LABEL}"
    assert await field_owners(kube, NODES, node, path) == ["other", kube.manager]

    with pytest.raises(Conflict) as refused:
        await apply_node(kube, node, force=False, labels={LABEL: "b"})
    assert refused.value.message == (
        f'Apply failed with 1 conflict: conflict with "other": .metadata.labels.{LABEL}'
    )
    left = await apply_node(kube, node, force=False)
    assert left.metadata.labels[LABEL] == "a"
    gone = await apply_node(other, node, force=False)
    assert LABEL not in gone.metadata.labels


# Deleted and recreated nodes


async def test_an_apply_without_a_uid_recreates_a_deleted_node(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    before = await settled_node(kube, node)
    await kube.delete(NODES, node, uid=before.metadata.uid)
    body = {"apiVersion": "v1", "kind": "Node", **desired_node(node, labels={LABEL: "a"})}

    created = await send_request(
        kube,
        "PATCH",
        NODES.path(name=node),
        body=body,
        content_type=APPLY_PATCH,
        fieldManager=kube.manager,
        force="true",
    )

    assert created["metadata"]["uid"] != before.metadata.uid
    assert created["metadata"]["labels"] == {LABEL: "a"}


async def test_the_client_refuses_an_apply_that_could_create_a_node(kube: Kube, node: str) -> None:
    with pytest.raises(ValueError, match="needs preconditions"):
        await kube.apply(NODES, desired_node(node, labels={LABEL: "a"}), force=True)


async def test_an_apply_with_the_uid_of_a_deleted_node_finds_nothing(kube: Kube, node: str) -> None:
    before = await settled_node(kube, node)
    await kube.delete(NODES, node, uid=before.metadata.uid)

    with pytest.raises(NotFound):
        await kube.apply(
            NODES,
            desired_node(node, labels={LABEL: "a"}),
            force=True,
            preconditions=preconditions(before),
        )

    with pytest.raises(NotFound):
        await kube.get(NODES, node)


async def test_an_apply_with_the_uid_of_a_former_node_is_refused(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    first = await settled_node(kube, node)
    await kube.delete(NODES, node, uid=first.metadata.uid)
    await sandbox.node("n")
    second = await settled_node(kube, node)
    stale = Preconditions(uid=first.metadata.uid, resource_version=second.metadata.resource_version)

    with pytest.raises(NotFound):
        await kube.apply(
            NODES, desired_node(node, labels={LABEL: "a"}), force=True, preconditions=stale
        )

    assert await kube.get(NODES, node) == second


# Applies without a change


async def test_an_unchanged_apply_writes_nothing(kube: Kube, node: str) -> None:
    await apply_node(kube, node, labels={LABEL: "a"}, cordoned=True)
    before = await settled_node(kube, node)

    after = await apply_node(kube, node, labels={LABEL: "a"}, cordoned=True)

    assert after == before


async def test_an_empty_apply_writes_nothing(kube: Kube, node: str) -> None:
    before = await settled_node(kube, node)

    after = await apply_node(kube, node)

    assert after == before


# Fields of other managers


async def test_an_apply_keeps_the_fields_of_others(kube: Kube, alice: Kube, node: str) -> None:
    await patch(alice, NODES, node, {"metadata": {"annotations": {REQUEST: "adopt"}}})

    now = await apply_node(kube, node, labels={LABEL: "a"})

    assert now.metadata.annotations[REQUEST] == "adopt"


async def test_a_field_of_another_manager_is_removed_by_forcing_it_empty_and_then_omitting_it(
    kube: Kube, alice: Kube, node: str
) -> None:
    await patch(alice, NODES, node, {"metadata": {"annotations": {REQUEST: "adopt"}}})

    emptied = await apply_node(kube, node, annotations={REQUEST: ""})
    assert emptied.metadata.annotations[REQUEST] == ""
    dropped = await apply_node(kube, node)

    assert REQUEST not in dropped.metadata.annotations


# The list of taints has one owner: the write that removes one contains all others.


TAINTS = [
    {"key": "example.com/starting", "effect": "NoSchedule"},
    {"key": "example.com/other", "effect": "NoSchedule", "value": "x"},
]


async def test_an_apply_of_the_other_taints_removes_one_and_owns_the_list(
    kube: Kube, alice: Kube, node: str
) -> None:
    await patch(alice, NODES, node, {"spec": {"taints": TAINTS}})

    applied = await apply_taints(kube, node, TAINTS[1:])

    assert keys_of(applied) == ["example.com/other"]
    assert await field_owners(kube, NODES, node, "f:spec.f:taints") == [MANAGER]
    again = await apply_taints(kube, node, TAINTS[1:])
    assert again.metadata.resource_version == applied.metadata.resource_version
    assert keys_of(await apply_node(kube, node)) == []  # left out by its only owner


async def test_an_applied_list_may_be_empty(kube: Kube, alice: Kube, node: str) -> None:
    await patch(alice, NODES, node, {"spec": {"taints": TAINTS[:1]}})

    assert keys_of(await apply_taints(kube, node, [])) == []
    assert keys_of(await apply_node(kube, node)) == []


async def test_the_next_writer_of_a_taint_takes_the_list_over(
    kube: Kube, alice: Kube, node: str
) -> None:
    await patch(alice, NODES, node, {"spec": {"taints": TAINTS}})
    await apply_taints(kube, node, TAINTS[1:])
    await patch(alice, NODES, node, {"spec": {"taints": TAINTS}})

    assert MANAGER not in await field_owners(kube, NODES, node, "f:spec.f:taints")
    assert len(keys_of(await apply_node(kube, node))) == 2


async def apply_taints(kube: Kube, node: str, taints: list[dict[str, str]]) -> Node:
    now = await settled_node(kube, node)
    wanted = {"metadata": {"name": node}, "spec": {"taints": taints}}
    return await kube.apply(NODES, wanted, force=True, preconditions=preconditions(now))


def keys_of(node: Node) -> list[str]:
    return [taint.key for taint in node.spec.taints]
