"""What `sluice doctor` says of policies, as far as pools do not say it. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from libs.ctl.checks import Check, Upgrade, fault, ok, warning
from libs.kube import views
from libs.policy.kinds.nvidia_driver import NVIDIA_DRIVER

_POSITIVE: Final = "Accepted"
"""The condition that is a fault when it is false. Others are one when they are true."""
_PROBLEMS: Final = re.compile(r"; (?=[\w-]+(?: on \S+)?: )")
"""Between the problems of a condition, each `OPERAND on NODE: CAUSE`."""
OF_DRIVERS: Final = "state-driver on "
"""Begins the problem of the driver of one node."""
OF_OTHERS: Final = "state-driver"
"""Begins each problem of drivers, in a policy whose drivers are those of NVIDIADrivers."""
_OWN: Final = "states not ready: ["
"""Is in the message of a policy with a problem of its own."""
_NO_FAULT: Final = ("Ready", "NotReady", "Upgrading", "Disabled", "Reconciling", "Stalled")
"""Conditions that say again what `Error` says, or what a person asked for."""


class Policy(views.Object, frozen=True, kw_only=True):
    status: "PolicyStatus | None" = None


class PolicyStatus(views.View, frozen=True, kw_only=True):
    state: str = ""
    conditions: tuple[views.Condition, ...] = ()
    observed_generation: int | None = None

    @property
    def tells_pipelines(self) -> bool:
        """Whether an edit can be told from what was before it. A GPU Operator that leads writes no
        generation, and is told by a condition of its own.
        """
        is_ours = any(each.type == _POSITIVE for each in self.conditions)
        return self.observed_generation is not None or not is_ours


def policy_checks(policies: Mapping[str, Policy], upgrade: Upgrade) -> list[Check]:
    """Judge the status of policies for the whole cluster, by kind and name.

    While an upgrade is under way, has failed nodes or leaves nodes out, that drivers are not ready
    is no fault of the policy: what is wrong is said of the pools.
    """
    if not policies:
        remedy = "create one: see docs/install.md"
        return [warning("policy", "there is no ClusterPolicy", remedy)]
    by_drivers = any(_is_driver(about) for about in policies)
    return [
        check
        for about, each in policies.items()
        for check in _policy_checks(
            about, each, upgrade, by_drivers=by_drivers and not _is_driver(about)
        )
    ]


def _is_driver(about: str) -> bool:
    return about.startswith(f"{NVIDIA_DRIVER.name} ")


def _policy_checks(
    about: str, policy: Policy, upgrade: Upgrade, *, by_drivers: bool
) -> list[Check]:
    """Judge a policy; `by_drivers`: its drivers are those of NVIDIADrivers, which tell theirs."""
    status = policy.status or PolicyStatus()
    if not (status.state and (status.conditions or status.observed_generation is None)):
        return [
            fault(about, "it has no status", "see the logs of the Deployment sluice-driver-cluster")
        ]
    if by_drivers:
        conditions = tuple(filter(None, map(_besides_others, status.conditions)))
        is_theirs = len(conditions) < len(status.conditions)
        status = replace(status, conditions=conditions)
        if is_theirs and not any(_is_fault(each) for each in conditions):
            return [ok(about, f"{status.state}, as an {NVIDIA_DRIVER.name} is")]
    if not status.tells_pipelines:
        return [
            warning(
                about,
                "its definition lacks status.observedGeneration: a pipeline that waits takes an"
                " edit for done before Sluice has seen it",
                "apply the definitions of this release (deploy/chart/crds); docs/gitops.md",
            ),
            *_judged(about, status, upgrade),
        ]
    return _judged(about, status, upgrade)


def _judged(about: str, status: PolicyStatus, upgrade: Upgrade) -> list[Check]:
    is_told = upgrade.is_under_way or upgrade.failed + upgrade.skipped > 0
    problems = list(_problems(about, status, is_told=is_told))
    if problems or status.state == "ready" or not is_told:
        return problems or [ok(about, status.state)]
    if upgrade.has_trouble:
        return []
    return [ok(about, f"{status.state}, as {upgrade}")]


def _besides_others(condition: views.Condition) -> views.Condition | None:
    """Return a condition without what it says of NVIDIADrivers; None: it says nothing else."""
    if condition.type not in ("Error", "Degraded") or condition.status != "True":
        return condition
    parts = _PROBLEMS.split(condition.message)
    kept = [each for each in parts if not each.startswith(OF_OTHERS)]
    if len(kept) == len(parts):
        return condition
    if not kept or (condition.type == "Error" and len(kept) == 1 and _OWN not in kept[0]):
        return None
    return replace(condition, message="; ".join(kept))


def _is_fault(condition: views.Condition) -> bool:
    return condition.type not in _NO_FAULT and condition.status == (
        "False" if condition.type == _POSITIVE else "True"
    )


def _problems(about: str, status: PolicyStatus, *, is_told: bool) -> Iterator[Check]:
    upgrading = any(
        each.type == "Upgrading" and each.status == "True" for each in status.conditions
    )
    for each in filter(_is_fault, status.conditions):
        text = _besides_drivers(each) if is_told else each.message
        if is_told and (each.type == "Error" or (each.message and not text)):
            continue
        judge = warning if upgrading and each.type == "Error" else fault
        remedy = "see `sluice status`, and for the fields docs/policies.md"
        yield judge(about, f"{each.type} is {each.status}: {text or each.reason}", remedy)


def _besides_drivers(condition: views.Condition) -> str:
    """Return what the message says of others than drivers of nodes, which pools tell."""
    if condition.type != "Degraded":
        return condition.message
    parts = _PROBLEMS.split(condition.message)
    return "; ".join(each for each in parts if not each.startswith(OF_DRIVERS))
