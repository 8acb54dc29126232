"""The status of each policy: its state in one word, and conditions that say why.

Words and reasons are those that people's scripts know from the GPU Operator; what it does not say
(which operand, which node, what to do) follows behind them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from libs.policy.findings import Finding, Severity
from libs.policy.kinds.common import Condition
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY
from libs.policy.observed import Observation
from libs.policy.pools import Pool, Pools, pool_key
from libs.policy.readiness import (
    ReadinessProblem,
    agent_problems,
    pool_problems,
    ready_node_count,
    summarize,
)
from libs.policy.render.rendered import Operand, RenderResult
from libs.policy.variants import NodeVariants
from libs.policy.verdicts import Acceptance, PolicyVerdict

_INCOMPLETE: Final = (
    "NVIDIADriver upgrade has not completed; one or more NVIDIADriver-owned Nodes are marked"
    " pending, in-progress, or failed"
)


class StatusCondition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, without its times."""

    type: str
    status: bool
    reason: str
    message: str = ""


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one object is to say of itself."""

    kind: str
    name: str
    uid: str
    generation: int
    state: str
    """Empty for a kind that has none."""
    conditions: tuple[StatusCondition, ...]


class _Verdict(msgspec.Struct, frozen=True, kw_only=True):
    state: str
    ready: bool
    reason: str
    message: str = ""
    degraded: str = ""
    """Why it is; empty: it is not."""
    upgrading: str = ""


def policy_statuses(
    pools: Pools, placement: NodeVariants, rendering: RenderResult, seen: Observation
) -> tuple[PolicyStatus, ...]:
    """Of every object that is not being deleted, by kind and name."""
    own = {pool.key: pool_problems(pool, placement, rendering, seen) for pool in pools.pools}
    of_key = {pool.key: pool for pool in pools.pools}
    made: list[PolicyStatus] = []
    for told in pools.verdicts:
        if told.acceptance is Acceptance.DELETING:
            continue
        if told.kind == ROLLOUT_STRATEGY.name:
            made.append(_made(told, "", (_accepted(told),)))
            continue
        key = pool_key(told.kind, told.name)
        pool, lacks = of_key.get(key), own.get(key, [])
        if told.acceptance is not Acceptance.ACTIVE:
            verdict = _inactive(told)
        elif told.errors:
            verdict = _failed(told.errors, pool)
        elif told.kind == NVIDIA_DRIVER.name:
            verdict = _driver(pool, lacks)
        else:
            lacks = [*agent_problems(rendering, seen), *lacks]
            behind: list[ReadinessProblem] = []
            if pool is None:
                behind = [lack for found in own.values() for lack in found]
            verdict = _cluster(told, pool, lacks, behind) or _idle(told, pools, seen)
        made.append(_made(told, verdict.state, _said(told, verdict)))
    return tuple(made)


def updated_conditions(
    before: Sequence[Condition], status: PolicyStatus, *, now: str
) -> tuple[Condition, ...]:
    """As they are to be written at `now`; one that says the same as before keeps its time."""
    since = {(one.type, one.status): one.last_transition_time for one in before}
    made: list[Condition] = []
    for said in status.conditions:
        word = "True" if said.status else "False"
        made.append(
            Condition(
                type=said.type,
                status=word,
                observed_generation=status.generation,
                last_transition_time=since.get((said.type, word)) or now,
                reason=said.reason,
                message=said.message,
            )
        )
    return tuple(made)


def _inactive(told: PolicyVerdict) -> _Verdict:
    """One that is not followed, whatever the cluster is like."""
    words = _words(told.reasons)
    if told.acceptance is Acceptance.DISABLED:
        return _Verdict(state="disabled", ready=False, reason="Reconciled", message=words)
    if told.acceptance is Acceptance.IGNORED:
        return _Verdict(state="ignored", ready=False, reason="Ignored", message=words)
    selectors = any(found.field.startswith("spec.nodeSelector") for found in told.reasons)
    reason = "ConflictingNodeSelector" if selectors else "ReconcileFailed"
    return _Verdict(state="notReady", ready=False, reason=reason, message=words)


def _failed(errors: Sequence[Finding], pool: Pool | None) -> _Verdict:
    words = _words(errors)
    harmed = words if pool and pool.nodes else ""
    return _Verdict(
        state="notReady", ready=False, reason="ReconcileFailed", message=words, degraded=harmed
    )


def _driver(pool: Pool | None, lacks: Sequence[ReadinessProblem]) -> _Verdict:
    if lacks:
        return _Verdict(
            state="notReady",
            ready=False,
            reason="DriverNotReady",
            message=f"Waiting for driver pod to be ready; {summarize(lacks)}",
            degraded=_degraded(lacks),
            upgrading=_upgrading(pool, lacks),
        )
    return _Verdict(
        state="ready",
        ready=True,
        reason="Reconciled",
        message="All resources have been successfully reconciled",
    )


def _cluster(
    told: PolicyVerdict,
    pool: Pool | None,
    lacks: Sequence[ReadinessProblem],
    behind: Sequence[ReadinessProblem],
) -> _Verdict | None:
    """What keeps the whole cluster from being ready; `behind` is what its NVIDIADrivers lack."""
    every = [*lacks, *behind]
    if not every:
        return None
    parts = [f"{told.kind} is not ready"]
    if lacks:
        lacking = {lack.operand for lack in lacks}
        names = [operand.value for operand in Operand if operand in lacking]
        parts[0] += f"; states not ready: [{' '.join(names)}]"
    parts += [_INCOMPLETE] if behind else []
    return _Verdict(
        state="notReady",
        ready=False,
        reason="OperandNotReady",
        message="; ".join([*parts, summarize(every)]),
        degraded=_degraded(every),
        upgrading=_upgrading(pool, lacks),
    )


def _idle(told: PolicyVerdict, pools: Pools, seen: Observation) -> _Verdict:
    """Nothing is to be done, and why that may be."""
    reason = "Reconciled"
    words = f"{told.kind} is ready as all resources have been successfully reconciled"
    if not (pools.owners or pools.unowned):
        reason = "NoGPUNodes"
        words = "No GPU node found, watching for new nodes to join the cluster."
        if not seen.feature_labels:
            reason, words = "NFDLabelsMissing", "No NFD labels found"
    return _Verdict(state="ready", ready=True, reason=reason, message=words)


def _degraded(lacks: Sequence[ReadinessProblem]) -> str:
    return summarize([lack for lack in lacks if lack.failed])


def _upgrading(pool: Pool | None, lacks: Sequence[ReadinessProblem]) -> str:
    """How far the nodes are, while any is on its way."""
    drivers = [lack for lack in lacks if lack.operand is Operand.DRIVER and lack.node]
    on_the_way = [lack for lack in drivers if not lack.failed]
    if pool is None or not on_the_way:
        return ""
    return (
        f"{ready_node_count(pool, drivers)} of {len(pool.nodes)} nodes are"
        f" done; {summarize(on_the_way)}"
    )


def _said(told: PolicyVerdict, verdict: _Verdict) -> tuple[StatusCondition, ...]:
    disabled, ready = verdict.state == "disabled", verdict.ready
    error = not ready and verdict.state != "ignored"
    word = verdict.reason
    return (
        StatusCondition(
            type="Ready",
            status=ready,
            reason="Error" if error else word,
            message="" if error else verdict.message,
        ),
        StatusCondition(
            type="Error",
            status=error,
            reason="Ready" if ready else word,
            message=verdict.message if error else "",
        ),
        StatusCondition(type="NotReady", status=not ready, reason=word),
        _lifecycle("Upgrading", verdict.upgrading, yes="NodesOnTheirWay", no="NoNodeOnItsWay"),
        _lifecycle("Degraded", verdict.degraded, yes="Failed", no="NothingFailed"),
        StatusCondition(
            type="Disabled", status=disabled, reason="NotAsked" if disabled else "InUse"
        ),
        _accepted(told),
    )


def _made(told: PolicyVerdict, state: str, said: tuple[StatusCondition, ...]) -> PolicyStatus:
    return PolicyStatus(
        kind=told.kind,
        name=told.name,
        uid=told.uid,
        generation=told.generation,
        state=state,
        conditions=said,
    )


def _lifecycle(kind: str, because: str, *, yes: str, no: str) -> StatusCondition:
    return StatusCondition(
        type=kind, status=bool(because), reason=yes if because else no, message=because
    )


def _accepted(told: PolicyVerdict) -> StatusCondition:
    """What is to be said about the fields; what has no effect is counted."""
    warnings = [one for one in told.findings if one.severity is Severity.WARNING]
    notes = sum(one.severity is Severity.NOTE for one in told.findings)
    counted = f"{notes} fields that are set have no effect here" if notes else ""
    message = "; ".join(filter(None, [_words([*told.errors, *warnings]), counted]))
    if told.errors:
        return StatusCondition(type="Accepted", status=False, reason="Invalid", message=message)
    reason = "Warnings" if warnings else "Accepted"
    return StatusCondition(type="Accepted", status=True, reason=reason, message=message)


def _words(findings: Sequence[Finding]) -> str:
    """All that can be read at once, and how many more there are."""
    most = 10
    more = len(findings) - most
    words = [found.for_scripts for found in findings[:most]]
    return "; ".join([*words, f"and {more} more"] if more > 0 else words)
