"""RolloutStrategy (`sluice.dev/v1alpha1`): how a pool's rollout handles failures and timeouts."""

from enum import StrEnum
from typing import Annotated

from libs.contracts import rollout
from libs.policy.kinds.common import Conditions, Metadata
from libs.policy.kinds.kind import AGE, Kind, PrinterColumn
from libs.policy.shapes import About, IntOrString, PolicyStruct, Rule


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
            effect="the strategy holds for this pool; of several, the oldest",
            required=True,
            pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
            rules=(Rule("self == oldSelf", "pool cannot be changed: make another strategy"),),
        ),
    ] = ""
    failure_threshold: Annotated[
        IntOrString,
        About(
            "So many nodes, or so much of the pool, may fail on a driver until it is halted.",
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
            "How often a node that failed is tried again by itself.",
            effect="only while the driver is not halted",
            stored=True,
            minimum=0,
        ),
    ] = 1
    on_job_timeout: Annotated[
        OnJobTimeout,
        About(
            "When waitForCompletion ran out.",
            effect="Evict goes on; Defer releases the node, and takes it up again later",
            stored=True,
        ),
    ] = OnJobTimeout.EVICT
    on_eviction_timeout: Annotated[
        OnEvictionTimeout,
        About(
            "When podDeletion or drain ran out.",
            effect="Fail fails the node; Release gives it back; ForceDelete evicts without grace",
            stored=True,
        ),
    ] = OnEvictionTimeout.FAIL
    cordoned_nodes: Annotated[
        CordonedNodes,
        About(
            "Nodes that a person cordoned.",
            effect="Upgrade takes them along, and they stay cordoned; Skip leaves them alone",
            stored=True,
        ),
    ] = CordonedNodes.UPGRADE


class StrategyStatus(PolicyStruct, frozen=True, kw_only=True):
    conditions: Conditions = ()


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
    description="How much may go wrong in the rollout of a pool, and what then.",
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
