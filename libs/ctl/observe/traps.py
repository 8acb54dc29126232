"""States of a GPU Operator's fleet in which it waits for ever or does what nobody expects. Pure.

Each rule was read in the source of the operator, v26.7.0, and of its upgrade library.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from libs.contracts.node import INITIALLY_CORDONED_ANNOTATION, UpgradeState
from libs.ctl.observe.budget import Budget, budget_of
from libs.ctl.observe.fleet import (
    FAILED,
    KNOWN_STATES,
    REQUIRED,
    OperatorFleet,
    OperatorNode,
    OperatorPool,
)
from libs.ctl.observe.objects import DONE
from libs.ctl.text import plural, some

_CORDON_KEPT: Final = INITIALLY_CORDONED_ANNOTATION
MOST_RESTARTS: Final = 10
"""Of a container that is not ready; with one more the operator fails the node."""


class Trap(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to know, where it holds, and what to do about it."""

    name: str
    found: str
    remedy: str
    nodes: tuple[str, ...] = ()
    """Empty: it concerns a whole pool."""


def traps_of(fleet: OperatorFleet) -> tuple[Trap, ...]:
    """Return what holds now, pools before nodes."""
    pools = [trap for pool in fleet.pools for trap in _pool_traps(pool, budget_of(pool))]
    return (*_of_all(fleet), *_without_limit(fleet), *pools, *_node_traps(fleet.pools))


def _of_all(fleet: OperatorFleet) -> Iterator[Trap]:
    """Yield what stops or concerns the whole fleet."""
    incomplete = fleet.pools[0].incomplete if fleet.pools else ()
    if incomplete:
        yield Trap(
            name="one-missing-pod-stops-all",
            found=f"the DaemonSet {incomplete[0]}: no node of the cluster moves until it has all",
            remedy="repair or delete the node that has no driver pod; the skip label does not help",
        )
    paused = [node for node in fleet.nodes if node.paused and node.state in DONE]
    if paused:
        held = some(node.name for node in paused)
        yield Trap(
            name="operands-left-paused",
            found=f"{held} keeps operands paused outside of an upgrade",
            remedy="set the labels nvidia.com/gpu.deploy.* with the value paused-for-driver-upgrade"
            " to true",
            nodes=tuple(node.name for node in paused),
        )


def _without_limit(fleet: OperatorFleet) -> Iterator[Trap]:
    """Yield that nothing but maxUnavailable limits an upgrade: a 0 means unlimited."""
    limits = [
        f"of {pool.name} to {plural(budget_of(pool).limit, 'node')}"
        for pool in fleet.pools
        if pool.limits.auto_upgrade and not pool.limits.max_parallel
    ]
    if limits:
        yield Trap(
            name="no-parallel-limit",
            found="maxParallelUpgrades is 0, which means unlimited: maxUnavailable alone limits"
            f" the upgrade, {some(limits)} at once",
            remedy="set it, if that many are too many",
        )


def _pool_traps(pool: OperatorPool, budget: Budget) -> Iterator[Trap]:
    """Yield what holds a pool up without any message of the operator."""
    limits = pool.limits
    failed = [node.name for node in pool.managed if node.state == FAILED]
    if failed and limits.max_parallel and budget.in_progress >= limits.max_parallel:
        yield Trap(
            name="failed-nodes-hold-places",
            found=f"failed nodes ({some(failed)}) count as in progress: with maxParallelUpgrades"
            f" {limits.max_parallel} no other node starts",
            remedy="repair them, or raise maxParallelUpgrades by their number",
        )
    if limits.auto_upgrade and limits.eviction is None:
        yield Trap(
            name="no-section-podDeletion",
            found=f"{pool.name} has no upgradePolicy.podDeletion: every pass of the operator ends"
            " with an error once a node reaches pod-deletion-required",
            remedy="add upgradePolicy.podDeletion: {}",
        )


def _node_traps(pools: Sequence[OperatorPool]) -> Iterator[Trap]:
    for name, remedy, holds, text in _NODE_TRAPS:
        found = [node.name for pool in pools for node in pool.nodes if holds(node, pool)]
        if found:
            yield Trap(name=name, found=f"{some(found)} {text}", remedy=remedy, nodes=tuple(found))


def _is_forgiven(node: OperatorNode, _pool: OperatorPool) -> bool:
    return node.state == FAILED and node.pod is not None and node.pod.in_sync


def _has_no_validator(node: OperatorNode, _pool: OperatorPool) -> bool:
    return node.state == UpgradeState.VALIDATION_REQUIRED and not node.validators


def _bypasses(node: OperatorNode, pool: OperatorPool) -> bool:
    return pool.limits.auto_upgrade and node.state == REQUIRED and node.cordoned


def _loses_cordon(node: OperatorNode, _pool: OperatorPool) -> bool:
    return node.state == REQUIRED and node.cordoned and not node.initially_cordoned


def _is_left_cordoned(node: OperatorNode, pool: OperatorPool) -> bool:
    return not pool.limits.auto_upgrade and node.cordoned and node.initially_cordoned


def _restarts(node: OperatorNode, _pool: OperatorPool) -> bool:
    pod = node.pod
    return pod is not None and 0 < pod.restarts <= MOST_RESTARTS and node.state not in DONE


def _is_unknown(node: OperatorNode, _pool: OperatorPool) -> bool:
    return node.state not in KNOWN_STATES


_NODE_TRAPS: Final = (
    (
        "failed-becomes-done",
        "keep it cordoned under another name (a taint), and validate it yourself",
        _is_forgiven,
        "failed, but the driver pod is ready: the next pass uncordons it without a validation",
    ),
    (
        "no-validator",
        "see why the DaemonSet nvidia-operator-validator has no pod there",
        _has_no_validator,
        "has no validator pod, so the operator waits without any limit",
    ),
    (
        "cordoned-nodes-start-at-once",
        "set the label nvidia.com/gpu-driver-upgrade.skip=true if that must not be",
        _bypasses,
        "is cordoned, and starts beyond maxParallelUpgrades and maxUnavailable",
    ),
    (
        "cordon-is-lost",
        "cordon it again afterwards, or set the skip label now",
        _loses_cordon,
        "was cordoned after it was marked: the operator uncordons it at the end",
    ),
    (
        "cordon-is-left",
        f"uncordon it if nobody needs the cordon, and remove the annotation {_CORDON_KEPT}",
        _is_left_cordoned,
        "is cordoned from an upgrade that autoUpgrade: false ended half way",
    ),
    (
        "failure-is-noticed-late",
        "see the log of its driver pod now: it fails only after eleven restarts",
        _restarts,
        "has a driver container that restarts, and is not failed yet",
    ),
    (
        "unknown-state",
        "remove the label nvidia.com/gpu-driver-upgrade-state",
        _is_unknown,
        "has a state that the operator does not know, so it does nothing with it",
    ),
)
"""Name, what to do, when it holds, and what it means for a node."""
