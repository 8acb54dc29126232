"""Why a node of a GPU Operator's fleet is where it is: what it waits for, and who can end that.

Pure; the rules are those of the operator's upgrade library.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from libs.contracts.node import UpgradeState
from libs.ctl.observe.budget import Budget, blocked_because
from libs.ctl.observe.fleet import OperatorNode, OperatorPool
from libs.ctl.observe.objects import DONE
from libs.ctl.observe.pods import Evicted
from libs.ctl.observe.traps import MOST_RESTARTS
from libs.ctl.text import duration, some

VALIDATION_SECONDS: Final = 600
NEXT_PASS: Final = "the operator, which looks again within two minutes"


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a node waits for."""

    because: str
    who: str = ""
    """Who can end it; empty: there is nothing to end."""
    until: str = ""
    """What ends it otherwise."""


def explain(
    node: OperatorNode,
    pool: OperatorPool | None,
    budget: Budget | None,
    *,
    evicted: Sequence[Evicted] = (),
    jobs: Sequence[str] = (),
    now: float,
) -> Explanation:
    """Return why the node is in its state."""
    if pool is None or budget is None:
        return Explanation(
            because="it has no driver pod, so the operator's upgrade does not see it",
            who="the administrator: is the node's label nvidia.com/gpu.deploy.driver true?",
        )
    match node.state:
        case UpgradeState.UNKNOWN | UpgradeState.UPGRADE_DONE:
            return _at_rest(node, pool)
        case UpgradeState.UPGRADE_REQUIRED:
            return _required(node, pool, budget)
        case UpgradeState.WAIT_FOR_JOBS_REQUIRED:
            return _jobs(node, pool, jobs, now)
        case UpgradeState.POD_DELETION_REQUIRED | UpgradeState.DRAIN_REQUIRED:
            return _eviction(pool, evicted)
        case UpgradeState.POD_RESTART_REQUIRED:
            return _restart(node)
        case UpgradeState.VALIDATION_REQUIRED:
            return _validation(node, now)
        case UpgradeState.UPGRADE_FAILED:
            return _failed(node)
        case UpgradeState.CORDON_REQUIRED | UpgradeState.UNCORDON_REQUIRED:
            return Explanation(because="its next step is the operator's own", who=NEXT_PASS)
        case UpgradeState.NODE_MAINTENANCE_REQUIRED | UpgradeState.POST_MAINTENANCE_REQUIRED:
            return Explanation(
                because="another operator, for maintenance, has it",
                who="the administrator of the maintenance operator: see its NodeMaintenance",
            )
        case _:
            return Explanation(
                because=f"the operator knows no state {node.state!r} and leaves the node alone",
                who="an administrator, by removing the label nvidia.com/gpu-driver-upgrade-state",
            )


def _at_rest(node: OperatorNode, pool: OperatorPool) -> Explanation:
    """Return why a node at rest stays where it is, or is about to be marked."""
    if node.skipped:
        return Explanation(
            because="the skip label keeps it out of upgrades",
            who="an administrator, by removing nvidia.com/gpu-driver-upgrade.skip",
        )
    if node.needs_upgrade and pool.limits.auto_upgrade:
        return Explanation(because="its driver pod is not of the wanted revision", who=NEXT_PASS)
    if node.needs_upgrade:
        return Explanation(
            because="its driver pod is not of the wanted revision, and autoUpgrade is off",
            who="an administrator, by autoUpgrade, or by deleting the driver pod",
        )
    ready = node.pod is not None and node.pod.ready
    more = "" if ready else "; its driver pod is not ready, which the operator does not look at"
    return Explanation(because=f"its driver pod is of the wanted revision{more}")


def _required(node: OperatorNode, pool: OperatorPool, budget: Budget) -> Explanation:
    """Return why a node that is marked has not started; a cordoned one starts beyond all limits."""
    if node.skipped:
        return Explanation(
            because="the skip label keeps it out of upgrades",
            who="an administrator, by removing nvidia.com/gpu-driver-upgrade.skip",
        )
    if reason := blocked_because(pool, budget):
        if node.cordoned and pool.limits.auto_upgrade and not pool.incomplete:
            return Explanation(
                because="it is cordoned, so it starts although no place is free", who=NEXT_PASS
            )
        return Explanation(
            because=reason, who="an administrator, by removing that, or by raising the limit"
        )
    return Explanation(
        because=f"{budget.slots} of the nodes that wait may start; the operator has no order"
        " among them",
        who=NEXT_PASS,
    )


