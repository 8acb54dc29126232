"""The status of each policy: its state and conditions.

States, reasons and messages begin as in the GPU Operator, because scripts match them. Details that
the GPU Operator lacks (operand, node, remedy) follow.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Self

import msgspec

from libs.contracts.words import first_sentences, plural
from libs.policy.findings import Acceptance, Finding, PolicyVerdict, Severity
from libs.policy.kinds.common import Condition
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER
from libs.policy.kinds.strategy import ROLLOUT_STRATEGY
from libs.policy.listing import list_findings, name_fields
from libs.policy.pool import Pool, Pools
from libs.policy.progress import RECONCILING, STALLED, PoolProgress, Progress, rollouts_progress
from libs.policy.readiness import (
    Observation,
    ReadinessProblem,
    agent_problems,
    kept_drivers,
    offer_problems,
    pool_problems,
    pool_progress,
)
from libs.policy.render.rendered import Operand, RenderResult
from libs.policy.unbuilt import UnbuiltOperand, unbuilt_operands
from libs.policy.variants import NodeVariants

_INCOMPLETE: Final = (
    "NVIDIADriver upgrade has not completed; one or more NVIDIADriver-owned Nodes are marked"
    " pending, in-progress, or failed"
)


MISSING_OPERANDS: Final = "MissingOperands"
"""The condition that names the sections of a policy that are switched on without effect."""


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
    is_observed: bool = True
    """Whether all who decide by this generation have taken it up, the scheduler included."""

    def with_conditions(self, *more: StatusCondition | None) -> Self:
        """Return the status with those of the conditions that there are."""
        found = (each for each in more if each is not None)
        return msgspec.structs.replace(self, conditions=(*self.conditions, *found))


class _Summary(msgspec.Struct, frozen=True, kw_only=True):
    state: str
    reason: str
    message: str = ""
    degraded: str = ""
    """The message of the condition Degraded; empty if it is false."""
    upgrading: str = ""
    """The message of the condition Upgrading; empty if it is false."""
    only_failed: bool = False
    """Whether each problem is one that a person has to end."""


class _Problems(msgspec.Struct, frozen=True, kw_only=True):
    by_pool: Mapping[str, Sequence[ReadinessProblem]]
    of_agents: Sequence[ReadinessProblem]
    unbuilt: Sequence[ReadinessProblem]
    kept: Mapping[str, Sequence[str]]
    """By pool: the nodes that keep another driver, because `autoUpgrade` is off."""


def policy_statuses(
    pools: Pools, variants: NodeVariants, rendering: RenderResult, observed: Observation
) -> tuple[PolicyStatus, ...]:
    """Return the status of every object that is not being deleted, by kind and name."""
    problems = {
        pool.key: pool_problems(pool, variants, rendering, observed) for pool in pools.pools
    }
    kept = {pool.key: kept_drivers(pool, variants, observed) for pool in pools.pools}
    of_agents = [*agent_problems(rendering, observed), *offer_problems(pools, observed)]
    statuses: list[PolicyStatus] = []
    for verdict in pools.verdicts:
        if verdict.acceptance is Acceptance.DELETING:
            continue
        state, is_observed, conditions = "", True, (_accepted(verdict, verdict.errors),)
        if verdict.kind == ROLLOUT_STRATEGY.name:
            conditions = (*_strategy_conditions(verdict), *conditions)
        else:
            unbuilt = _unbuilt(verdict, pools)
            known = _Problems(
                by_pool=problems,
                of_agents=of_agents,
                unbuilt=[
                    ReadinessProblem(operand=each.operand, cause=str(each))
                    for each in unbuilt
                    if each.operand
                ],
                kept=kept,
            )
            summary = _summary(verdict, pools, observed, known)
            state = summary.state
            own = [pool_progress(pool, observed) for pool in _own_pools(verdict, pools)]
            progress = _progress(verdict, summary, known, own)
            is_observed = progress.stalled or all(each.is_observed for each in own)
            conditions = (
                *_conditions(summary),
                *_progress_conditions(progress),
                *conditions,
                *_missing_operands(unbuilt),
            )
        statuses.append(
            PolicyStatus(
                kind=verdict.kind,
                name=verdict.name,
                uid=verdict.uid,
                generation=verdict.generation,
                state=state,
                conditions=conditions,
                is_observed=is_observed,
            )
        )
    return tuple(statuses)


def _own_pools(verdict: PolicyVerdict, pools: Pools) -> list[Pool]:
    return [pool for pool in pools.pools if (pool.kind, pool.name) == (verdict.kind, verdict.name)]


def _progress(
    verdict: PolicyVerdict, summary: _Summary, known: _Problems, own: Sequence[PoolProgress]
) -> Progress:
    """Return whether the change of a policy goes on or is stuck, for those who wait for it.

    What only a person can end comes first: to wait for it is in vain.
    """
    rollouts = rollouts_progress(own)
    if verdict.acceptance is not Acceptance.ACTIVE:
        return Progress(stalled=True, reason=summary.reason, message=summary.message)
    if verdict.errors:
        return Progress(stalled=True, reason="Invalid", message=summary.message)
    held = list(chain.from_iterable(each.pool.held for each in own))
    if held:
        return Progress(stalled=True, reason="Invalid", message=list_findings(held))
    if known.unbuilt:
        message = _list_problems(known.unbuilt)
        return Progress(stalled=True, reason=MISSING_OPERANDS, message=message)
    if summary.state == "ready" or rollouts.stalled:
        return rollouts
    if summary.degraded and summary.only_failed:
        return Progress(stalled=True, reason="Failed", message=summary.degraded)
    if rollouts.reason:
        return rollouts
    return Progress(stalled=False, reason=summary.reason, message=summary.message)


def _progress_conditions(progress: Progress) -> Iterator[StatusCondition]:
    """Yield Reconciling and Stalled, of which at most one is true."""
    goes_on = bool(progress.reason) and not progress.stalled
    for kind, status, otherwise in (
        (RECONCILING, goes_on, "Stalled" if progress.stalled else "Done"),
        (STALLED, progress.stalled, "NotStalled"),
    ):
        reason, message = (progress.reason, progress.message) if status else (otherwise, "")
        yield StatusCondition(type=kind, status=status, reason=reason, message=message)


def _strategy_conditions(verdict: PolicyVerdict) -> Iterator[StatusCondition]:
    """Yield whether a RolloutStrategy is in force; it has no nodes that it could wait for."""
    errors = list_findings(verdict.errors)
    yield StatusCondition(type="Ready", status=not errors, reason="Invalid" if errors else "InUse")
    stuck = Progress(stalled=bool(errors), reason="Invalid" if errors else "", message=errors)
    yield from _progress_conditions(stuck)


def _unbuilt(verdict: PolicyVerdict, pools: Pools) -> list[UnbuiltOperand]:
    """Return the operands that the cluster-wide policy switches on in vain."""
    cluster = pools.cluster
    if verdict.kind == NVIDIA_DRIVER.name:
        return []
    if cluster is None or verdict.uid != cluster.metadata.uid:
        return []
    return list(unbuilt_operands(cluster))


def _missing_operands(unbuilt: Sequence[UnbuiltOperand]) -> Iterator[StatusCondition]:
    if unbuilt:
        message = "; ".join(map(str, unbuilt))
        yield StatusCondition(
            type=MISSING_OPERANDS, status=True, reason="NotBuilt", message=message
        )


def _summary(
    verdict: PolicyVerdict, pools: Pools, observed: Observation, known: _Problems
) -> _Summary:
    """Return the state of a policy that selects nodes."""
    own = _own_pools(verdict, pools)
    nodes = [node for pool in own for node in pool.nodes]
    problems = list(chain.from_iterable(known.by_pool[pool.key] for pool in own))
    if verdict.acceptance is not Acceptance.ACTIVE:
        return _inactive_summary(verdict)
    if verdict.errors:
        return _invalid_summary(verdict.errors, nodes)
    kept = _kept_text(own, known.kept)
    if verdict.kind == NVIDIA_DRIVER.name:
        return _driver_summary(nodes, problems, kept)
    problems = [*known.of_agents, *problems, *known.unbuilt]
    of_drivers = [] if own else list(_of_drivers(pools, known))
    if problems or of_drivers:
        return _cluster_problem_summary(verdict, nodes, problems, of_drivers)
    return _cluster_ready_summary(verdict, pools, observed, kept)


def _kept_text(own: Sequence[Pool], kept: Mapping[str, Sequence[str]]) -> str:
    """Return how many nodes keep their driver although the policy wants another; empty: none."""
    nodes = sum(len(pool.nodes) for pool in own)
    keeping = sum(len(kept[pool.key]) for pool in own)
    if not keeping:
        return ""
    return (
        f"{keeping} of {plural(nodes, 'node')} keep another driver than the policy wants, because"
        " autoUpgrade is off"
    )


def _of_drivers(pools: Pools, known: _Problems) -> Iterator[ReadinessProblem]:
    """Yield the problems of NVIDIADrivers, which name the object where a node does not say it."""
    for pool in pools.pools:
        for each in known.by_pool[pool.key]:
            whose = "" if each.node else f"{pool.kind} {pool.name}: "
            yield msgspec.structs.replace(each, cause=f"{whose}{each.cause}")


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
    message = list_findings(verdict.reasons)
    if verdict.acceptance is Acceptance.DISABLED:
        return _Summary(state="disabled", reason="Reconciled", message=message)
    if verdict.acceptance is Acceptance.IGNORED:
        return _Summary(state="ignored", reason="Ignored", message=message)
    selectors = any(found.field.startswith("spec.nodeSelector") for found in verdict.reasons)
    reason = "ConflictingNodeSelector" if selectors else "ReconcileFailed"
    return _Summary(state="notReady", reason=reason, message=message)


def _invalid_summary(errors: Sequence[Finding], nodes: Sequence[str]) -> _Summary:
    message = list_findings(errors)
    degraded = message if nodes else ""
    return _Summary(state="notReady", reason="ReconcileFailed", message=message, degraded=degraded)


def _driver_summary(
    nodes: Sequence[str], problems: Sequence[ReadinessProblem], kept: str
) -> _Summary:
    if problems:
        return _Summary(
            state="notReady",
            reason="DriverNotReady",
            message=f"Waiting for driver pod to be ready; {_list_problems(problems)}",
            degraded=_degraded(problems),
            upgrading=_upgrading(nodes, problems),
            only_failed=_only_failed(problems),
        )
    message = _with("All resources have been successfully reconciled", kept)
    return _Summary(state="ready", reason="Reconciled", message=message)


def _with(message: str, more: str) -> str:
    return f"{message}; {more}" if more else message


def _cluster_problem_summary(
    verdict: PolicyVerdict,
    nodes: Sequence[str],
    problems: Sequence[ReadinessProblem],
    of_drivers: Sequence[ReadinessProblem],
) -> _Summary:
    """Return the state of a cluster-wide policy with problems.

    `of_drivers` are the problems of the cluster's NVIDIADrivers.
    """
    parts = [f"{verdict.kind} is not ready"]
    if problems:
        lacking = {problem.operand for problem in problems}
        names = [operand.value for operand in Operand if operand in lacking]
        parts[0] += f"; states not ready: [{' '.join(names)}]"
    parts += [_INCOMPLETE] if of_drivers else []
    all_problems = [*problems, *of_drivers]
    return _Summary(
        state="notReady",
        reason="OperandNotReady",
        message="; ".join([*parts, _list_problems(all_problems)]),
        degraded=_degraded(all_problems),
        upgrading=_upgrading(nodes, problems),
        only_failed=_only_failed(all_problems),
    )


def _cluster_ready_summary(
    verdict: PolicyVerdict, pools: Pools, observed: Observation, kept: str
) -> _Summary:
    """Return the state of a cluster-wide policy without problems."""
    reason = "Reconciled"
    message = f"{verdict.kind} is ready as all resources have been successfully reconciled"
    message = _with(message, kept)
    if not (pools.owners or pools.unowned):
        reason = "NoGPUNodes"
        message = "No GPU node found, watching for new nodes to join the cluster."
        if not observed.feature_labels:
            reason, message = "NFDLabelsMissing", "No NFD labels found"
    return _Summary(state="ready", reason=reason, message=message)


def _only_failed(problems: Sequence[ReadinessProblem]) -> bool:
    """Whether a person has to end each problem; what else a failed node shows comes of that."""
    failed = {problem.node for problem in problems if problem.failed and problem.node}
    return all(problem.failed or problem.node in failed for problem in problems)


def _degraded(problems: Sequence[ReadinessProblem]) -> str:
    return _list_problems([problem for problem in problems if problem.failed])


def _upgrading(nodes: Sequence[str], problems: Sequence[ReadinessProblem]) -> str:
    """Return the progress of an upgrade; empty if no node is being upgraded."""
    drivers = [
        problem for problem in problems if problem.operand is Operand.DRIVER and problem.node
    ]
    upgrading = [problem for problem in drivers if not problem.failed]
    if not upgrading:
        return ""
    done = len(nodes) - len({problem.node for problem in drivers})
    return f"{done} of {len(nodes)} nodes are done; {_list_problems(upgrading)}"


def _conditions(summary: _Summary) -> Iterator[StatusCondition]:
    ready, disabled = summary.state == "ready", summary.state == "disabled"
    error = not ready and summary.state != "ignored"
    reason, message = summary.reason, summary.message
    upgrading, degraded = summary.upgrading, summary.degraded
    for kind, status, why, text in (
        ("Ready", ready, "Error" if error else reason, "" if error else message),
        ("Error", error, "Ready" if ready else reason, message if error else ""),
        ("NotReady", not ready, reason, ""),
        ("Upgrading", upgrading, "NodesOnTheirWay" if upgrading else "NoNodeOnItsWay", upgrading),
        ("Degraded", degraded, "Failed" if degraded else "NothingFailed", degraded),
        ("Disabled", disabled, "NotAsked" if disabled else "InUse", ""),
    ):
        yield StatusCondition(type=kind, status=bool(status), reason=why, message=text)


def _accepted(verdict: PolicyVerdict, errors: Sequence[Finding]) -> StatusCondition:
    """Return the condition Accepted, which names every field with an error, warning or note."""
    warnings = [finding for finding in verdict.findings if finding.severity is Severity.WARNING]
    notes = [finding for finding in verdict.findings if finding.severity is Severity.NOTE]
    named = f"set without effect here: {name_fields(notes)}; docs/policies.md says why"
    listed = list_findings([*errors, *warnings])
    message = "; ".join(filter(None, [listed, named if notes else ""]))
    reason = "Invalid" if errors else "Warnings" if warnings else "Accepted"
    return StatusCondition(type="Accepted", status=not errors, reason=reason, message=message)


def _list_problems(problems: Sequence[ReadinessProblem]) -> str:
    return first_sentences(map(str, problems), 5)
