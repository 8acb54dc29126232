"""The result of a forecast.

Times are seconds from the moment of the forecast; None is unknown, never a guess.
"""

import msgspec

from libs.forecast.percentiles import Percentiles
from libs.forecast.play_result import CapacityLoss, ProofDelay
from libs.rollout.decision import Wait


class NodeForecast(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is not up to date."""

    node: str
    start: Percentiles = Percentiles()
    end: Percentiles = Percentiles()
    evicted: tuple[str, ...] = ()
    """Pods that are evicted in at least one play."""
    lost_pods: tuple[str, ...] = ()
    """Those of them with which something is lost, and what."""
    blocked_by: tuple[str, ...] = ()
    """Disruption budgets that currently refuse an eviction."""
    wait: Wait | None = None
    """Its final wait, if its end is unknown."""
    failed_plays: int = 0
    """Number of plays in which it failed for good."""


class ProofForecast(msgspec.Struct, frozen=True, kw_only=True):
    threshold: int
    """Number of nodes that have to succeed."""
    after: Percentiles
    delay: ProofDelay | None
    """The longest delay caused by others; None: none worth mentioning."""


class RequiredLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that complete the rollout in time."""

    max_unavailable: int | None
    """None: no number is sufficient, or none can be determined."""
    max_parallel: int | None = None
    """The value it has to be changed to; None: no change needed."""
    why: str


class RolloutPlan(msgspec.Struct, frozen=True, kw_only=True):
    pool: str
    target: str
    plays: int
    nodes: tuple[NodeForecast, ...] = ()
    """Sorted by start; unknown starts last."""
    makespan: Percentiles = Percentiles()
    """Until the last node that can move is upgraded or has failed."""
    loss: CapacityLoss = CapacityLoss(nodes=0, gpus=0, at=0.0)
    """The largest of all plays, including nodes that are unavailable already."""
    gpu_hours_lost: float = 0.0
    proof: ProofForecast | None = None
    halted_plays: int = 0
    """Number of plays in which the target is halted in the end."""
    required_limits: RequiredLimits | None = None
    """None: not requested."""
    remarks: tuple[str, ...] = ()
