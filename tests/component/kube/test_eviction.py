"""Evictions: the count that a budget allows, and the uid of the pod."""

import asyncio
from typing import Any

import pytest

from libs.kube.client import BlockedByBudget, Evicted, PodGone
from libs.kube.resources import POD_DISRUPTION_BUDGETS, PODS
from libs.kube.views import Pod
from tests.builders.objects import budget
from tests.component.kube.builders import READY, pod
from tests.component.kube.raw_requests import JsonObject, get_json, patch
from tests.component.kube.sandbox import Kube, Sandbox
from tests.support import eventually

APP = {"app": "job"}


async def running(sandbox: Sandbox, name: str, node: str, **more: Any) -> Pod:
    """Create a ready pod of the app."""
    kube = sandbox.kube(manager="kubelet")
    await kube.create(PODS, pod(name, node=node, labels=APP, **more))
    await patch(kube, PODS, name, {"status": READY}, subresource="status")
    return await kube.get(PODS, name)


async def budgeted(sandbox: Sandbox, *, allowed: int, name: str = "b", **spec: Any) -> JsonObject:
    """Create a budget; wait until it allows this many disruptions."""
    kube = sandbox.kube()
    await kube.create(POD_DISRUPTION_BUDGETS, budget(name, "job", **spec))
    return await counted(sandbox, allowed=allowed, name=name)


async def counted(sandbox: Sandbox, *, allowed: int, name: str = "b") -> JsonObject:
    found: JsonObject = {}

    async def agrees() -> bool:
        nonlocal found
        found = await get_json(sandbox.kube(), POD_DISRUPTION_BUDGETS, name)
        status = found.get("status", {})
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        return current and status["disruptionsAllowed"] == allowed

    await eventually(agrees)
    return found


async def evict(sandbox: Sandbox, target: Pod, **more: Any) -> Evicted | PodGone | BlockedByBudget:
    return await sandbox.kube().evict(target.metadata.name, uid=target.metadata.uid, **more)


def eviction(name: str) -> JsonObject:
    """Return an eviction without a uid."""
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


async def test_an_evicted_pod_has_its_grace_period_and_a_condition(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    target = await running(sandbox, "a", node, grace=20)

    assert await evict(sandbox, target) == Evicted()

    dying = await get_json(kube, PODS, "a")
    assert dying["metadata"]["deletionGracePeriodSeconds"] == 20
    reasons = {
        item["type"]: (item["status"], item.get("reason")) for item in dying["status"]["conditions"]
    }
    assert reasons["DisruptionTarget"] == ("True", "EvictionByEvictionAPI")


async def test_the_status_of_a_budget_counts_allowed_disruptions(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    for name in ("a", "b", "c"):
        await running(sandbox, name, node)

    found = await budgeted(sandbox, allowed=1, minAvailable=2)

    status = found["status"]
    assert (status["currentHealthy"], status["desiredHealthy"], status["expectedPods"]) == (3, 2, 3)
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionAllowed",
        "True",
        "SufficientPods",
    )


async def test_the_refusal_names_the_budget_and_its_count(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    await running(sandbox, "a", node)
    await budgeted(sandbox, allowed=0, minAvailable=1)

    path = PODS.path(namespace=sandbox.namespace, name="a", subresource="eviction")
    code, body = await sandbox.raw_response("POST", path, eviction("a"))

    assert code == 429
    assert body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "reason": "TooManyRequests",
        "details": {
            "causes": [
                {
                    "reason": "DisruptionBudget",
                    "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
                }
            ]
        },
        "code": 429,
    }


async def test_concurrent_evictions_do_not_exceed_the_budget(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    targets = [await running(sandbox, name, node) for name in ("a", "b", "c", "d")]
    await budgeted(sandbox, allowed=2, minAvailable=2)

    answers = await asyncio.gather(*(evict(sandbox, target) for target in targets))

    granted = [isinstance(answer, Evicted) for answer in answers]
    assert 1 <= sum(granted) <= 2  # a conflict on the budget's revision is a response 429 too
    page = await kube.list_page(PODS)
    doomed = [bool(item.metadata.deletion_timestamp) for item in page.items]
    assert doomed == granted


async def test_a_budget_allows_an_eviction_again_after_a_replacement_is_ready(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    first, second = await running(sandbox, "a", node), await running(sandbox, "b", node)
    await budgeted(sandbox, allowed=1, minAvailable=1)
    assert await evict(sandbox, first) == Evicted()
    await counted(sandbox, allowed=0)

    await kube.delete(PODS, "a", uid=first.metadata.uid, grace=0)
    assert isinstance(await evict(sandbox, second), BlockedByBudget)
    await running(sandbox, "c", node)
    await counted(sandbox, allowed=1)

    assert await evict(sandbox, second) == Evicted()


async def test_a_budget_of_other_pods_does_not_apply(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    target = await running(sandbox, "a", node)
    other = budget("b", "other", minAvailable=1)
    await kube.create(POD_DISRUPTION_BUDGETS, other)
    assert await evict(sandbox, target) == Evicted()


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_a_pod_that_is_not_running_is_evicted_without_budget(
    sandbox: Sandbox, kube: Kube, node: str, phase: str
) -> None:
    await running(sandbox, "a", node)
    await budgeted(sandbox, allowed=0, minAvailable=1)
    wanted = pod("idle", node=node, labels=APP)
    target = await kube.create(PODS, wanted)
    status = {"status": {"phase": phase}}
    await patch(kube, PODS, "idle", status, subresource="status")

    assert await evict(sandbox, target) == Evicted()


@pytest.mark.parametrize(
    ("policy", "answer"), [("IfHealthyBudget", BlockedByBudget), ("AlwaysAllow", Evicted)]
)
async def test_an_unready_pod_is_evicted_as_the_budget_policy_says(
    sandbox: Sandbox, kube: Kube, node: str, policy: str, answer: type
) -> None:
    target = await running(sandbox, "a", node)
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await patch(kube, PODS, "a", unready, subresource="status")
    await budgeted(sandbox, allowed=0, minAvailable=1, unhealthyPodEvictionPolicy=policy)

    assert isinstance(await evict(sandbox, target), answer)


async def test_an_unready_pod_is_evicted_while_the_budget_is_met(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    await running(sandbox, "well", node)
    target = await running(sandbox, "a", node)
    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    await patch(kube, PODS, "a", unready, subresource="status")
    await budgeted(sandbox, allowed=0, minAvailable=1)

    assert await evict(sandbox, target) == Evicted()


async def test_a_terminating_pod_can_be_evicted_again(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    target = await running(sandbox, "a", node)
    await budgeted(sandbox, allowed=0, minAvailable=1)
    await kube.delete(PODS, "a", uid=target.metadata.uid)

    assert await evict(sandbox, target) == Evicted()


async def test_an_eviction_of_a_deleted_pod_reports_pod_gone(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    target = await running(sandbox, "a", node)
    await kube.delete(PODS, "a", uid=target.metadata.uid, grace=0)

    assert await evict(sandbox, target) == PodGone()


async def test_an_eviction_under_a_budget_checks_the_uid_too(
    sandbox: Sandbox, kube: Kube, node: str
) -> None:
    """The refused eviction does not use up the budget."""
    await running(sandbox, "other", node)
    target = await running(sandbox, "a", node)
    await kube.delete(PODS, "a", uid=target.metadata.uid, grace=0)
    replacement = await running(sandbox, "a", node)
    await budgeted(sandbox, allowed=1, minAvailable=1)

    assert await evict(sandbox, target) == PodGone()

    assert await kube.get(PODS, "a") == replacement
