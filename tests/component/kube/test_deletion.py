"""Deletion: who dies, when, and who of the same name survives."""

import pytest

from libs.kube.client import Kube
from libs.kube.errors import Conflict, Invalid, NotFound
from libs.kube.resources import CONFIG_MAPS, NODES, PODS
from tests.component.kube.builders import READY, config_map, pod
from tests.component.kube.raw_requests import get_json, patch, send_request
from tests.component.kube.sandbox import Sandbox


async def test_a_delete_with_a_former_uid_leaves_the_replacement(
    place: Sandbox, kube: Kube
) -> None:
    first = await kube.create(CONFIG_MAPS, config_map("a"), namespace=place.namespace)
    await kube.delete(CONFIG_MAPS, "a", uid=first.metadata.uid, namespace=place.namespace)
    second = await kube.create(CONFIG_MAPS, config_map("a"), namespace=place.namespace)

    with pytest.raises(Conflict) as refused:
        await kube.delete(CONFIG_MAPS, "a", uid=first.metadata.uid, namespace=place.namespace)

    assert refused.value.message == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition '
        f"({first.metadata.uid}) does not match the UID in record ({second.metadata.uid}). "
        "The object might have been deleted and then recreated"
    )
    assert await kube.get(CONFIG_MAPS, "a", namespace=place.namespace) == second


async def test_a_delete_can_be_fenced_by_the_revision(place: Sandbox, kube: Kube) -> None:
    made = await kube.create(CONFIG_MAPS, config_map("a"), namespace=place.namespace)
    await patch(kube, CONFIG_MAPS, "a", {"data": {"k": "1"}}, namespace=place.namespace)
    fence = {"preconditions": {"resourceVersion": made.metadata.resource_version}}

    with pytest.raises(Conflict):
        await kube.request(
            "DELETE", CONFIG_MAPS.path(namespace=place.namespace, name="a"), body=fence
        )


async def test_a_finalizer_holds_an_object_until_it_is_removed(place: Sandbox, kube: Kube) -> None:
    held = config_map("a", finalizers=["sluice.dev/held"])
    made = await kube.create(CONFIG_MAPS, held, namespace=place.namespace)

    await kube.delete(CONFIG_MAPS, "a", uid=made.metadata.uid, namespace=place.namespace)

    dying = await kube.get(CONFIG_MAPS, "a", namespace=place.namespace)
    assert dying.metadata.deletion_timestamp
    assert dying.metadata.finalizers == ("sluice.dev/held",)
    assert int(dying.metadata.resource_version) > int(made.metadata.resource_version)
    more = {"metadata": {"finalizers": ["sluice.dev/held", "sluice.dev/more"]}}
    with pytest.raises(Invalid) as refused:
        await patch(kube, CONFIG_MAPS, "a", more, namespace=place.namespace)
    assert [cause.field for cause in refused.value.causes] == ["metadata.finalizers"]
    await patch(
        kube, CONFIG_MAPS, "a", {"metadata": {"finalizers": None}}, namespace=place.namespace
    )
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAPS, "a", namespace=place.namespace)


async def test_a_bound_pod_is_deleted_with_its_grace_period(place: Sandbox, kube: Kube) -> None:
    node = await place.node("n")
    made = await kube.create(PODS, pod("a", node=node, grace=20), namespace=place.namespace)

    await kube.delete(PODS, "a", uid=made.metadata.uid, namespace=place.namespace)

    dying = await get_json(kube, PODS, "a", namespace=place.namespace)
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 20
    assert dying["metadata"]["generation"] == 2
    first = dying["metadata"]["deletionTimestamp"]
    await kube.delete(PODS, "a", uid=made.metadata.uid, namespace=place.namespace, grace=5)
    shorter = await get_json(kube, PODS, "a", namespace=place.namespace)
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < first
    await kube.delete(PODS, "a", uid=made.metadata.uid, namespace=place.namespace, grace=0)
    with pytest.raises(NotFound):
        await kube.get(PODS, "a", namespace=place.namespace)


async def test_an_unbound_pod_is_deleted_at_once(place: Sandbox, kube: Kube) -> None:
    made = await kube.create(PODS, pod("a"), namespace=place.namespace)

    await kube.delete(PODS, "a", uid=made.metadata.uid, namespace=place.namespace)

    with pytest.raises(NotFound):
        await kube.get(PODS, "a", namespace=place.namespace)


async def test_a_terminating_pod_stays_until_its_kubelet_deletes_it(
    place: Sandbox, kube: Kube
) -> None:
    node = await place.node("n")
    made = await kube.create(PODS, pod("a", node=node), namespace=place.namespace)
    await patch(kube, PODS, "a", {"status": READY}, namespace=place.namespace, subresource="status")

    await kube.delete(PODS, "a", uid=made.metadata.uid, namespace=place.namespace)

    dying = await kube.get(PODS, "a", namespace=place.namespace)
    assert dying.status.phase == "Running"
    assert dying.metadata.deletion_timestamp


async def test_a_node_is_deleted_at_once_and_recreated_with_another_uid(
    place: Sandbox, kube: Kube
) -> None:
    node = await place.node("n")
    first = await kube.get(NODES, node)

    await kube.delete(NODES, node, uid=first.metadata.uid)

    with pytest.raises(NotFound):
        await kube.get(NODES, node)
    again = await place.node("n")
    second = await kube.get(NODES, again)
    assert second.metadata.uid != first.metadata.uid
    with pytest.raises(Conflict):
        await kube.delete(NODES, node, uid=first.metadata.uid)


async def test_a_selection_can_be_deleted_as_a_collection(place: Sandbox, kube: Kube) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        await kube.create(
            CONFIG_MAPS, config_map(name, labels={"app": app}), namespace=place.namespace
        )

    await send_request(
        kube, "DELETE", CONFIG_MAPS.path(namespace=place.namespace), labelSelector="app=x"
    )

    left = await kube.list_page(CONFIG_MAPS, namespace=place.namespace, labels="app")
    assert [item.metadata.name for item in left.items] == ["c"]
