"""Server-side apply to Nodes: whose a label is, who may take it, and which node is meant."""

import pytest

from libs.kube.client import APPLY_PATCH, Kube, Preconditions
from libs.kube.errors import Conflict, FieldConflict, Invalid, NotFound
from libs.kube.resources import NODES
from tests.component.kube.node_writes import LABEL, REQUEST, apply_node, desired_node, preconditions
from tests.component.kube.raw_requests import field_owners, label, patch, send_request
from tests.component.kube.sandbox import Sandbox, settled_node

# Force, and the two conflicts


async def test_without_force_a_label_that_a_person_edited_is_a_conflict_for_ever(
    kube: Kube, alice: Kube, node: str
) -> None:
    await apply_node(kube, node, force=False, labels={LABEL: "a"})
    await label(alice, node, {LABEL: "b"})

    for _ in range(2):  # looking again does not help
        with pytest.raises(Conflict) as refused:
            await apply_node(kube, node, force=False, labels={LABEL: "a"})
        assert refused.value.claims == (
            FieldConflict(manager="kubectl-label", field=f".metadata.labels.{LABEL}"),
        )
        assert refused.value.message == (
            'Apply failed with 1 conflict: conflict with "kubectl-label" using v1: '
            f".metadata.labels.{LABEL}"
        )


async def test_that_conflict_comes_before_the_one_for_a_stale_revision(
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

    assert [claim.manager for claim in refused.value.claims] == ["kubectl-label"]


async def test_with_force_a_stale_revision_is_still_a_conflict(
    kube: Kube, alice: Kube, node: str
) -> None:
    before = await apply_node(kube, node, labels={LABEL: "a"})
    await label(alice, node, {LABEL: "b"})

    with pytest.raises(Conflict) as refused:
        await kube.apply(
            NODES,
            desired_node(node, labels={LABEL: "a"}),
            force=True,
            preconditions=preconditions(before),
        )

    assert refused.value.claims == ()
    assert (await kube.get(NODES, node)).metadata.labels[LABEL] == "b"


async def test_with_force_the_label_is_ours_alone(kube: Kube, alice: Kube, node: str) -> None:
    await apply_node(kube, node, labels={LABEL: "a"})
    await label(alice, node, {LABEL: "b"})
    assert await field_owners(kube, NODES, node, f"f:metadata.f:labels.f:{LABEL}") == [
        "kubectl-label"
    ]

    now = await apply_node(kube, node, labels={LABEL: "a"})

    assert now.metadata.labels[LABEL] == "a"
    assert await field_owners(kube, NODES, node, f"f:metadata.f:labels.f:{LABEL}") == [kube.manager]


async def test_an_edit_to_the_value_that_is_there_changes_no_owner(
    kube: Kube, alice: Kube, node: str
) -> None:
    before = await apply_node(kube, node, labels={LABEL: "a"})

    await label(alice, node, {LABEL: "a"})

    assert (await kube.get(NODES, node)) == before
    assert await field_owners(kube, NODES, node, f"f:metadata.f:labels.f:{LABEL}") == [kube.manager]


async def test_a_label_that_a_person_strips_is_nobodys(kube: Kube, alice: Kube, node: str) -> None:
    await apply_node(kube, node, labels={LABEL: "a"})

    await label(alice, node, {LABEL: None})

    assert await field_owners(kube, NODES, node, f"f:metadata.f:labels.f:{LABEL}") == []
    now = await apply_node(kube, node, force=False, labels={LABEL: "a"})
    assert now.metadata.labels[LABEL] == "a"


async def test_two_who_apply_one_value_own_it_together(
    place: Sandbox, kube: Kube, node: str
) -> None:
    other = place.kube(manager="other")
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


async def test_all_fields_in_conflict_are_named(kube: Kube, alice: Kube, node: str) -> None:
    await apply_node(kube, node, labels={"a": "1", "b": "1"}, cordoned=True)
    await settled_node(kube, node)
    await label(alice, node, {"a": "2", "b": "2"})

    with pytest.raises(Conflict) as refused:
        await apply_node(kube, node, force=False, labels={"a": "1", "b": "1"}, cordoned=True)

    assert sorted(claim.field for claim in refused.value.claims) == [
        ".metadata.labels.a",
        ".metadata.labels.b",
    ]
    assert refused.value.message.startswith("Apply failed with 2 conflicts: conflicts with ")


# A node that is gone, or another by now


async def test_an_apply_to_a_deleted_node_without_its_uid_makes_a_ghost(
    place: Sandbox, kube: Kube, node: str
) -> None:
    before = await settled_node(kube, node)
    await kube.delete(NODES, node, uid=before.metadata.uid)
    ghost = {"apiVersion": "v1", "kind": "Node", **desired_node(node, labels={LABEL: "a"})}

    made = await send_request(
        kube,
        "PATCH",
        NODES.path(name=node),
        body=ghost,
        content_type=APPLY_PATCH,
        fieldManager=kube.manager,
        force="true",
    )

    assert made["metadata"]["uid"] != before.metadata.uid
    assert made["metadata"]["labels"] == {LABEL: "a"}


async def test_the_client_refuses_an_apply_that_could_make_a_node(kube: Kube, node: str) -> None:
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


async def test_the_server_calls_that_a_conflict_of_uids(kube: Kube, node: str) -> None:
    before = await settled_node(kube, node)
    await kube.delete(NODES, node, uid=before.metadata.uid)
    wanted = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    wanted["metadata"]["uid"] = before.metadata.uid  # type: ignore[index]

    with pytest.raises(Conflict) as refused:
        await kube.request(
            "PATCH",
            NODES.path(name=node),
            query={"fieldManager": kube.manager},
            body=wanted,
            content_type=APPLY_PATCH,
        )

    assert refused.value.message == (
        f'Operation cannot be fulfilled on nodes "{node}": uid mismatch: the provided object '
        f"specified uid {before.metadata.uid}, and no existing object was found"
    )


async def test_an_apply_with_another_nodes_uid_is_refused(
    place: Sandbox, kube: Kube, node: str
) -> None:
    first = await settled_node(kube, node)
    await kube.delete(NODES, node, uid=first.metadata.uid)
    await place.node("n")
    second = await settled_node(kube, node)
    stale = Preconditions(uid=first.metadata.uid, resource_version=second.metadata.resource_version)

    with pytest.raises(NotFound):
        await kube.apply(
            NODES, desired_node(node, labels={LABEL: "a"}), force=True, preconditions=stale
        )

    assert await kube.get(NODES, node) == second


async def test_the_server_calls_that_an_immutable_field(kube: Kube, node: str) -> None:
    before = await settled_node(kube, node)
    wanted = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "uid": "another"}}

    with pytest.raises(Invalid) as refused:
        await kube.request(
            "PATCH",
            NODES.path(name=node),
            query={"fieldManager": kube.manager},
            body=wanted,
            content_type=APPLY_PATCH,
        )

    assert refused.value.code == 422
    assert [cause.field for cause in refused.value.causes] == ["metadata.uid"]
    assert refused.value.message == (
        f'Node "{node}" is invalid: metadata.uid: Invalid value: "another": field is immutable'
    )
    assert await kube.get(NODES, node) == before


