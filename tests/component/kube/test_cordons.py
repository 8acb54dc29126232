"""Cordons: their owners, their end, and the taints that the server adds."""

import pytest

from libs.kube.errors import Conflict
from libs.kube.resources import NODES
from tests.component.kube.node_writes import LABEL, apply_node, desired_node, preconditions
from tests.component.kube.raw_requests import cordon, field_owners, get_json, patch
from tests.component.kube.sandbox import Kube, Sandbox, settled_node

# Cordons


async def test_an_own_cordon_ends_when_the_apply_omits_it(kube: Kube, node: str) -> None:
    await apply_node(kube, node, labels={LABEL: "a"}, cordoned=True)

    now = await apply_node(kube, node, labels={LABEL: "a"})

    assert now.spec.unschedulable is False
    assert now.metadata.labels[LABEL] == "a"


async def test_an_earlier_cordon_of_a_person_stays(kube: Kube, alice: Kube, node: str) -> None:
    await cordon(alice, node)
    await apply_node(kube, node, cordoned=True)
    assert await field_owners(kube, NODES, node, "f:spec.f:unschedulable") == [
        "kubectl-label",
        kube.manager,
    ]

    now = await apply_node(kube, node)

    assert now.spec.unschedulable is True
    assert await field_owners(kube, NODES, node, "f:spec.f:unschedulable") == ["kubectl-label"]


async def test_a_repeated_cordon_of_a_person_stays_even_if_unseen(
    kube: Kube, alice: Kube, node: str
) -> None:
    """A person uncordons and cordons between two applies; the second one omits the cordon."""
    await apply_node(kube, node, cordoned=True)
    await cordon(alice, node, wanted=False)
    await cordon(alice, node)

    now = await apply_node(kube, node)

    assert now.spec.unschedulable is True


async def test_a_second_cordon_of_a_cordoned_node_changes_nothing(
    kube: Kube, alice: Kube, node: str
) -> None:
    await apply_node(kube, node, cordoned=True)
    before = await settled_node(kube, node)

    await patch(alice, NODES, node, {"spec": {"unschedulable": True}})

    assert await kube.get(NODES, node) == before
    now = await apply_node(kube, node)
    assert now.spec.unschedulable is False


async def test_omitting_the_cordon_of_a_former_manager_keeps_it(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    old = sandbox.kube(manager="gpu-operator")
    await patch(old, NODES, node, {"spec": {"unschedulable": True}})
    await apply_node(kube, node, cordoned=True)

    now = await apply_node(kube, node)

    assert now.spec.unschedulable is True


async def test_an_adopted_cordon_is_ended_by_false_and_then_omitted(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    old = sandbox.kube(manager="gpu-operator")
    await patch(old, NODES, node, {"spec": {"unschedulable": True}})
    await apply_node(kube, node, cordoned=True)

    released = await apply_node(kube, node, cordoned=False)
    assert released.spec.unschedulable is False
    assert await field_owners(kube, NODES, node, "f:spec.f:unschedulable") == [kube.manager]
    await apply_node(kube, node)

    now = await get_json(kube, NODES, node)
    assert "unschedulable" not in now["spec"]
    assert await field_owners(kube, NODES, node, "f:spec.f:unschedulable") == []


# Taints of the server


async def test_the_node_controller_taints_a_cordoned_node(kube: Kube, node: str) -> None:
    """The node lifecycle controller adds the taint in a write of its own."""
    cordoned = await apply_node(kube, node, cordoned=True)
    assert not cordoned.spec.taints

    tainted = await settled_node(kube, node)
    assert [(taint.key, taint.effect) for taint in tainted.spec.taints] == [
        ("node.kubernetes.io/unschedulable", "NoSchedule")
    ]
    assert int(tainted.metadata.resource_version) > int(cordoned.metadata.resource_version)
    assert await field_owners(kube, NODES, node, "f:spec.f:taints") == ["kube-controller-manager"]
    await apply_node(kube, node)
    free = await settled_node(kube, node)
    assert free.spec.taints == ()


async def test_a_write_based_on_the_revision_before_the_taint_is_a_conflict(
    kube: Kube, node: str
) -> None:
    cordoned = await apply_node(kube, node, cordoned=True)
    await settled_node(kube, node)

    with pytest.raises(Conflict):
        await kube.apply(
            NODES,
            desired_node(node, cordoned=True),
            force=True,
            preconditions=preconditions(cordoned),
        )


async def test_a_new_node_has_the_not_ready_taint(sandbox: Sandbox, kube: Kube) -> None:
    """Admission adds the taint to every created node."""
    name = f"{sandbox.prefix}new"
    sandbox.delete_at_close(NODES, name)

    created = await kube.create(NODES, {"metadata": {"name": name}})

    assert [(taint.key, taint.effect) for taint in created.spec.taints] == [
        ("node.kubernetes.io/not-ready", "NoSchedule")
    ]