def _jobs(node: OperatorNode, pool: OperatorPool, jobs: Sequence[str], now: float) -> Explanation:
    """Return which jobs a node waits for, and until when: after it their pods are evicted."""
    if not jobs:
        return Explanation(because="no job is left", who=NEXT_PASS)
    until, limit = "without a limit", pool.limits.job_timeout
    if limit and node.jobs_since is not None:
        left = node.jobs_since + limit - now
        until = f"for another {duration(left)}, then its GPU pods are evicted all the same"
    return Explanation(
        because=f"jobs run that the policy waits for: {some(jobs)}",
        who="the owners of the jobs",
        until=until,
    )


def _eviction(pool: OperatorPool, evicted: Sequence[Evicted]) -> Explanation:
    """Return what keeps pods on a node, what the operator does after its limit, and who can end it.

    What can never be evicted comes first: no waiting ends that.
    """
    limits = pool.limits
    after = "the node is drained" if limits.drains else "the node becomes upgrade-failed"
    if limits.eviction is None:
        return Explanation(
            because="the policy has no section podDeletion, so each pass ends with an error",
            who="the author of the policy, by upgradePolicy.podDeletion: {}",
        )
    if stuck := [pod for pod in evicted if pod.obstacle]:
        return Explanation(
            because=f"{stuck[0].name} is not evicted: {stuck[0].obstacle}",
            who="the owner of the pod, or the author of the policy",
            until=f"the operator has seen it, then {after}",
        )
    limit = limits.eviction.timeout_seconds
    until = f"{duration(limit)} after it began, then {after}" if limit else "without a limit"
    if refused := [pod for pod in evicted if pod.budget]:
        return Explanation(
            because=f"the disruption budget {refused[0].budget} refuses the eviction of"
            f" {some(pod.name for pod in refused)}",
            who="the owner of the disruption budget",
            until=until,
        )
    if evicted:
        return Explanation(
            because=f"evicted pods have not ended yet: {some(pod.name for pod in evicted)}",
            who="the owners of the pods",
            until=until,
        )
    return Explanation(because="no pod with a GPU is left", who=NEXT_PASS)


def _restart(node: OperatorNode) -> Explanation:
    """Return what the new driver pod of a node lacks."""
    pod = node.pod
    if pod is None or not pod.synced or pod.orphan:
        return Explanation(
            because="the operator deletes the old driver pod, and its DaemonSet makes a new one",
            who=NEXT_PASS,
        )
    if pod.ready:
        return Explanation(because="the new driver is ready", who=NEXT_PASS)
    reason = f" ({pod.reason})" if pod.reason else ""
    return Explanation(
        because=f"the new driver pod {pod.name} is not ready{reason}; restarts: {pod.restarts}",
        who="the administrator of the machine or of the driver image: see the pod's log",
        until=f"it is ready, or a container has restarted more than {MOST_RESTARTS} times, about 35"
        " minutes; a pod that hangs waits without a limit",
    )


def _validation(node: OperatorNode, now: float) -> Explanation:
    """Return what the validation of a node waits for. Without a validator pod it has no end."""
    who = "an administrator: see the init containers of the pod nvidia-operator-validator there"
    if not node.validators:
        return Explanation(
            because="there is no validator pod on it", who=who, until="without a limit"
        )
    if all(node.validators):
        return Explanation(because="its validator pod is ready", who=NEXT_PASS)
    until = f"{duration(VALIDATION_SECONDS)} after the operator first saw it, then upgrade-failed"
    if node.validating_since is not None:
        left = node.validating_since + VALIDATION_SECONDS - now
        until = f"for another {duration(left)}, then upgrade-failed"
    return Explanation(because="its validator pod is not ready", who=who, until=until)


def _failed(node: OperatorNode) -> Explanation:
    """Return how a failed node leaves its state: the operator never tries again by itself."""
    if node.pod is not None and node.pod.in_sync:
        return Explanation(
            because="its driver pod is ready now: the operator uncordons it without a validation",
            who=NEXT_PASS,
        )
    return Explanation(
        because="an earlier step failed, and the operator never tries again by itself",
        who="an administrator: repair the cause, then delete the driver pod, or set the label"
        " nvidia.com/gpu-driver-upgrade-state to upgrade-required",
        until="its driver pod is of the wanted revision and ready",
    )


def is_settled(node: OperatorNode) -> bool:
    """Whether there is nothing to tell about a node in the overview."""
    return node.state in DONE and not node.needs_upgrade
