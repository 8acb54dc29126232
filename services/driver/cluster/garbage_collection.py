"""Selects drivers' DaemonSets to delete: of an old target, and unreferenced for an hour. Pure.

The driver label of a node, a node's record, the Rollout of its pool or a command may refer to a
DaemonSet. It also stays while its pool is missing or invalid: a deleted policy leaves its drivers
in place. The hour starts again with each reference, and with each term of leadership.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from libs.contracts.node import DRIVER_LABEL
from libs.policy.render.driver import daemon_set_name
from libs.policy.render.rendered import POOL_ANNOTATION, TARGET_ANNOTATION
from services.driver.cluster.plan import ObjectKey, OperandPlan
from services.driver.cluster.resources import DAEMON_SETS, DaemonSet, Node, Rollout, is_ours

HOUR: Final = 3600.0
SYSTEM_LABEL: Final = "nvidia.com/node.os-version"
"""On a driver's DaemonSet: the operating system of its nodes."""


def is_driver_daemon_set(daemon_set: DaemonSet) -> bool:
    """Return whether we applied it for a driver."""
    label = daemon_set.metadata.labels.get(DRIVER_LABEL, "")
    return (
        bool(label) and daemon_set.metadata.name == daemon_set_name(label) and is_ours(daemon_set)
    )


def kept_because(
    daemon_set: DaemonSet,
    plan: OperandPlan,
    *,
    nodes: Collection[Node],
    rollouts: Iterable[Rollout],
    commanded: Mapping[str, Collection[str]] | None,
) -> str:
    """Return what refers to it, or why else it stays; empty if it may be deleted.

    `commanded`: by driver label, the uids of nodes whose commands refer to it; None if unknown. A
    command for a deleted node does not count: its slots are purged without a message.
    """
    label = daemon_set.metadata.labels[DRIVER_LABEL]
    pool = daemon_set.metadata.annotations.get(POOL_ANNOTATION, "")
    target = daemon_set.metadata.annotations.get(TARGET_ANNOTATION, "")
    if ObjectKey(DAEMON_SETS.kind, daemon_set.metadata.name) in plan.objects:
        return "its pool wants it"
    if not (pool and target):
        return "it does not say for which pool and target it is"
    if pool not in plan.targets:
        return f"its pool {pool} is not there, or wants what cannot be done"
    if plan.targets[pool] == target and not _is_succeeded(daemon_set, plan, pool):
        return f"its target is what pool {pool} wants"
    if commanded is None:
        return "it is not known which drivers are named by commands"
    if any(node.metadata.uid in commanded.get(label, ()) for node in nodes):
        return "a command names it"
    for rollout in rollouts:
        if label in rollout.text or (rollout.metadata.name == pool and target in rollout.text):
            return f"Rollout {rollout.metadata.name} names it"
    # Searching the text also covers records of versions that cannot be decoded.
    for node in nodes:
        labelled = node.metadata.labels.get(DRIVER_LABEL) == label
        if labelled or label in node.record or target in node.record:
            return f"node {node.metadata.name} names it"
    return _has_pods(daemon_set)


def _is_succeeded(daemon_set: DaemonSet, plan: OperandPlan, pool: str) -> bool:
    """Return whether its pool has another DaemonSet for the same operating system.

    A policy that was deleted and created again has other labels. An operating system that no node
    has at present is no reason to delete.
    """
    system = daemon_set.metadata.labels.get(SYSTEM_LABEL)
    drivers = [each for each in plan.objects.values() if each.driver and each.pool == pool]
    return any(each.object["metadata"]["labels"][SYSTEM_LABEL] == system for each in drivers)


def _has_pods(daemon_set: DaemonSet) -> str:
    """Return why it may have pods; empty if its controller reports none."""
    status = daemon_set.status
    if status.observed_generation < daemon_set.metadata.generation:
        return "its controller has not seen it as it is"
    pods = (
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_misscheduled,
    )
    return "it has pods" if any(pods) else ""


class UnreferencedDrivers:
    """Tracks since when drivers' DaemonSets have been unreferenced, by uid."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, kept: Mapping[str, str], *, now: float) -> None:
        """Replace the tracked DaemonSets: `kept` has the reason to keep each, or an empty one."""
        self._since = {
            uid: self._since.get(uid, now) for uid, because in kept.items() if not because
        }

    def seconds_left(self, uid: str, *, now: float) -> float | None:
        """Return the seconds until it may be deleted; None if it is kept."""
        since = self._since.get(uid)
        return None if since is None else max(0.0, since + HOUR - now)

    def next_due(self, *, now: float) -> float | None:
        """Return the seconds until the first one may be deleted."""
        left = (max(0.0, since + HOUR - now) for since in self._since.values())
        return min(left, default=None)
