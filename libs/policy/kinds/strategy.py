"""RolloutStrategy (`sluice.dev/v1alpha1`): how a pool's rollout handles failures and timeouts."""

from enum import StrEnum
from typing import Annotated, Final

from libs.contracts import rollout
from libs.policy.kinds.common import (
    AGE,
    Conditions,
    Kind,
    Metadata,
    ObservedGeneration,
    PrinterColumn,
)
from libs.policy.shapes import About, IntOrString, PolicyStruct, Rule

_TAINT_KEY: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)


class OnJobTimeout(StrEnum):
    """What to do with a node whose jobs did not end in time."""

    EVICT = "Evict"
    DEFER = "Defer"


class OnEvictionTimeout(StrEnum):
    """What to do with a node whose pods did not leave in time."""

    FAIL = "Fail"
    RELEASE = "Release"
    FORCE_DELETE = "ForceDelete"


class CordonedNodes(StrEnum):
    """What to do with a node that a person cordoned."""

    UPGRADE = "Upgrade"
    SKIP = "Skip"


class StrategySpec(PolicyStruct, frozen=True, kw_only=True):
    pool: Annotated[
        str,
        About(
            "The pool: kind and name of its policy in lower case, with a dash between;"
            " cannot be changed.",
            effect="the strategy applies to this pool; of several, the oldest applies",
            required=True,
            pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
            rules=(Rule("self == oldSelf", "pool cannot be changed: make another strategy"),),
        ),
    ] = ""
    failure_threshold: Annotated[
        IntOrString,
        About(
            "How many nodes, or which share of the pool, may fail before a driver is halted.",
            effect="a percentage is rounded up; at least 1",
            stored=True,
            pattern=r"^([0-9]+|[0-9]{1,2}%|100%)$",
            minimum=0,
            int_or_percent=True,
        ),
    ] = "5%"
    retries: Annotated[
        int,
        About(
            "How often the upgrade of a failed node is retried automatically.",
            effect="only while the driver is not halted",
            stored=True,
            minimum=0,
        ),
    ] = 1
    on_job_timeout: Annotated[
        OnJobTimeout,
        About(
            "What happens when waitForCompletion times out.",
            effect="Evict evicts the pods; Defer releases the node and tries again later",
            stored=True,
        ),
    ] = OnJobTimeout.EVICT
    on_eviction_timeout: Annotated[
        OnEvictionTimeout,
        About(
            "What happens when podDeletion or drain times out.",
            effect="Fail fails the node; Release gives it back; ForceDelete evicts pods without a"
            " grace period",
            stored=True,
        ),
    ] = OnEvictionTimeout.FAIL
    cordoned_nodes: Annotated[
        CordonedNodes,
        About(
            "What happens to nodes that a person cordoned.",
            effect="Upgrade upgrades them, and they stay cordoned; Skip leaves them alone",
            stored=True,
        ),
    ] = CordonedNodes.UPGRADE
    startup_taint: Annotated[
        str,
        About(
            "The key of a taint with which new nodes of the pool come; empty: there is none.",
            effect="the taints with this key are removed when the node is upgrade-done for the"
            " first time; drivers and agents tolerate them",
            pattern=_TAINT_KEY,
        ),
    ] = ""


class StrategyStatus(PolicyStruct, frozen=True, kw_only=True):
    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None


class RolloutStrategy(PolicyStruct, frozen=True, kw_only=True):
    """How one pool is rolled out."""

    metadata: Metadata = Metadata()
    spec: StrategySpec = StrategySpec()


ROLLOUT_STRATEGY = Kind(
    name="RolloutStrategy",
    group=rollout.GROUP,
    version=rollout.VERSION,
    plural="rolloutstrategies",
    singular="rolloutstrategy",
    description="How the rollout of a pool handles failures, timeouts and cordoned nodes.",
    spec=StrategySpec,
    status=StrategyStatus,
    object_type=RolloutStrategy,
    columns=(
        PrinterColumn("Pool", ".spec.pool"),
        PrinterColumn("Threshold", ".spec.failureThreshold"),
        PrinterColumn("Retries", ".spec.retries", "integer"),
        AGE,
    ),
    spec_required=True,
)
