"""Events of waits: none of Kubernetes in an upgrade that goes well, one for a wait that lasts."""

import re

from libs.contracts.events import EventKind, WaitEvent
from libs.contracts.waits import WAITS_REASON, WaitCode
from libs.kube.client import MERGE_PATCH
from services.scheduler import resources
from services.scheduler.wait_events import LASTS
from tests.component.scheduler.world import NEW, World, in_world


@in_world
async def test_bring_up_and_an_upgrade_that_evicts_pods_record_no_event_of_a_wait(
    world: World,
) -> None:
    _, target = await world.complete_first_rollout("a", "b")
    await world.start_job("train", "a")
    await world.apply_policy(NEW)
    await world.wait_until_done("a", "b", before=target)
    bodies = [each.open() for each in await world.bus_events() if each.kind is EventKind.WAIT]
    codes = {body.code for body in bodies if isinstance(body, WaitEvent)}
    assert {WaitCode.EVICTION, WaitCode.OLD_DRIVER, WaitCode.GATE} <= codes
    assert await world.events_of(WAITS_REASON) == []


@in_world
async def test_events_name_a_driver_by_its_version_from_the_first_on(world: World) -> None:
    _, target = await world.complete_first_rollout("a")
    await world.apply_policy(NEW)
    await world.wait_until_done("a", before=target)
    events = await world.bus_events()
    texts = [each.message for each in events]
    for each in events:
        body = each.open()
        texts += [body.detail] if isinstance(body, WaitEvent) else []
    assert f"waiting for the new driver pod ({NEW}) to reach the gate" in texts
    assert f"start: set the driver label to {NEW}" in texts
    assert [text for text in texts if re.search(r"(?<![\w-])[0-9a-f]{32}(?![\w-])", text)] == []


@in_world
async def test_a_pod_that_does_not_leave_is_told_once_it_lasts_and_by_one_leader(
    world: World,
) -> None:
    leader, _ = await world.complete_first_rollout("a")
    await world.start_job("train", "a")
    (pod,) = (await world.kube.list_page(resources.PODS, namespace="default")).items
    name = pod.metadata.name
    await world.kube.request(
        "PATCH",
        resources.PODS.path(namespace="default", name=name),
        body={"metadata": {"finalizers": ["example.com/held"]}},
        content_type=MERGE_PATCH,
    )
    await world.apply_policy(NEW, podDeletion={"timeoutSeconds": 0})
    await world.until_state("a", "pod-deletion-required")
    await world.sleep(LASTS - 60)
    assert await world.events_of(WAITS_REASON) == []
    await world.sleep(120)
    (event,) = await world.events_of(WAITS_REASON)
    assert event["type"] == "Warning"
    assert event["message"] == (
        f"eviction: waiting for pods to leave: default/{name} (terminating), for 5 min. Can be"
        " ended by: the owners of the pods"
    )
    await leader.kill()
    await world.lead()
    await world.sleep(2 * LASTS)
    assert len(await world.events_of(WAITS_REASON)) == 1
