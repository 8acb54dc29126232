"""One pass of the incumbent's controller: each group of a snapshot by its rule, in order.

A node moves at most once, because every rule looks at the groups of the same snapshot; the first
error ends the pass for all. Not played: requestor mode, several DaemonSets, and a drain that is
switched on (it is off by default). Must not know how long anything takes: `Hands` do.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from bench.comparing import FleetSpec
from bench.incumbent_nodes import Annotation, Groups, Node, budget
from libs.contracts.node import UpgradeState as State

VALIDATION_TIMEOUT = 600


class Hands(Protocol):
    """What a rule does to the cluster; each may raise, and that ends the pass."""

    @property
    def now(self) -> float:
        """It goes on within a pass, with every request."""
        ...

    def look(self, count: int) -> None:
        """So many reads of which only the time matters: revisions of the DaemonSet."""
        ...

    def label(self, node: Node, state: State) -> None:
        """Write the state, and read the node until that is seen."""
        ...

    def annotate(self, node: Node, key: Annotation, value: Any) -> None:
        """Likewise for an annotation, also for one that is taken away and was not there."""
        ...

    def cordon(self, node: Node) -> None:
        """Unless it is."""
        ...

    def uncordon(self, node: Node) -> None:
        """Unless it is."""
        ...

    def jobs_run(self, node: Node) -> bool:
        """Whether a pod that is to be waited for is there."""
        ...

    def evict(self, node: Node) -> None:
        """Begin to, in the background, unless that is under way; what comes of it is labelled."""
        ...

    def delete_pod(self, node: Node) -> None:
        """The driver pod."""
        ...

    def validators(self, node: Node) -> list[bool]:
        """Whether each of its validator pods is ready."""
        ...


def apply(groups: Groups, policy: FleetSpec, hands: Hands) -> None:
    """All groups, in this order."""
    _settled(groups.get(State.UNKNOWN, ()), hands)
    _settled(groups.get(State.UPGRADE_DONE, ()), hands)
    _required(groups, policy, hands)
    for node in groups.get(State.CORDON_REQUIRED, ()):
        hands.cordon(node)
        hands.label(node, State.WAIT_FOR_JOBS_REQUIRED)
    for node in groups.get(State.WAIT_FOR_JOBS_REQUIRED, ()):
        _jobs(node, policy, hands)
    for node in groups.get(State.POD_DELETION_REQUIRED, ()):
        hands.evict(node)
    for node in groups.get(State.DRAIN_REQUIRED, ()):
        hands.label(node, State.POD_RESTART_REQUIRED)
    _restart(groups.get(State.POD_RESTART_REQUIRED, ()), hands)
    for node in groups.get(State.UPGRADE_FAILED, ()):
        hands.look(1)
        if node.pod is not None and node.pod.in_sync:
            _leave(node, hands)
    for node in groups.get(State.VALIDATION_REQUIRED, ()):
        _validation(node, hands)
    for node in groups.get(State.UNCORDON_REQUIRED, ()):
        hands.uncordon(node)
        hands.label(node, State.UPGRADE_DONE)


def _settled(nodes: Sequence[Node], hands: Hands) -> None:
    hands.look(len(nodes))
    for node in nodes:
        pod = node.pod
        stale = pod is not None and not pod.synced and not pod.orphan
        if stale or node.safe_load or node.requested:
            if node.cordoned:
                hands.annotate(node, "initially_cordoned", True)
            hands.label(node, State.UPGRADE_REQUIRED)
        elif node.state == State.UNKNOWN:
            hands.label(node, State.UPGRADE_DONE)


def _required(groups: Groups, policy: FleetSpec, hands: Hands) -> None:
    slots = budget(
        groups, max_parallel=policy.max_parallel, max_unavailable=policy.max_unavailable
    ).slots
    for node in groups.get(State.UPGRADE_REQUIRED, ()):
        requested = node.requested
        if requested:
            hands.annotate(node, "requested", False)
        if node.skipped or (slots <= 0 and not node.cordoned):
            continue
        if not requested and _restart_only(node):
            hands.cordon(node)
            hands.label(node, State.POD_RESTART_REQUIRED)
        else:
            hands.label(node, State.CORDON_REQUIRED)
        slots -= 1


def _restart_only(node: Node) -> bool:
    pod = node.pod
    return pod is not None and pod.same_install and not pod.orphan and not node.safe_load


def _jobs(node: Node, policy: FleetSpec, hands: Hands) -> None:
    if not policy.wait_for_jobs:
        hands.label(node, State.POD_DELETION_REQUIRED)
    elif not hands.jobs_run(node):
        hands.annotate(node, "jobs_since", None)
        hands.label(node, State.POD_DELETION_REQUIRED)
    elif policy.job_timeout:
        now = int(hands.now)
        if node.jobs_since is None:
            hands.annotate(node, "jobs_since", now)
        elif now > node.jobs_since + policy.job_timeout:
            hands.label(node, State.POD_DELETION_REQUIRED)
            hands.annotate(node, "jobs_since", None)


def _restart(nodes: Sequence[Node], hands: Hands) -> None:
    stale: list[Node] = []
    for node in nodes:
        hands.look(1)
        pod = node.pod
        if pod is None or not pod.synced or pod.orphan:
            if pod is not None and not pod.terminating:
                stale.append(node)
            continue
        if node.safe_load:
            hands.annotate(node, "safe_load", False)
        hands.look(1)
        if pod.in_sync:
            hands.label(node, State.VALIDATION_REQUIRED)
        elif pod.failing:
            hands.label(node, State.UPGRADE_FAILED)
    for node in stale:
        hands.delete_pod(node)


def _validation(node: Node, hands: Hands) -> None:
    if node.safe_load:
        hands.annotate(node, "safe_load", False)
    ready = hands.validators(node)
    for one in ready:
        if not one:
            _validation_timer(node, hands)
            return
        hands.annotate(node, "validating_since", None)
    if ready:
        _leave(node, hands)


def _validation_timer(node: Node, hands: Hands) -> None:
    now = int(hands.now)
    if node.validating_since is None:
        hands.annotate(node, "validating_since", now)
    elif now > node.validating_since + VALIDATION_TIMEOUT:
        hands.label(node, State.UPGRADE_FAILED)
        hands.annotate(node, "validating_since", None)


def _leave(node: Node, hands: Hands) -> None:
    """Who was cordoned by a person stays so."""
    if node.initially_cordoned:
        hands.label(node, State.UPGRADE_DONE)
        hands.annotate(node, "initially_cordoned", False)
    else:
        hands.label(node, State.UNCORDON_REQUIRED)
