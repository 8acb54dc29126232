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
from libs.kube.answers import Evicted
from libs.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from libs.testing.cluster.kinds import BUDGETS, PODS, REPLICA_SETS, Pod
from services.scheduler import things
from tests.component.campaign.person import POOL
from tests.component.campaign.scenario import NEW, OLD, Act
from tests.component.campaign.town import Town

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
ASKED: Final = ("adopt", "forget", "without-preflight", "")
"""What a person asks for by annotation; empty: an upgrade, as the GPU Operator's users do."""
LABELS: Final = (None, "0123456789abcdef0123456789abcdef", "")

T = TypeVar("T")

Perform = Callable[[Town, Act], Coroutine[Any, Any, bool]]


async def label(town: Town, node: str, **labels: str | None) -> bool:
    """`kubectl label --overwrite`, of a node that is there."""
    return await _merge(town, node, {"metadata": {"labels": labels}})


async def annotate(town: Town, node: str, **annotations: str | None) -> bool:
    """`kubectl annotate --overwrite`, of a node that is there."""
    return await _merge(town, node, {"metadata": {"annotations": annotations}})


async def cordon(town: Town, node: str, unschedulable: bool) -> bool:
    """As `kubectl cordon` does it: nothing is written where it is so already."""
    try:
        found = await town.kube.get(things.NODES, node)
    except NotFound:
        return False
    if found.spec.unschedulable == unschedulable:
        return False
    return await _merge(town, node, {"spec": {"unschedulable": unschedulable or None}})


async def brake(town: Town, position: str) -> bool:
    """`spec.brake` of the Rollout."""
    try:
        await town.change(things.ROLLOUTS, POOL, {"spec": {"brake": position}})
    except NotFound:
        return False
    return True


async def evict(town: Town, pod: Pod) -> bool:
    """Whether it goes; a budget may be in the way."""
    meta = pod.metadata
    try:
        answer = await town.kube.evict(meta.name, namespace=meta.namespace, uid=meta.uid)
    except KubeError:
        return False
    return isinstance(answer, Evicted)


def _chosen(some: Sequence[T], act: Act) -> T:
    return some[int(act.value) % len(some)]


async def _merge(town: Town, node: str, change: Any) -> bool:
    try:
        await town.change(things.NODES, node, change)
    except NotFound:
        return False
    return True


def _for_a_while(
    begin: Callable[[Town, Act], Coroutine[Any, Any, bool]],
    end: Callable[[Town, Act], Coroutine[Any, Any, object]],
) -> Perform:
    async def perform(town: Town, act: Act) -> bool:
        begun = await begin(town, act)
        if begun:
            town.after(act.value, lambda: end(town, act))
        return begun

    return perform


async def _drain(town: Town, act: Act) -> bool:
    await cordon(town, act.node, True)
    found = False
    for pod in (await town.kube.page(PODS, namespace="default")).items:
        if pod.spec.node_name == act.node:
            found |= await evict(town, pod)
    return found


async def _label_state(town: Town, act: Act) -> bool:
    return await label(town, act.node, **{STATE_LABEL: _chosen(STATES, act)})


async def _label_driver(town: Town, act: Act) -> bool:
    said = _chosen(LABELS, act)
    return await label(town, act.node, **{DRIVER_LABEL: town.label if said == "" else said})


async def _retry(town: Town, act: Act) -> bool:
    return await label(town, act.node, **{STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value})


async def _ask(town: Town, act: Act) -> bool:
    said = _chosen(ASKED, act)
    if said:
        return await annotate(town, act.node, **{REQUEST_ANNOTATION: said})
    return await annotate(town, act.node, **{REQUESTED_ANNOTATION: "true"})


async def _want(town: Town, act: Act) -> bool:
    await town.want(_chosen(WANTED, act))
    return True


async def _auto_off(town: Town, _act: Act) -> bool:
    await town.want(autoUpgrade=False)
    return True


async def _auto_on(town: Town, _act: Act) -> None:
    await town.want(autoUpgrade=True)


async def _delete_policy(town: Town, _act: Act) -> bool:
    await town.remove_policy()
    return True


async def _want_again(town: Town, _act: Act) -> None:
    await town.want()


async def _lose_rollout(town: Town, _act: Act) -> bool:
    """Its finalizer is no obstacle to an administrator."""
    path = things.ROLLOUTS.path(name=POOL)
    try:
        await town.change(things.ROLLOUTS, POOL, {"metadata": {"finalizers": None}})
        await town.kube.request("DELETE", path)
    except NotFound:
        return False
    return True


async def _job(town: Town, act: Act) -> bool:
    try:
        await town.service_on(f"job-{act.node}", act.node, gpus=1)
    except (AlreadyExists, Conflict):
        return False
    return True


async def _job_ends(town: Town, act: Act) -> None:
    name = f"job-{act.node}"
    path = REPLICA_SETS.path(name=name, namespace="default")
    try:
        await town.kube.request("DELETE", path, query={"propagationPolicy": "Background"})
    except NotFound:
        return


async def _guard(town: Town, _act: Act) -> bool:
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


async def _unguard(town: Town, _act: Act) -> None:
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


ACTS: Final[dict[str, Perform]] = {
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
