"""The condition ClaimsRemain: pods have GPUs by claims, which the policy gives no more. Pure.

Until they end their plugin stays on the nodes, because no kubelet can finish the end of a pod with
claims without it.
"""

from collections.abc import Collection
from typing import Final

from libs.policy.pool import ClusterWidePolicy
from libs.policy.render.agents import DRA_DAEMON_SET
from libs.policy.status import StatusCondition
from libs.policy.wanted import operands_of
from services.driver.cluster.diagnosed import some_nodes

CLAIMS_REMAIN: Final = "ClaimsRemain"


def claims_end(
    cluster: ClusterWidePolicy | None,
    *,
    daemon_sets: Collection[str],
    claimed_nodes: Collection[str] | None,
) -> bool:
    """Report whether the plugin stays until pods have given back what they have by claims.

    `claimed_nodes` are those with GPUs by claims; None: that is not known. They are followed only
    where Sluice served claims before, so a plugin that was deleted meanwhile comes back.
    """
    if cluster is None or operands_of(cluster).dra:
        return False
    return DRA_DAEMON_SET in daemon_sets if claimed_nodes is None else bool(claimed_nodes)


def claims_remain_condition(
    claimed_nodes: Collection[str] | None, *, offers: bool
) -> StatusCondition:
    """Name the nodes whose claims have to end.

    `offers`: the policy has the device plugin, which gives the other GPUs to pods.
    """
    if claimed_nodes is None:
        message = "spec.dra.enabled is false; whether pods have GPUs by claims is not known yet"
    else:
        nodes = some_nodes(sorted(claimed_nodes))
        message = (
            f"spec.dra.enabled is false, and pods have GPUs by claims on {nodes}: they keep them"
            " until they end, and the plugin for claims stays as long"
        )
        if offers:
            message += "; the device plugin offers the other GPUs"
    return StatusCondition(type=CLAIMS_REMAIN, status=True, reason="SwitchedOff", message=message)
