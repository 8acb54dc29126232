"""The next upgrade of a fleet, under the GPU Operator's limits and under Sluice's. Pure.

How long it takes is arithmetic (`courses.py`), not a simulation.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from libs.contracts.node import UpgradeState
from libs.ctl.answers import PlannedFile
from libs.ctl.observe.courses import Course, operator_course, sluice_course
from libs.ctl.observe.fleet import REQUIRED, Limits, OperatorNode, OperatorPool
from libs.ctl.observe.objects import DONE, PodDeletion
from libs.ctl.observe.pods import Evicted
from libs.fleet.status import Source

if TYPE_CHECKING:
    from libs.policy.kinds.upgrade_policy import UpgradePolicy

USUAL_SECONDS: Final = 240.0
"""Of one node, as the sample in NVIDIA's documentation shows; where no upgrade was seen."""
_STATE_EVENT: Final = re.compile(r"Successfully updated node state label to (\S+)")
_FAILED: Final = UpgradeState.UPGRADE_FAILED.value
_BEGUN: Final = frozenset(
    {UpgradeState.CORDON_REQUIRED.value, UpgradeState.POD_RESTART_REQUIRED.value}
)


class NodeForecast(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    restarts_only: bool
    """The operator replaces the driver pod and evicts nothing."""
    evicted: tuple[Evicted, ...]
    without_place: tuple[str, ...] = ()
    """Evicted pods that fit on no other node now."""
    note: str = ""


class ObservedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The next upgrade of a pool under both sets of rules, and what it meets on each node."""

    pool: str
    version: str
    limits: Limits
    nodes: tuple[NodeForecast, ...]
    left_out: tuple[str, ...]
    """Nodes that do not take part, each with the reason."""
    node_seconds: float
    measured_nodes: int
    """From how many upgrades that duration comes; 0: it is the usual one."""
    operator: Course
    sluice: Course
    sources: tuple[Source, ...] = ()
    file: PlannedFile | None = None


class StateEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An Event of the operator about a node."""

    node: str
    message: str
    at: float


def with_limits(
    pool: OperatorPool, *, max_unavailable: str = "", max_parallel: int | None = None
) -> OperatorPool:
    """Return the pool with other limits, where they are given."""
    limits = pool.limits
    if max_unavailable:
        amount = int(max_unavailable) if max_unavailable.isdecimal() else max_unavailable
        limits = msgspec.structs.replace(limits, max_unavailable=amount)
    if max_parallel is not None:
        limits = msgspec.structs.replace(limits, max_parallel=max_parallel)
    return msgspec.structs.replace(pool, limits=limits)


def with_policy(
    pool: OperatorPool, upgrade: "UpgradePolicy", *, has_pod_deletion: bool
) -> OperatorPool:
    """Return the pool with the limits of another policy."""
    given, jobs = upgrade.pod_deletion, upgrade.wait_for_completion
    eviction = PodDeletion(
        force=given.force,
        timeout_seconds=given.timeout_seconds,
        delete_empty_dir=given.delete_empty_dir,
    )
    limits = Limits(
        auto_upgrade=upgrade.auto_upgrade,
        max_parallel=upgrade.max_parallel_upgrades,
        max_unavailable=upgrade.max_unavailable,
        eviction=eviction if has_pod_deletion else None,
        drains=upgrade.drain.enable,
        job_selector=jobs.pod_selector,
        job_timeout=jobs.timeout_seconds,
    )
    return msgspec.structs.replace(pool, limits=limits)


def plan_of(
    pool: OperatorPool,
    evicted: Mapping[str, Sequence[Evicted]],
    events: Iterable[StateEvent],
    *,
    version: str,
    changed: bool = False,
    without_place: Mapping[str, tuple[str, ...]] = {},
) -> ObservedPlan:
    """Return the next upgrade: of the nodes that need one, or of all nodes to another driver.

    `changed`: it is another one although its version may be the same.
    """
    another = changed or (bool(version) and version != pool.version)
    concerned = [
        node
        for node in pool.nodes
        if another or node.needs_upgrade or node.state not in DONE or not _any_needs(pool)
    ]
    moving = [node for node in concerned if not node.skipped]
    measured = _durations(events)
    seconds = median(measured) if measured else USUAL_SECONDS
    return ObservedPlan(
        pool=pool.name,
        version=version or pool.version,
        limits=pool.limits,
        nodes=tuple(
            _forecast(
                node,
                evicted.get(node.name, ()),
                pool.limits,
                another=another,
                lost=without_place.get(node.name, ()),
            )
            for node in moving
        ),
        left_out=tuple(
            f"{node.name}: {reason}" for node in concerned if (reason := _left_out(node))
        ),
        node_seconds=seconds,
        measured_nodes=len(measured),
        operator=operator_course(pool, moving, seconds),
        sluice=sluice_course(pool, moving, seconds),
    )


def _left_out(node: OperatorNode) -> str:
    if node.skipped:
        return "the skip label keeps it out"
    if not node.ready:
        return "it is not Ready, so Sluice does not start it; the operator does"
    if node.state == _FAILED:
        return "it failed: the operator does not try again; Sluice tries it like any other"
    return ""


def _any_needs(pool: OperatorPool) -> bool:
    return any(node.needs_upgrade or node.state not in DONE for node in pool.nodes)


def _forecast(
    node: OperatorNode,
    evicted: Sequence[Evicted],
    limits: Limits,
    *,
    another: bool,
    lost: tuple[str, ...],
) -> NodeForecast:
    """Return what the upgrade of one node evicts, and what of that finds no place elsewhere."""
    pod = node.pod
    restarts = (
        not another
        and node.state in (*DONE, REQUIRED)
        and pod is not None
        and pod.same_install
        and not (pod.orphan or node.requested or node.safe_load)
    )
    stuck = next((pod for pod in evicted if pod.obstacle), None)
    note = ""
    if stuck is not None and not restarts:
        end = "is drained" if limits.drains else "fails"
        note = f"under the operator it {end}: of {stuck.name}, {stuck.obstacle}"
    return NodeForecast(
        name=node.name,
        restarts_only=restarts,
        evicted=() if restarts else tuple(evicted),
        without_place=() if restarts else lost,
        note=note,
    )


def _durations(events: Iterable[StateEvent]) -> list[float]:
    """Return how long nodes took from their start to `upgrade-done`, as the Events say."""
    begun: dict[str, float] = {}
    found: list[float] = []
    for event in sorted(events, key=lambda each: each.at):
        match = _STATE_EVENT.search(event.message)
        state = match[1] if match is not None else ""
        if state in _BEGUN:
            begun.setdefault(event.node, event.at)
        elif state == UpgradeState.UPGRADE_DONE and event.node in begun:
            found.append(event.at - begun.pop(event.node))
        elif state == _FAILED:
            begun.pop(event.node, None)
    return found
