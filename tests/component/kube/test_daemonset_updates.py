"""Template changes of a DaemonSet: its revisions, and the replacement of its pods."""

from libs.kube.resources import CONTROLLER_REVISIONS, DAEMON_SETS, PODS
from tests.component.kube.daemonset_helpers import (
    HASH,
    bound_pods,
    create_daemonset,
    daemonset_status,
    finish_pod,
    mark_ready,
    pods_of,
    set_image,
    terminating_pods,
)
from tests.component.kube.raw_requests import JsonObject, get_json, patch
from tests.component.kube.sandbox import Kube, Sandbox

# Revisions


async def revisions(sandbox: Sandbox, name: str) -> list[JsonObject]:
    """Return the ControllerRevisions of a DaemonSet, oldest first."""
    kube = sandbox.kube()
    page = await kube.list_page(CONTROLLER_REVISIONS, labels=f"app={name}")
    found = [await get_json(kube, CONTROLLER_REVISIONS, item.metadata.name) for item in page.items]
    return sorted(found, key=lambda item: item["revision"])


async def test_each_template_has_a_revision_with_its_own_hash(
    sandbox: Sandbox, kube: Kube, key: str
) -> None:
    await sandbox.node("a", labels={key: "x"})
    await create_daemonset(sandbox, "d", {key: "x"}, image="none:1")
    (pod,) = await bound_pods(sandbox, "d")

    (first,) = await revisions(sandbox, "d")

    owner = await kube.get(DAEMON_SETS, "d")
    value = first["metadata"]["labels"][HASH]
    assert first["revision"] == 1
    assert first["metadata"]["name"] == f"d-{value}"
    assert first["metadata"]["ownerReferences"][0]["uid"] == owner.metadata.uid
    assert first["metadata"]["ownerReferences"][0]["controller"] is True
    assert pod.metadata.labels[HASH] == value
    template = first["data"]["spec"]["template"]
    assert template["$patch"] == "replace"
    assert template["spec"]["containers"][0]["image"] == "none:1"

    await set_image(sandbox, "d", "none:2")
    await daemonset_status(sandbox, "d", observed_generation=2)
    second = (await revisions(sandbox, "d"))[-1]
    assert second["revision"] == 2
    assert second["metadata"]["labels"][HASH] != value


async def test_a_former_template_reuses_its_revision_with_a_new_number(
    sandbox: Sandbox, key: str
) -> None:
    await create_daemonset(sandbox, "d", {key: "x"}, image="none:1")
    await daemonset_status(sandbox, "d", observed_generation=1)
    await set_image(sandbox, "d", "none:2")
    await daemonset_status(sandbox, "d", observed_generation=2)
    first, second = await revisions(sandbox, "d")

    await set_image(sandbox, "d", "none:1")
    await daemonset_status(sandbox, "d", observed_generation=3)

    again = await revisions(sandbox, "d")
    assert [item["metadata"]["name"] for item in again] == [
        second["metadata"]["name"],
        first["metadata"]["name"],
    ]
    assert [item["revision"] for item in again] == [2, 3]


async def test_a_change_outside_the_template_creates_no_revision(
    sandbox: Sandbox, kube: Kube, key: str
) -> None:
    await create_daemonset(sandbox, "d", {key: "x"})
    await daemonset_status(sandbox, "d", observed_generation=1)

    change = {"spec": {"updateStrategy": {"type": "OnDelete"}, "minReadySeconds": 1}}
    await patch(kube, DAEMON_SETS, "d", change)
    await daemonset_status(sandbox, "d", observed_generation=2)

    assert [item["revision"] for item in await revisions(sandbox, "d")] == [1]


async def test_on_delete_keeps_old_pods_until_they_are_deleted(
    sandbox: Sandbox, kube: Kube, key: str
) -> None:
    await sandbox.node("a", labels={key: "x"})
    await create_daemonset(sandbox, "d", {key: "x"}, image="none:1")
    (old,) = await bound_pods(sandbox, "d")
    await mark_ready(sandbox, [old])
    await daemonset_status(sandbox, "d", updated_number_scheduled=1, number_ready=1)

    await set_image(sandbox, "d", "none:2")
    await daemonset_status(
        sandbox, "d", observed_generation=2, updated_number_scheduled=0, number_ready=1
    )
    (still,) = await bound_pods(sandbox, "d")
    assert still.metadata.uid == old.metadata.uid

    await kube.delete(PODS, old.metadata.name, uid=old.metadata.uid, grace=0)
    (new,) = await bound_pods(sandbox, "d")
    assert new.metadata.uid != old.metadata.uid
    assert new.spec.containers[0].image == "none:2"
    assert new.metadata.labels[HASH] != old.metadata.labels[HASH]
    await daemonset_status(sandbox, "d", updated_number_scheduled=1)


async def test_a_terminating_pod_is_not_replaced_yet(
    sandbox: Sandbox, kube: Kube, key: str
) -> None:
    await sandbox.node("a", labels={key: "x"})
    await create_daemonset(sandbox, "d", {key: "x"})
    (old,) = await bound_pods(sandbox, "d")
    await mark_ready(sandbox, [old])

    await kube.delete(PODS, old.metadata.name, uid=old.metadata.uid)
    # The change makes the controller reconcile; it still creates no pod.
    await patch(kube, DAEMON_SETS, "d", {"spec": {"minReadySeconds": 1}})
    await daemonset_status(sandbox, "d", observed_generation=2)
    assert [pod.metadata.uid for pod in await pods_of(sandbox, "d")] == [old.metadata.uid]

    await finish_pod(sandbox, old)
    (new,) = await bound_pods(sandbox, "d")
    assert new.metadata.uid != old.metadata.uid


async def test_a_rolling_update_respects_max_unavailable(
    sandbox: Sandbox, kube: Kube, key: str
) -> None:
    for name in ("a", "b", "c"):
        await sandbox.node(name, labels={key: "x"})
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    await create_daemonset(sandbox, "d", {key: "x"}, image="none:1", strategy=rolling)
    await mark_ready(sandbox, await bound_pods(sandbox, "d", 3))
    await daemonset_status(sandbox, "d", number_available=3)

    await set_image(sandbox, "d", "none:2")

    for updated in range(1, 4):
        (leaving,) = await terminating_pods(sandbox, "d")
        assert len(await pods_of(sandbox, "d")) == 3
        await finish_pod(sandbox, leaving)
        await daemonset_status(sandbox, "d", updated_number_scheduled=updated, number_available=2)
        new = [
            pod
            for pod in await bound_pods(sandbox, "d", 3)
            if pod.spec.containers[0].image == "none:2" and pod.status.phase != "Running"
        ]
        assert len(new) == 1
        assert [pod for pod in await pods_of(sandbox, "d") if pod.metadata.deletion_timestamp] == []
        await mark_ready(sandbox, new)
    await daemonset_status(sandbox, "d", updated_number_scheduled=3, number_available=3)
