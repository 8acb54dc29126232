"""Which target a node gets, and whether its build is known and settled (docs/states.md#harm)."""

import msgspec

from libs.contracts.node import NodeRecord, WaitCode
from libs.policy.wanted import InstallMethod
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import Build, PoolView, Readiness
from libs.rollout.wait_reasons import wait

_MISSING, _UNSETTLED = Readiness.MISSING, Readiness.UNSETTLED


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """The target that a node gets, and its build."""

    target: str
    build: Build

    @property
    def label(self) -> str:
        return self.build.label


def is_joining(node: NodeView, record: NodeRecord | None) -> bool:
    """Whether the node has yet to get its first driver of ours."""
    if record is None:
        return True
    return record.evidence is None and not record.started and not node.driver_label


def target_of(node: NodeView, record: NodeRecord | None, pool: PoolView) -> str:
    """Return the wanted target; for a joining node the last-good one while it is unproven.

    Before any target was proven, a joining node takes part in the rollout like any other.
    """
    last_good = pool.constraints.last_good
    if pool.target in pool.constraints.proven or not is_joining(node, record):
        return pool.target
    if pool.method is InstallMethod.PRE_INSTALLED:
        return pool.target  # the driver came with the machine
    build = pool.build(last_good, node.variant)
    exists = build is not None and build.readiness is not _MISSING
    return last_good if exists else pool.target


def goal_of(node: NodeView, pool: PoolView, target: str, now: Instant) -> Goal | Wait:
    """Return what the node gets for this target; a wait while that is not certain."""
    if not target:
        detail = "; ".join(pool.held) or "the policy describes no driver that can be deployed"
        return wait(WaitCode.TARGET_MISSING, detail, now)
    if not node.variant:
        detail = (
            "operating system and kernel of the node are not known yet, and thus its driver build"
        )
        return wait(
            WaitCode.TARGET_UNSETTLED,
            detail,
            now,
            who="an administrator of the discovery agent on that node",
        )
    build = pool.build(target, node.variant)
    if build is None or build.readiness is _MISSING:
        detail = build.detail if build is not None else ""
        detail = detail or f"target {target} has no driver build for {node.variant}"
        return wait(WaitCode.TARGET_MISSING, detail, now)
    if build.readiness is _UNSETTLED:
        detail = (
            build.detail
            or f"the driver build of target {target} for {node.variant} is being updated"
        )
        return wait(WaitCode.TARGET_UNSETTLED, detail, now)
    return Goal(target=target, build=build)
