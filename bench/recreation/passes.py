"""One pass of the incumbent's controller: each group of a snapshot by its rule, in order.

A node moves at most once, because every rule looks at the groups of the same snapshot; the first
error ends the pass for all. Not played: requestor mode, several DaemonSets, and a drain that is
switched on (it is off by default). This module is independent of durations, which are
those of `IncumbentActions`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from bench.comparison import ComparedFleet
from bench.recreation.nodes import Annotation, Groups, IncumbentNode, budget
from libs.contracts.node import UpgradeState as State

VALIDATION_TIMEOUT = 600


class IncumbentActions(Protocol):
    """The actions of the rules; an exception ends the pass."""

    @property
    def now(self) -> float:
        """The time, which advances with every request of a pass."""
        ...

    def read(self, count: int) -> None:
        """Send reads whose results do not matter, such as revisions of the DaemonSet."""
        ...

    def label(self, node: IncumbentNode, state: State) -> None:
        """Write the state, and read the node until the write is visible."""
        ...

    def annotate(self, node: IncumbentNode, key: Annotation, value: Any) -> None:
        """Write or remove an annotation, and read the node until that is visible."""
        ...

    def cordon(self, node: IncumbentNode) -> None:
        """Cordon the node, unless it is cordoned."""
        ...

    def uncordon(self, node: IncumbentNode) -> None:
        """Uncordon the node, unless it is uncordoned."""
        ...

    def jobs_run(self, node: IncumbentNode) -> bool:
        """Return whether a pod exists that the node must wait for."""
        ...

    def evict(self, node: IncumbentNode) -> None:
        """Start the evictions in the background, once; the result becomes a label."""
        ...

    def delete_pod(self, node: IncumbentNode) -> None:
        """Delete the driver pod."""
        ...

    def validators(self, node: IncumbentNode) -> list[bool]:
        """Return the readiness of each validator pod."""
        ...


def apply(groups: Groups, policy: ComparedFleet, actions: IncumbentActions) -> None:
    """Run the rules of all groups, in this order."""
    _settled(groups.get(State.UNKNOWN, ()), actions)
    _settled(groups.get(State.UPGRADE_DONE, ()), actions)
    _required(groups, policy, actions)
    for node in groups.get(State.CORDON_REQUIRED, ()):
        actions.cordon(node)
        actions.label(node, State.WAIT_FOR_JOBS_REQUIRED)
    for node in groups.get(State.WAIT_FOR_JOBS_REQUIRED, ()):
        _jobs(node, policy, actions)
    for node in groups.get(State.POD_DELETION_REQUIRED, ()):
        actions.evict(node)
    for node in groups.get(State.DRAIN_REQUIRED, ()):
        actions.label(node, State.POD_RESTART_REQUIRED)
    _restart(groups.get(State.POD_RESTART_REQUIRED, ()), actions)
    for node in groups.get(State.UPGRADE_FAILED, ()):
        actions.read(1)
        if node.pod is not None and node.pod.in_sync:
            _leave(node, actions)
    for node in groups.get(State.VALIDATION_REQUIRED, ()):
        _validation(node, actions)
    for node in groups.get(State.UNCORDON_REQUIRED, ()):
        actions.uncordon(node)
        actions.label(node, State.UPGRADE_DONE)


def _settled(nodes: Sequence[IncumbentNode], actions: IncumbentActions) -> None:
    actions.read(len(nodes))
    for node in nodes:
        pod = node.pod
        stale = pod is not None and not pod.synced and not pod.orphan
        if stale or node.safe_load or node.requested:
            if node.cordoned:
                actions.annotate(node, "initially_cordoned", True)
            actions.label(node, State.UPGRADE_REQUIRED)
        elif node.state == State.UNKNOWN:
            actions.label(node, State.UPGRADE_DONE)


def _required(groups: Groups, policy: ComparedFleet, actions: IncumbentActions) -> None:
    slots = budget(
        groups, max_parallel=policy.max_parallel, max_unavailable=policy.max_unavailable
    ).slots
    for node in groups.get(State.UPGRADE_REQUIRED, ()):
        requested = node.requested
        if requested:
            actions.annotate(node, "requested", False)
        if node.skipped or (slots <= 0 and not node.cordoned):
            continue
        if not requested and _restart_only(node):
            actions.cordon(node)
            actions.label(node, State.POD_RESTART_REQUIRED)
        else:
            actions.label(node, State.CORDON_REQUIRED)
        slots -= 1


def _restart_only(node: IncumbentNode) -> bool:
    pod = node.pod
    return pod is not None and pod.same_install and not pod.orphan and not node.safe_load


def _jobs(node: IncumbentNode, policy: ComparedFleet, actions: IncumbentActions) -> None:
    if not policy.wait_for_jobs:
        actions.label(node, State.POD_DELETION_REQUIRED)
    elif not actions.jobs_run(node):
        actions.annotate(node, "jobs_since", None)
        actions.label(node, State.POD_DELETION_REQUIRED)
    elif policy.job_timeout:
        now = int(actions.now)
        if node.jobs_since is None:
            actions.annotate(node, "jobs_since", now)
        elif now > node.jobs_since + policy.job_timeout:
            actions.label(node, State.POD_DELETION_REQUIRED)
            actions.annotate(node, "jobs_since", None)


def _restart(nodes: Sequence[IncumbentNode], actions: IncumbentActions) -> None:
    stale: list[IncumbentNode] = []
    for node in nodes:
        actions.read(1)
        pod = node.pod
        if pod is None or not pod.synced or pod.orphan:
            if pod is not None and not pod.terminating:
                stale.append(node)
            continue
        if node.safe_load:
            actions.annotate(node, "safe_load", False)
        actions.read(1)
        if pod.in_sync:
            actions.label(node, State.VALIDATION_REQUIRED)
        elif pod.failing:
            actions.label(node, State.UPGRADE_FAILED)
    for node in stale:
        actions.delete_pod(node)


def _validation(node: IncumbentNode, actions: IncumbentActions) -> None:
    if node.safe_load:
        actions.annotate(node, "safe_load", False)
    ready = actions.validators(node)
    for is_ready in ready:
        if not is_ready:
            _validation_timer(node, actions)
            return
        actions.annotate(node, "validating_since", None)
    if ready:
        _leave(node, actions)


def _validation_timer(node: IncumbentNode, actions: IncumbentActions) -> None:
    now = int(actions.now)
    if node.validating_since is None:
        actions.annotate(node, "validating_since", now)
    elif now > node.validating_since + VALIDATION_TIMEOUT:
        actions.label(node, State.UPGRADE_FAILED)
        actions.annotate(node, "validating_since", None)


def _leave(node: IncumbentNode, actions: IncumbentActions) -> None:
    """Leave the upgrade; keep the cordon of a person."""
    if node.initially_cordoned:
        actions.label(node, State.UPGRADE_DONE)
        actions.annotate(node, "initially_cordoned", False)
    else:
        actions.label(node, State.UNCORDON_REQUIRED)
