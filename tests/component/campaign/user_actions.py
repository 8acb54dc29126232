"""What people do with kubectl, each by a word; most of it they undo again after a while.

An act that has nothing to act on does nothing, and says so.
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
from libs.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from libs.kube.responses import Evicted
from libs.testing.cluster.views import BUDGETS, PODS, REPLICA_SETS, Pod
from services.scheduler import resources
from tests.component.campaign.admin import POOL
from tests.component.campaign.scenario import NEW, OLD, ScheduledAction
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
"""What a person asks for by annotation; empty: an upgrade, as the GPU Operator's users do."""
LABELS: Final = (None, "0123456789abcdef0123456789abcdef", "")

T = TypeVar("T")

Perform = Callable[[CampaignWorld, ScheduledAction], Coroutine[Any, Any, bool]]


async def label(town: CampaignWorld, node: str, **labels: str | None) -> bool:
    """`kubectl label --overwrite`, of a node that is there."""
    return await _merge(town, node, {"metadata": {"labels": labels}})


async def annotate(town: CampaignWorld, node: str, **annotations: str | None) -> bool:
    """`kubectl annotate --overwrite`, of a node that is there."""
    return await _merge(town, node, {"metadata": {"annotations": annotations}})


async def cordon(town: CampaignWorld, node: str, unschedulable: bool) -> bool:
    """As `kubectl cordon` does it: nothing is written where it is so already."""
    try:
        found = await town.kube.get(resources.NODES, node)
    except NotFound:
        return False
    if found.spec.unschedulable == unschedulable:
        return False
    return await _merge(town, node, {"spec": {"unschedulable": unschedulable or None}})


async def brake(town: CampaignWorld, position: str) -> bool:
    """`spec.brake` of the Rollout."""
    try:
        await town.change(resources.ROLLOUTS, POOL, {"spec": {"brake": position}})
    except NotFound:
        return False
    return True


async def evict(town: CampaignWorld, pod: Pod) -> bool:
    """Whether it goes; a budget may be in the way."""
    meta = pod.metadata
    try:
        answer = await town.kube.evict(meta.name, namespace=meta.namespace, uid=meta.uid)
    except KubeError:
        return False
    return isinstance(answer, Evicted)


def _chosen(some: Sequence[T], act: ScheduledAction) -> T:
    return some[int(act.value) % len(some)]


async def _merge(town: CampaignWorld, node: str, change: Any) -> bool:
    try:
        await town.change(resources.NODES, node, change)
    except NotFound:
        return False
    return True


def _for_a_while(
    begin: Callable[[CampaignWorld, ScheduledAction], Coroutine[Any, Any, bool]],
    end: Callable[[CampaignWorld, ScheduledAction], Coroutine[Any, Any, object]],
) -> Perform:
    async def perform(town: CampaignWorld, act: ScheduledAction) -> bool:
        begun = await begin(town, act)
        if begun:
            town.run_after(act.value, lambda: end(town, act))
        return begun

    return perform


async def _drain(town: CampaignWorld, act: ScheduledAction) -> bool:
    await cordon(town, act.node, True)
    found = False
    for pod in (await town.kube.list_page(PODS, namespace="default")).items:
        if pod.spec.node_name == act.node:
            found |= await evict(town, pod)
    return found


async def _label_state(town: CampaignWorld, act: ScheduledAction) -> bool:
    return await label(town, act.node, **{STATE_LABEL: _chosen(STATES, act)})


async def _label_driver(town: CampaignWorld, act: ScheduledAction) -> bool:
    said = _chosen(LABELS, act)
    return await label(town, act.node, **{DRIVER_LABEL: town.label if said == "" else said})


async def _retry(town: CampaignWorld, act: ScheduledAction) -> bool:
    return await label(town, act.node, **{STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value})


async def _ask(town: CampaignWorld, act: ScheduledAction) -> bool:
    said = _chosen(REQUESTS, act)
    if said:
        return await annotate(town, act.node, **{REQUEST_ANNOTATION: said})
    return await annotate(town, act.node, **{REQUESTED_ANNOTATION: "true"})


async def _want(town: CampaignWorld, act: ScheduledAction) -> bool:
    await town.apply_policy(_chosen(WANTED, act))
    return True


async def _auto_off(town: CampaignWorld, _act: ScheduledAction) -> bool:
    await town.apply_policy(autoUpgrade=False)
    return True


async def _auto_on(town: CampaignWorld, _act: ScheduledAction) -> None:
    await town.apply_policy(autoUpgrade=True)


async def _delete_policy(town: CampaignWorld, _act: ScheduledAction) -> bool:
    await town.remove_policy()
    return True


async def _want_again(town: CampaignWorld, _act: ScheduledAction) -> None:
    await town.apply_policy()


async def _lose_rollout(town: CampaignWorld, _act: ScheduledAction) -> bool:
    """Its finalizer is no obstacle to an administrator."""
    path = resources.ROLLOUTS.path(name=POOL)
    try:
        await town.change(resources.ROLLOUTS, POOL, {"metadata": {"finalizers": None}})
        await town.kube.request("DELETE", path)
    except NotFound:
        return False
    return True


async def _job(town: CampaignWorld, act: ScheduledAction) -> bool:
    try:
        await town.create_service(f"job-{act.node}", act.node, gpus=1)
    except (AlreadyExists, Conflict):
        return False
    return True


async def _job_ends(town: CampaignWorld, act: ScheduledAction) -> None:
    name = f"job-{act.node}"
    path = REPLICA_SETS.path(name=name, namespace="default")
    try:
        await town.kube.request("DELETE", path, query={"propagationPolicy": "Background"})
    except NotFound:
        return


async def _guard(town: CampaignWorld, _act: ScheduledAction) -> bool:
    """Nobody may evict anything of theirs."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    try:
        await town.kube.create(BUDGETS, budget, namespace="default")
    except (AlreadyExists, Conflict):
        return False
    return True


async def _unguard(town: CampaignWorld, _act: ScheduledAction) -> None:
    try:
        await town.kube.request("DELETE", BUDGETS.path(name="all", namespace="default"))
    except NotFound:
        return


def _brakes(position: str) -> Perform:
    return _for_a_while(lambda town, _: brake(town, position), lambda town, _: brake(town, "None"))


def _labels(key: str) -> Perform:
    return _for_a_while(
        lambda town, act: label(town, act.node, **{key: "true"}),
        lambda town, act: label(town, act.node, **{key: None}),
    )


def _annotates(key: str, value: str | None) -> Perform:
    return lambda town, act: annotate(town, act.node, **{key: value})


USER_ACTIONS: Final[dict[str, Perform]] = {
    "cordon": _for_a_while(
        lambda town, act: cordon(town, act.node, True),
        lambda town, act: cordon(town, act.node, False),
    ),
    "uncordon": lambda town, act: cordon(town, act.node, False),
    "drain": _for_a_while(_drain, lambda town, act: cordon(town, act.node, False)),
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
    "auto-off": _for_a_while(_auto_off, _auto_on),
    "want": _want,
    "delete-policy": _for_a_while(_delete_policy, _want_again),
    "lose-rollout": _lose_rollout,
    "job": _for_a_while(_job, _job_ends),
    "guard-pods": _for_a_while(_guard, _unguard),
}