# Writing nothing


async def test_an_unchanged_apply_writes_nothing(kube: Kube, node: str) -> None:
    await apply_node(kube, node, labels={LABEL: "a"}, cordoned=True)
    before = await settled_node(kube, node)

    after = await apply_node(kube, node, labels={LABEL: "a"}, cordoned=True)

    assert after == before


async def test_an_apply_of_nothing_leaves_no_trace(kube: Kube, node: str) -> None:
    before = await settled_node(kube, node)

    after = await apply_node(kube, node)

    assert after == before


# What others set and we must remove


async def test_omitting_what_another_set_leaves_it(kube: Kube, alice: Kube, node: str) -> None:
    await patch(alice, NODES, node, {"metadata": {"annotations": {REQUEST: "adopt"}}})

    now = await apply_node(kube, node, labels={LABEL: "a"})

    assert now.metadata.annotations[REQUEST] == "adopt"


async def test_what_another_set_goes_by_forcing_it_empty_and_then_dropping_it(
    kube: Kube, alice: Kube, node: str
) -> None:
    await patch(alice, NODES, node, {"metadata": {"annotations": {REQUEST: "adopt"}}})

    emptied = await apply_node(kube, node, annotations={REQUEST: ""})
    assert emptied.metadata.annotations[REQUEST] == ""
    dropped = await apply_node(kube, node)

    assert REQUEST not in dropped.metadata.annotations


async def test_a_request_that_was_made_again_meanwhile_stays(
    kube: Kube, alice: Kube, node: str
) -> None:
    await patch(alice, NODES, node, {"metadata": {"annotations": {REQUEST: "adopt"}}})
    await apply_node(kube, node, annotations={REQUEST: ""})
    await patch(alice, NODES, node, {"metadata": {"annotations": {REQUEST: "forget"}}})

    now = await apply_node(kube, node)

    assert now.metadata.annotations[REQUEST] == "forget"
