"""What people do with kubectl, by name; most of it is undone after a while.

An action returns whether there was anything to act on.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from libs.contracts.node import (
    DRIVER_LABEL,
    KEEP_CORDONED_LABEL,
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    REQUESTED_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
    UpgradeState,
)
from libs.kube.client import Evicted
from libs.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from libs.testing.cluster.views import BUDGETS, PODS, REPLICA_SETS, Pod
from services.scheduler import resources
from tests.component.campaign.admin import NEW, OLD, POOL
from tests.component.campaign.user_actions import ScheduledAction
from tests.component.campaign.world import CampaignWorld

OTHER: Final = "575.57.08"
WANTED: Final = (OLD, NEW, OTHER)
STATES: Final = (
    None,
    UpgradeState.UPGRADE_DONE.value,
    UpgradeState.UPGRADE_FAILED.value,
    UpgradeState.POD_RESTART_REQUIRED.value,
    UpgradeState.VALIDATION_REQUIRED.value,
    "by-hand",
)
REQUESTS: Final = ("adopt", "forget", "without-preflight", "")
"""Requests by annotation; empty: an upgrade, as users of the GPU Operator request it."""
LABELS: Final = (None, "0123456789abcdef0123456789abcdef", "")

T = TypeVar("T")

Perform = Callable[[CampaignWorld, ScheduledAction], Coroutine[Any, Any, bool]]


async def label(world: CampaignWorld, node: str, **labels: str | None) -> bool:
    """`kubectl label --overwrite`; False if the node is gone."""
    return await _merge(world, node, {"metadata": {"labels": labels}})


async def annotate(world: CampaignWorld, node: str, **annotations: str | None) -> bool:
    """`kubectl annotate --overwrite`; False if the node is gone."""
    return await _merge(world, node, {"metadata": {"annotations": annotations}})


async def cordon(world: CampaignWorld, node: str, unschedulable: bool) -> bool:
    """`kubectl cordon` or `uncordon`; nothing is written if nothing changes."""
    try:
        found = await world.kube.get(resources.NODES, node)
    except NotFound:
        return False
    if found.spec.unschedulable == unschedulable:
        return False
    return await _merge(world, node, {"spec": {"unschedulable": unschedulable or None}})


async def brake(world: CampaignWorld, brake_position: str) -> bool:
    """Set `spec.brake` of the Rollout."""
    try:
        await world.change(resources.ROLLOUTS, POOL, {"spec": {"brake": brake_position}})
    except NotFound:
        return False
    return True


async def evict(world: CampaignWorld, pod: Pod) -> bool:
    meta = pod.metadata
    try:
        answer = await world.kube.evict(meta.name, namespace=meta.namespace, uid=meta.uid)
    except KubeError:
        return False
    return isinstance(answer, Evicted)


def _chosen(choices: Sequence[T], action: ScheduledAction) -> T:
    return choices[int(action.value) % len(choices)]


async def _merge(world: CampaignWorld, node: str, change: Any) -> bool:
    try:
        await world.change(resources.NODES, node, change)
    except NotFound:
        return False
    return True


def _temporarily(
    start: Callable[[CampaignWorld, ScheduledAction], Coroutine[Any, Any, bool]],
    end: Callable[[CampaignWorld, ScheduledAction], Coroutine[Any, Any, object]],
) -> Perform:
    async def perform(world: CampaignWorld, action: ScheduledAction) -> bool:
        started = await start(world, action)
        if started:
            world.run_after(action.value, lambda: end(world, action))
        return started

    return perform


async def _drain(world: CampaignWorld, action: ScheduledAction) -> bool:
    await cordon(world, action.node, True)
    found = False
    for pod in (await world.kube.list_page(PODS, namespace="default")).items:
        if pod.spec.node_name == action.node:
            found |= await evict(world, pod)
    return found


async def _label_state(world: CampaignWorld, action: ScheduledAction) -> bool:
    return await label(world, action.node, **{STATE_LABEL: _chosen(STATES, action)})


async def _label_driver(world: CampaignWorld, action: ScheduledAction) -> bool:
    value = _chosen(LABELS, action)
    return await label(world, action.node, **{DRIVER_LABEL: world.label if value == "" else value})


async def _retry(world: CampaignWorld, action: ScheduledAction) -> bool:
    return await label(world, action.node, **{STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value})


async def _ask(world: CampaignWorld, action: ScheduledAction) -> bool:
    value = _chosen(REQUESTS, action)
    if value:
        return await annotate(world, action.node, **{REQUEST_ANNOTATION: value})
    return await annotate(world, action.node, **{REQUESTED_ANNOTATION: "true"})


async def _want(world: CampaignWorld, action: ScheduledAction) -> bool:
    await world.apply_policy(_chosen(WANTED, action))
    return True


async def _auto_off(world: CampaignWorld, _action: ScheduledAction) -> bool:
    await world.apply_policy(autoUpgrade=False)
    return True


async def _auto_on(world: CampaignWorld, _action: ScheduledAction) -> None:
    await world.apply_policy(autoUpgrade=True)


async def _delete_policy(world: CampaignWorld, _action: ScheduledAction) -> bool:
    await world.remove_policy()
    return True


async def _want_again(world: CampaignWorld, _action: ScheduledAction) -> None:
    await world.apply_policy()


async def _lose_rollout(world: CampaignWorld, _action: ScheduledAction) -> bool:
    """Delete the Rollout, removing its finalizer first."""
    path = resources.ROLLOUTS.path(name=POOL)
    try:
        await world.change(resources.ROLLOUTS, POOL, {"metadata": {"finalizers": None}})
        await world.kube.request("DELETE", path)
    except NotFound:
        return False
    return True


async def _job(world: CampaignWorld, action: ScheduledAction) -> bool:
    try:
        await world.create_service(f"job-{action.node}", action.node, gpus=1)
    except (AlreadyExists, Conflict):
        return False
    return True


async def _job_ends(world: CampaignWorld, action: ScheduledAction) -> None:
    name = f"job-{action.node}"
    path = REPLICA_SETS.path(name=name, namespace="default")
    try:
        await world.kube.request("DELETE", path, query={"propagationPolicy": "Background"})
    except NotFound:
        return


async def _guard(world: CampaignWorld, _action: ScheduledAction) -> bool:
    """Create a budget that allows no eviction."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    try:
        await world.kube.create(BUDGETS, budget, namespace="default")
    except (AlreadyExists, Conflict):
        return False
    return True


