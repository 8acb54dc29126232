"""The status of each policy: its state and conditions.

States, reasons and messages begin as in the GPU Operator, because scripts match them. Details that
the GPU Operator lacks (operand, node, remedy) follow.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from libs.policy.findings import Acceptance, Finding, PolicyVerdict, Severity
from libs.policy.kinds.common import Condition
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY
from libs.policy.pools import Pool, Pools, pool_key
from libs.policy.readiness import (
    Observation,
    ReadinessProblem,
    agent_problems,
    pool_problems,
    ready_node_count,
    summarize,
)
from libs.policy.render.rendered import Operand, RenderResult
from libs.policy.variants import NodeVariants

_INCOMPLETE: Final = (
    "NVIDIADriver upgrade has not completed; one or more NVIDIADriver-owned Nodes are marked"
    " pending, in-progress, or failed"
)


class StatusCondition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition without its transition time."""

    type: str
    status: bool
    reason: str
    message: str = ""


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted status of one policy object."""

    kind: str
    name: str
    uid: str
    generation: int
    state: str
    """Empty for a kind without `status.state`."""
    conditions: tuple[StatusCondition, ...]


class _Summary(msgspec.Struct, frozen=True, kw_only=True):
    state: str
    ready: bool
    reason: str
    message: str = ""
    degraded: str = ""
    """The message of the condition Degraded; empty if it is false."""
    upgrading: str = ""
    """The message of the condition Upgrading; empty if it is false."""


def policy_statuses(
    pools: Pools, variants: NodeVariants, rendering: RenderResult, observed: Observation
) -> tuple[PolicyStatus, ...]:
    """Return the status of every object that is not being deleted, by kind and name."""
    problems_by_pool = {
        pool.key: pool_problems(pool, variants, rendering, observed) for pool in pools.pools
    }
    pools_by_key = {pool.key: pool for pool in pools.pools}
    statuses: list[PolicyStatus] = []
    for verdict in pools.verdicts:
        if verdict.acceptance is Acceptance.DELETING:
            continue
        if verdict.kind == ROLLOUT_STRATEGY.name:
            statuses.append(_policy_status(verdict, "", (_accepted(verdict),)))
            continue
        key = pool_key(verdict.kind, verdict.name)
        pool, problems = pools_by_key.get(key), problems_by_pool.get(key, [])
        if verdict.acceptance is not Acceptance.ACTIVE:
            summary = _inactive_summary(verdict)
        elif verdict.errors:
            summary = _invalid_summary(verdict.errors, pool)
        elif verdict.kind == NVIDIA_DRIVER.name:
            summary = _driver_summary(pool, problems)
        else:
            problems = [*agent_problems(rendering, observed), *problems]
            driver_problems: list[ReadinessProblem] = []
            if pool is None:
                driver_problems = [
                    problem for found in problems_by_pool.values() for problem in found
                ]
            summary = _cluster_not_ready_summary(
                verdict, pool, problems, driver_problems
            ) or _cluster_ready_summary(verdict, pools, observed)
        statuses.append(_policy_status(verdict, summary.state, _conditions(verdict, summary)))
    return tuple(statuses)


def updated_conditions(
    before: Sequence[Condition], status: PolicyStatus, *, now: str
) -> tuple[Condition, ...]:
    """Return the conditions to write at `now`.

    A condition whose status did not change keeps its transition time.
    """
    since = {
        (condition.type, condition.status): condition.last_transition_time for condition in before
    }
    conditions: list[Condition] = []
    for condition in status.conditions:
        status_text = "True" if condition.status else "False"
        conditions.append(
            Condition(
                type=condition.type,
                status=status_text,
                observed_generation=status.generation,
                last_transition_time=since.get((condition.type, status_text)) or now,
                reason=condition.reason,
                message=condition.message,
            )
        )
    return tuple(conditions)


def _inactive_summary(verdict: PolicyVerdict) -> _Summary:
    """Return the state of a policy that does not take effect."""
    message = _list_findings(verdict.reasons)
    if verdict.acceptance is Acceptance.DISABLED:
        return _Summary(state="disabled", ready=False, reason="Reconciled", message=message)
    if verdict.acceptance is Acceptance.IGNORED:
        return _Summary(state="ignored", ready=False, reason="Ignored", message=message)
    selectors = any(found.field.startswith("spec.nodeSelector") for found in verdict.reasons)
    reason = "ConflictingNodeSelector" if selectors else "ReconcileFailed"
    return _Summary(state="notReady", ready=False, reason=reason, message=message)


def _invalid_summary(errors: Sequence[Finding], pool: Pool | None) -> _Summary:
    message = _list_findings(errors)
    harmed = message if pool and pool.nodes else ""
    return _Summary(
        state="notReady", ready=False, reason="ReconcileFailed", message=message, degraded=harmed
    )


def _driver_summary(pool: Pool | None, problems: Sequence[ReadinessProblem]) -> _Summary:
    if problems:
        return _Summary(
            state="notReady",
            ready=False,
            reason="DriverNotReady",
            message=f"Waiting for driver pod to be ready; {summarize(problems)}",
            degraded=_degraded(problems),
            upgrading=_upgrading(pool, problems),
        )
    return _Summary(
        state="ready",
        ready=True,
        reason="Reconciled",
        message="All resources have been successfully reconciled",
    )


def _cluster_not_ready_summary(
    verdict: PolicyVerdict,
    pool: Pool | None,
    problems: Sequence[ReadinessProblem],
    driver_problems: Sequence[ReadinessProblem],
) -> _Summary | None:
    """Return the state of a cluster-wide policy with problems, or None if there are none.

    `driver_problems` are those of the cluster's NVIDIADrivers.
    """
    all_problems = [*problems, *driver_problems]
    if not all_problems:
        return None
    parts = [f"{verdict.kind} is not ready"]
    if problems:
        lacking = {problem.operand for problem in problems}
        names = [operand.value for operand in Operand if operand in lacking]
        parts[0] += f"; states not ready: [{' '.join(names)}]"
    parts += [_INCOMPLETE] if driver_problems else []
    return _Summary(
        state="notReady",
        ready=False,
        reason="OperandNotReady",
        message="; ".join([*parts, summarize(all_problems)]),
        degraded=_degraded(all_problems),
        upgrading=_upgrading(pool, problems),
    )


def _cluster_ready_summary(verdict: PolicyVerdict, pools: Pools, observed: Observation) -> _Summary:
    """Return the state of a cluster-wide policy without problems."""
    reason = "Reconciled"
    message = f"{verdict.kind} is ready as all resources have been successfully reconciled"
    if not (pools.owners or pools.unowned):
        reason = "NoGPUNodes"
        message = "No GPU node found, watching for new nodes to join the cluster."
        if not observed.feature_labels:
            reason, message = "NFDLabelsMissing", "No NFD labels found"
    return _Summary(state="ready", ready=True, reason=reason, message=message)


def _degraded(problems: Sequence[ReadinessProblem]) -> str:
    return summarize([problem for problem in problems if problem.failed])


def _upgrading(pool: Pool | None, problems: Sequence[ReadinessProblem]) -> str:
    """Describe the progress while any node is being upgraded."""
    drivers = [
        problem for problem in problems if problem.operand is Operand.DRIVER and problem.node
    ]
    on_the_way = [problem for problem in drivers if not problem.failed]
    if pool is None or not on_the_way:
        return ""
    return (
        f"{ready_node_count(pool, drivers)} of {len(pool.nodes)} nodes are"
        f" done; {summarize(on_the_way)}"
    )


def _conditions(verdict: PolicyVerdict, summary: _Summary) -> tuple[StatusCondition, ...]:
    disabled, ready = summary.state == "disabled", summary.ready
    error = not ready and summary.state != "ignored"
    reason = summary.reason
    return (
        StatusCondition(
            type="Ready",
            status=ready,
            reason="Error" if error else reason,
            message="" if error else summary.message,
        ),
        StatusCondition(
            type="Error",
            status=error,
            reason="Ready" if ready else reason,
            message=summary.message if error else "",
        ),
        StatusCondition(type="NotReady", status=not ready, reason=reason),
        _lifecycle("Upgrading", summary.upgrading, yes="NodesOnTheirWay", no="NoNodeOnItsWay"),
        _lifecycle("Degraded", summary.degraded, yes="Failed", no="NothingFailed"),
        StatusCondition(
            type="Disabled", status=disabled, reason="NotAsked" if disabled else "InUse"
        ),
        _accepted(verdict),
    )


def _policy_status(
    verdict: PolicyVerdict, state: str, conditions: tuple[StatusCondition, ...]
) -> PolicyStatus:
    return PolicyStatus(
        kind=verdict.kind,
        name=verdict.name,
        uid=verdict.uid,
        generation=verdict.generation,
        state=state,
        conditions=conditions,
    )


def _lifecycle(kind: str, because: str, *, yes: str, no: str) -> StatusCondition:
    return StatusCondition(
        type=kind, status=bool(because), reason=yes if because else no, message=because
    )


def _accepted(verdict: PolicyVerdict) -> StatusCondition:
    """Return the condition Accepted: errors and warnings are listed, notes are counted."""
    warnings = [finding for finding in verdict.findings if finding.severity is Severity.WARNING]
    notes = sum(finding.severity is Severity.NOTE for finding in verdict.findings)
    counted = f"{notes} fields that are set have no effect here" if notes else ""
    message = "; ".join(filter(None, [_list_findings([*verdict.errors, *warnings]), counted]))
    if verdict.errors:
        return StatusCondition(type="Accepted", status=False, reason="Invalid", message=message)
    reason = "Warnings" if warnings else "Accepted"
    return StatusCondition(type="Accepted", status=True, reason=reason, message=message)


def _list_findings(findings: Sequence[Finding]) -> str:
    """List the first findings and count the rest."""
    most = 10
    more = len(findings) - most
    words = [found.for_scripts for found in findings[:most]]
    return "; ".join([*words, f"and {more} more"] if more > 0 else words)
