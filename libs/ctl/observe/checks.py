"""What `sluice doctor` says of a GPU Operator's fleet. Pure."""

from libs.ctl import checks
from libs.ctl.checks import Check
from libs.ctl.observe.answers import ObservedStatus
from libs.ctl.observe.fleet import Operator
from libs.ctl.text import duration


def operator_checks(status: ObservedStatus, *, now: float) -> list[Check]:
    """Judge the operator, its pools and the traps that hold now."""
    found = [_operator(status, now)]
    for pool in status.pools:
        done = f"{pool.counts['done']} of {pool.counts['total']} nodes are done"
        if pool.because:
            remedy = "see sluice status"
            found.append(
                checks.warning(pool.name, f"{done}; no node starts: {pool.because}", remedy)
            )
        else:
            found.append(checks.ok(pool.name, done))
    found += (checks.warning(f"trap {trap.name}", trap.found, trap.remedy) for trap in status.traps)
    found += (
        checks.unknown(source.gives, source.problem, "see the rights that docs/migrate.md names")
        for source in status.sources
        if source.problem
    )
    return [*found, checks.ok("Sluice", "it is not installed: see docs/migrate.md")]


def _operator(status: ObservedStatus, now: float) -> Check:
    """Judge whether an operator works: a Lease that is not renewed is all that shows its end."""
    operator, about = status.operator, "GPU Operator"
    where = f"in namespace {operator.namespace}"
    if operator.is_live:
        return checks.ok(about, f"{operator.holder} leads {where}")
    if operator.renewed is None:
        found = "no operator holds its Lease: whether it runs is not known"
    else:
        found = f"it is away: it last renewed its Lease {duration(now - operator.renewed)} ago"
    remedy = f"see kubectl --namespace {operator.namespace or 'gpu-operator'} get pods"
    return checks.warning(about, found, remedy)


def foreign_operator_check(operator: Operator | None) -> Check:
    """Judge a GPU Operator where Sluice is installed: while it works, Sluice writes nothing."""
    about = "GPU Operator"
    if operator is None:
        return checks.ok(about, "there is none")
    where = f"in namespace {operator.namespace}"
    if not operator.is_live:
        return checks.ok(about, f"it is away; its Lease is left {where}")
    found = f"{operator.holder} leads {where}, so Sluice stands back and writes nothing"
    return checks.warning(about, found, "keep one of the two: see docs/migrate.md")