async def _unguard(world: CampaignWorld, _action: ScheduledAction) -> None:
    try:
        await world.kube.request("DELETE", BUDGETS.path(name="all", namespace="default"))
    except NotFound:
        return


def _brakes(brake_position: str) -> Perform:
    return _temporarily(
        lambda world, _: brake(world, brake_position), lambda world, _: brake(world, "None")
    )


def _labels(key: str) -> Perform:
    return _temporarily(
        lambda world, action: label(world, action.node, **{key: "true"}),
        lambda world, action: label(world, action.node, **{key: None}),
    )


def _annotates(key: str, value: str | None) -> Perform:
    return lambda world, action: annotate(world, action.node, **{key: value})


USER_ACTIONS: Final[dict[str, Perform]] = {
    "cordon": _temporarily(
        lambda world, action: cordon(world, action.node, True),
        lambda world, action: cordon(world, action.node, False),
    ),
    "uncordon": lambda world, action: cordon(world, action.node, False),
    "drain": _temporarily(_drain, lambda world, action: cordon(world, action.node, False)),
    "label-state": _label_state,
    "label-driver": _label_driver,
    "skip": _labels(SKIP_LABEL),
    "keep-cordoned": _labels(KEEP_CORDONED_LABEL),
    "retry": _retry,
    "ask": _ask,
    "lose-record": _annotates(RECORD_ANNOTATION, None),
    "garble-record": _annotates(RECORD_ANNOTATION, "{"),
    "strip-lease": _annotates(LEASE_ANNOTATION, None),
    "pause": _brakes("Pause"),
    "freeze": _brakes("Freeze"),
    "auto-off": _temporarily(_auto_off, _auto_on),
    "want": _want,
    "delete-policy": _temporarily(_delete_policy, _want_again),
    "lose-rollout": _lose_rollout,
    "job": _temporarily(_job, _job_ends),
    "guard-pods": _temporarily(_guard, _unguard),
}
