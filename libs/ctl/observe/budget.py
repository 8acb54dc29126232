"""How many nodes a GPU Operator may start, and why it starts none. Pure."""

import math

import msgspec

from libs.contracts.node import UpgradeState
from libs.ctl.observe.fleet import FAILED, REQUIRED, OperatorPool
from libs.ctl.observe.objects import DONE
from libs.ctl.text import some


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes may start, as the operator counts."""

    managed: int
    in_progress: int
    """Between required and done; a failed node is one of them."""
    unavailable: int
    limit: int
    slots: int
    """Below 0: more are in progress than allowed."""


def scaled(value: int | str | None, whole: int) -> int | None:
    """Return a number, or a percentage rounded up; None for a text that is neither."""
    if value is None or isinstance(value, int):
        return whole if value is None else value
    percent = value.removesuffix("%")
    if percent == value or not percent.isdecimal():
        return None
    return math.ceil(whole * int(percent) / 100)


def budget_of(pool: OperatorPool) -> Budget:
    """Return how many nodes the operator may start."""
    nodes = pool.managed
    in_progress = sum(node.state not in DONE and node.state != REQUIRED for node in nodes)
    unavailable = sum(not node.is_available for node in pool.nodes)
    unavailable += sum(node.state == UpgradeState.CORDON_REQUIRED for node in nodes)
    limit = scaled(pool.limits.max_unavailable, len(nodes)) or 0
    slots = sum(node.state == REQUIRED for node in nodes)
    if pool.limits.max_parallel:
        slots = pool.limits.max_parallel - in_progress
    slots = min(slots, limit)
    if unavailable >= limit:
        slots = 0
    elif limit < len(nodes) and unavailable + slots > limit:
        slots = limit - unavailable
    return Budget(
        managed=len(nodes),
        in_progress=in_progress,
        unavailable=unavailable,
        limit=limit,
        slots=slots,
    )


def blocked_because(pool: OperatorPool, budget: Budget) -> str:
    """Return why the operator starts no node that is available; empty if it may."""
    if not pool.limits.auto_upgrade:
        return "upgradePolicy.autoUpgrade is off"
    if pool.incomplete:
        return f"the DaemonSet {pool.incomplete[0]}, and the operator waits until it has all"
    if scaled(pool.limits.max_unavailable, budget.managed) is None:
        return (
            f"maxUnavailable {pool.limits.max_unavailable!r} is neither a number nor a percentage"
        )
    if budget.slots > 0:
        return ""
    if pool.limits.max_parallel and budget.in_progress >= pool.limits.max_parallel:
        failed = [node.name for node in pool.managed if node.state == FAILED]
        held = f", of which {some(failed)} failed" if failed else ""
        limit = pool.limits.max_parallel
        return f"maxParallelUpgrades is {limit}; in progress: {budget.in_progress}{held}"
    if budget.unavailable >= budget.limit:
        away = [node.name for node in pool.nodes if not node.is_available]
        return f"maxUnavailable allows {budget.limit}; unavailable: {some(away)}"
    return ""
