"""Deletion: preconditions, finalizers, grace periods and recreated objects."""

import pytest

from libs.kube.errors import Conflict, Invalid, NotFound
from libs.kube.resources import CONFIG_MAPS, NODES, PODS
from tests.builders.objects import config_map
from tests.component.kube.builders import READY, pod
from tests.component.kube.raw_requests import get_json, patch, send_request
from tests.component.kube.sandbox import Kube, Sandbox


async def test_a_delete_with_a_former_uid_leaves_the_replacement(
    sandbox: Sandbox, kube: Kube
) -> None:
    first = await kube.create(CONFIG_MAPS, config_map("a"))
    uid = first.metadata.uid
    answer = await kube.delete(CONFIG_MAPS, "a", uid=uid)
    assert answer is None
    second = await kube.create(CONFIG_MAPS, config_map("a"))

    with pytest.raises(Conflict) as refused:
        await kube.delete(CONFIG_MAPS, "a", uid=first.metadata.uid)

    assert refused.value.message == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition '
        f"({first.metadata.uid}) does not match the UID in record ({second.metadata.uid}). "
        "The object might have been deleted and then recreated"
    )
    assert await kube.get(CONFIG_MAPS, "a") == second


async def test_a_delete_can_be_fenced_by_the_revision(sandbox: Sandbox, kube: Kube) -> None:
    created = await kube.create(CONFIG_MAPS, config_map("a"))
    await patch(kube, CONFIG_MAPS, "a", {"data": {"k": "1"}})
    fence = {"preconditions": {"resourceVersion": created.metadata.resource_version}}

    with pytest.raises(Conflict):
        await kube.request(
            "DELETE", CONFIG_MAPS.path(namespace=sandbox.namespace, name="a"), body=fence
        )


async def test_a_finalizer_holds_an_object_until_it_is_removed(
    sandbox: Sandbox, kube: Kube
) -> None:
    held = config_map("a", finalizers=["sluice.dev/held"])
    created = await kube.create(CONFIG_MAPS, held)

    await kube.delete(CONFIG_MAPS, "a", uid=created.metadata.uid)

    dying = await kube.get(CONFIG_MAPS, "a")
    assert dying.metadata.deletion_timestamp
    assert dying.metadata.finalizers == ("sluice.dev/held",)
    assert int(dying.metadata.resource_version) > int(created.metadata.resource_version)
    more = {"metadata": {"finalizers": ["sluice.dev/held", "sluice.dev/more"]}}
    with pytest.raises(Invalid) as refused:
        await patch(kube, CONFIG_MAPS, "a", more)
    assert [cause.field for cause in refused.value.causes] == ["metadata.finalizers"]
    await patch(kube, CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAPS, "a")


async def test_a_bound_pod_is_deleted_with_its_grace_period(sandbox: Sandbox, kube: Kube) -> None:
    node = await sandbox.node("n")
    created = await kube.create(PODS, pod("a", node=node, grace=20))

    answer = await kube.delete(PODS, "a", uid=created.metadata.uid)

    assert answer == await kube.get(PODS, "a")
    dying = await get_json(kube, PODS, "a")
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 20
    assert dying["metadata"]["generation"] == 2
    first = dying["metadata"]["deletionTimestamp"]
    await kube.delete(PODS, "a", uid=created.metadata.uid, grace=5)
    shorter = await get_json(kube, PODS, "a")
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < first
    await kube.delete(PODS, "a", uid=created.metadata.uid, grace=0)
    with pytest.raises(NotFound):
        await kube.get(PODS, "a")


async def test_an_unbound_pod_is_deleted_at_once(sandbox: Sandbox, kube: Kube) -> None:
    created = await kube.create(PODS, pod("a"))

    await kube.delete(PODS, "a", uid=created.metadata.uid)

    with pytest.raises(NotFound):
        await kube.get(PODS, "a")


async def test_a_terminating_pod_stays_until_its_kubelet_deletes_it(
    sandbox: Sandbox, kube: Kube
) -> None:
    node = await sandbox.node("n")
    created = await kube.create(PODS, pod("a", node=node))
    await patch(kube, PODS, "a", {"status": READY}, subresource="status")

    await kube.delete(PODS, "a", uid=created.metadata.uid)

    dying = await kube.get(PODS, "a")
    assert dying.status.phase == "Running"
    assert dying.metadata.deletion_timestamp


async def test_a_node_is_deleted_at_once_and_recreated_with_another_uid(
    sandbox: Sandbox, kube: Kube
) -> None:
    node = await sandbox.node("n")
    first = await kube.get(NODES, node)

    await kube.delete(NODES, node, uid=first.metadata.uid)

    with pytest.raises(NotFound):
        await kube.get(NODES, node)
    again = await sandbox.node("n")
    second = await kube.get(NODES, again)
    assert second.metadata.uid != first.metadata.uid
    with pytest.raises(Conflict):
        await kube.delete(NODES, node, uid=first.metadata.uid)


async def test_a_selection_can_be_deleted_as_a_collection(sandbox: Sandbox, kube: Kube) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        await kube.create(CONFIG_MAPS, config_map(name, labels={"app": app}))

    await send_request(
        kube, "DELETE", CONFIG_MAPS.path(namespace=sandbox.namespace), labelSelector="app=x"
    )

    left = await kube.list_page(CONFIG_MAPS, labels="app")
    assert [item.metadata.name for item in left.items] == ["c"]
