"""Candidates without obstacles, pools in a given phase, and what is decided about them."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from libs.contracts.commands import PreflightCheck
from libs.contracts.reports import Finding, Preflight
from libs.contracts.rollout import InFlight, RolloutPhase, RolloutSpec, RolloutStatus, TargetRecord
from libs.contracts.waits import WaitCode
from libs.rollout.decide import decide
from libs.rollout.decision import AskPreflight, Decision
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import PreflightQuery
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import (
    EPOCH,
    NEW,
    NOW,
    fleet,
    instant,
    label_of,
    pool,
    required,
    token_of,
)

FINDING = Finding(code="disk", message="the disk is full", remedy="make room")


def checked(
    node: NodeView,
    *findings: Finding,
    asked: float = NOW - 2,
    answered: float | None = NOW - 1,
    target: str = NEW,
) -> NodeView:
    """Return the node with an answered preflight query."""
    label = label_of(target)
    answer = Preflight(check="c", label=label, findings=findings)
    reply = None if answered is None else answer
    return replace(
        node,
        preflight=PreflightQuery(label=label, asked_at=asked, answered_at=answered, answer=reply),
    )


def candidate(name: str, **changes: Any) -> NodeView:
    """Return a node that wants the new target and has no obstacle."""
    return checked(required(name, **changes))


def candidates(count: int, **changes: Any) -> list[NodeView]:
    return [candidate(f"node-{n:02}", **changes) for n in range(count)]


def of_target(**changes: Any) -> TargetRecord:
    """Return the record of the new target: proven, unless changed."""
    return replace(TargetRecord(threshold=1, proven=True, proven_at=NOW - 999), **changes)


def open_pool(
    *,
    upgrade: Mapping[str, Any] | None = None,
    record: TargetRecord | None = None,
    base: int = 0,
    in_flight: Mapping[str, InFlight] | None = None,
    spec: RolloutSpec | None = None,
    phase: RolloutPhase = RolloutPhase.PROVEN,
    **changes: Any,
) -> PoolView:
    """Return a pool in the middle of a rollout to a target with this record."""
    status: dict[str, Any] = {"base": base, "phase": phase, "in_flight": dict(in_flight or {})}
    if record is not None:
        status["targets"] = {NEW: record}
    result = pool(upgrade=upgrade, status=status, **changes)
    if spec is None or result.rollout is None:
        return result
    return replace(result, rollout=replace(result.rollout, spec=spec))


def entry(node: NodeView, **changes: Any) -> InFlight:
    """Return the entry of a node granted a moment ago."""
    result = InFlight(node=node.name, token=token_of(node) + 1, target=NEW, since=NOW - 5)
    return replace(result, **changes)


def decided(pool: PoolView, *nodes: NodeView, now: Instant | None = None) -> Decision:
    return decide(fleet(pool, *nodes), now or instant())


def granted_to(pool: PoolView, *nodes: NodeView, now: Instant | None = None) -> list[str]:
    return sorted(
        name for write in decided(pool, *nodes, now=now).rollouts for name in write.granted
    )


def written(decision: Decision) -> RolloutStatus:
    """Return the status in the only Rollout write."""
    (write,) = decision.rollouts
    return write.status


def code_of(decision: Decision, name: str) -> WaitCode:
    return decision.waits[name].code


def asked_of(decision: Decision) -> dict[str, PreflightCheck]:
    """Return the checks that are sent, by node."""
    asks = asks_of(decision).items()
    return {name: ask.check for name, ask in asks if not ask.awaits_pods}


def asks_of(decision: Decision) -> dict[str, AskPreflight]:
    return {
        name: action
        for name, step in decision.steps.items()
        for action in step.actions
        if isinstance(action, AskPreflight)
    }


__all__ = [
    "EPOCH",
    "FINDING",
    "NEW",
    "NOW",
    "asked_of",
    "asks_of",
    "candidate",
    "candidates",
    "checked",
    "code_of",
    "decided",
    "entry",
    "granted_to",
    "instant",
    "of_target",
    "open_pool",
    "written",
]
