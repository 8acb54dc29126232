"""Actions of people with kubectl, by name; most are undone after a while."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

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
from tests.component.campaign.world import CampaignWorld

OTHER: Final = "575.57.08"
VERSIONS: Final = (OLD, NEW, OTHER)
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


class ScheduledAction(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    kind: str
    node: str = ""
    value: float = 0.0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.node, f"{self.value:g}" * bool(self.value))))


Perform = Callable[[CampaignWorld, ScheduledAction], Coroutine[Any, Any, bool]]
"""Performs an action; returns whether there was an object to act on."""


class ActionKind(msgspec.Struct, frozen=True):
    perform: Perform
    most: int = 1
    values: tuple[float, float] = (0.0, 0.0)
    often: float = 1.0
    """Relative probability; slow actions are rarer."""
    on_node: bool = False


DURATION: Final = (5.0, 90.0)
"""Seconds for which an action lasts."""


on_node: Final = partial(ActionKind, on_node=True)


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
    start: Perform,
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


async def _set_version(world: CampaignWorld, action: ScheduledAction) -> bool:
    await world.apply_policy(_chosen(VERSIONS, action))
    return True


async def _delete_policy(world: CampaignWorld, action: ScheduledAction) -> bool:
    await world.remove_policy()
    world.run_after(action.value, world.apply_policy)
    return True


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
    with suppress(NotFound):
        await world.kube.request("DELETE", path, query={"propagationPolicy": "Background"})


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
    with suppress(NotFound):
        await world.kube.request("DELETE", BUDGETS.path(name="all", namespace="default"))


def _applies(upgrade: Mapping[str, Any], later: Mapping[str, Any]) -> Perform:
    async def perform(world: CampaignWorld, action: ScheduledAction) -> bool:
        await world.apply_policy(**upgrade)
        world.run_after(action.value, lambda: world.apply_policy(**later))
        return True

    return perform


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


USER_ACTIONS: Final[Mapping[str, ActionKind]] = {
    "cordon": on_node(
        _temporarily(
            lambda world, action: cordon(world, action.node, True),
            lambda world, action: cordon(world, action.node, False),
        ),
        values=DURATION,
    ),
    "uncordon": on_node(lambda world, action: cordon(world, action.node, False), 2),
    "drain": on_node(
        _temporarily(_drain, lambda world, action: cordon(world, action.node, False)),
        values=DURATION,
    ),
    "label-state": on_node(_label_state, 2, (0.0, 6.0)),
    "label-driver": on_node(_label_driver, 2, (0.0, 3.0)),
    "skip": on_node(_labels(SKIP_LABEL), values=DURATION),
    "keep-cordoned": on_node(_labels(KEEP_CORDONED_LABEL), values=DURATION),
    "retry": on_node(_retry),
    "ask": on_node(_ask, values=(0.0, 4.0)),
    "lose-record": on_node(_annotates(RECORD_ANNOTATION, None)),
    "garble-record": on_node(_annotates(RECORD_ANNOTATION, "{")),
    "strip-lease": on_node(_annotates(LEASE_ANNOTATION, None)),
    "pause": ActionKind(_brakes("Pause"), values=DURATION),
    "freeze": ActionKind(_brakes("Freeze"), values=DURATION),
    "auto-off": ActionKind(
        _applies({"autoUpgrade": False}, {"autoUpgrade": True}), values=DURATION
    ),
    "want": ActionKind(_set_version, 2, (0.0, 3.0)),
    "delete-policy": ActionKind(_delete_policy, values=(0.5, 60.0), often=0.5),
    "lose-rollout": ActionKind(_lose_rollout, often=0.5),
    "job": on_node(_temporarily(_job, _job_ends), 2, DURATION),
    "guard-pods": ActionKind(_temporarily(_guard, _unguard), values=DURATION),
}
