"""Which driver's DaemonSet may go: one of an old target that nothing has named for an hour.

A DaemonSet is named by the driver label of a node, by a node's record, by the Rollout of its pool,
or by a command. It stays, too, while its pool is not there or wants what cannot be said: a policy
that was deleted leaves its drivers orphaned. The hour begins anew whenever something names it, and
whenever somebody else begins to look. Pure.
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
"""Of a driver's DaemonSet: for nodes of which system it is."""


def is_driver_daemon_set(there: DaemonSet) -> bool:
    """Whether it is one that we made for a driver."""
    label = there.metadata.labels.get(DRIVER_LABEL, "")
    return bool(label) and there.metadata.name == daemon_set_name(label) and is_ours(there)


def kept_because(
    there: DaemonSet,
    plan: OperandPlan,
    *,
    nodes: Collection[Node],
    rollouts: Iterable[Rollout],
    commanded: Mapping[str, Collection[str]] | None,
) -> str:
    """Who names it, or why else it stays, in words; empty: nobody, and nothing keeps it.

    `commanded` has, by driver label, the uids of nodes whose commands name it; None: not known
    now. A command for a node that is gone is nobody's: its slots are purged, and no stream tells.
    """
    label = there.metadata.labels[DRIVER_LABEL]
    pool = there.metadata.annotations.get(POOL_ANNOTATION, "")
    target = there.metadata.annotations.get(TARGET_ANNOTATION, "")
    if ObjectKey(DAEMON_SETS.kind, there.metadata.name) in plan.objects:
        return "its pool wants it"
    if not (pool and target):
        return "it does not say for which pool and target it is"
    if pool not in plan.targets:
        return f"its pool {pool} is not there, or wants what cannot be done"
    if plan.targets[pool] == target and not _is_succeeded(there, plan, pool):
        return f"its target is what pool {pool} wants"
    if commanded is None:
        return "it is not known which drivers are named by commands"
    if any(node.metadata.uid in commanded.get(label, ()) for node in nodes):
        return "a command names it"
    for rollout in rollouts:
        if label in rollout.text or (rollout.metadata.name == pool and target in rollout.text):
            return f"Rollout {rollout.metadata.name} names it"
    # A record that we cannot read, of whatever version, names what stands in it.
    for node in nodes:
        labelled = node.metadata.labels.get(DRIVER_LABEL) == label
        if labelled or label in node.record or target in node.record:
            return f"node {node.metadata.name} names it"
    return _has_pods(there)


def _is_succeeded(there: DaemonSet, plan: OperandPlan, pool: str) -> bool:
    """Whether its pool has another for the same system: a policy of the same name, made anew, has
    labels of its own. A system that merely no node seems to have is no reason.
    """
    system = there.metadata.labels.get(SYSTEM_LABEL)
    own = [made for made in plan.objects.values() if made.driver and made.pool == pool]
    return any(made.object["metadata"]["labels"][SYSTEM_LABEL] == system for made in own)


def _has_pods(there: DaemonSet) -> str:
    """Why it may have some, as its controller sees it."""
    status = there.status
    if status.observed_generation < there.metadata.generation:
        return "its controller has not seen it as it is"
    pods = (
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_misscheduled,
    )
    return "it has pods" if any(pods) else ""


class UnreferencedDrivers:
    """Since when which driver's DaemonSet has been named by nobody, as far as we looked."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, kept: Mapping[str, str], *, now: float) -> None:
        """Why each stays, by uid, as of now; those that are not in it are gone."""
        self._since = {
            uid: self._since.get(uid, now) for uid, because in kept.items() if not because
        }

    def seconds_left(self, uid: str, *, now: float) -> float | None:
        """Seconds until it may go; None: something names it."""
        since = self._since.get(uid)
        return None if since is None else max(0.0, since + HOUR - now)

    def next_due(self, *, now: float) -> float | None:
        """Seconds until the first of them may go."""
        left = (max(0.0, since + HOUR - now) for since in self._since.values())
        return min(left, default=None)
