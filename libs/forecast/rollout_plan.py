"""What a forecast says: of each node, and of the pool.

Times are seconds from the moment that was foreseen from; None is unknown, never a guess.
"""

import msgspec

from libs.forecast.percentiles import Percentiles
from libs.forecast.play_result import CapacityLoss, ProofDelay
from libs.rollout.decision import Wait


class NodeForecast(msgspec.Struct, frozen=True, kw_only=True):
    """One node that is not where its policy wants it."""

    node: str
    start: Percentiles = Percentiles()
    """When it is taken up."""
    end: Percentiles = Percentiles()
    """When it is in place."""
    evicted: tuple[str, ...] = ()
    """Pods that are asked to leave, in one play at least."""
    lost_pods: tuple[str, ...] = ()
    """Those of them with which something is lost, and what."""
    blocked_by: tuple[str, ...] = ()
    """Disruption budgets that refuse, as things stand."""
    wait: Wait | None = None
    """What it waits for in the end, where its end is unknown."""
    failed_plays: int = 0
    """In how many plays it failed for good."""


class ProofForecast(msgspec.Struct, frozen=True, kw_only=True):
    """How the target proves itself."""

    threshold: int
    """On so many nodes."""
    after: Percentiles
    delay: ProofDelay | None
    """What takes the longest meanwhile, by the doing of others; None: nothing of note."""


class RequiredLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the limits would have to be to be through by a certain time."""

    max_unavailable: int | None
    """A number of nodes; None: no number would do, or none can be said."""
    max_parallel: int | None = None
    """It has to be this, too; None: it may stay as it is."""
    why: str
    """In words."""


class RolloutPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of a pool."""

    pool: str
    target: str
    plays: int
    nodes: tuple[NodeForecast, ...] = ()
    """In the order of their starts; those whose start is unknown come last."""
    makespan: Percentiles = Percentiles()
    """Until the last node of those that can move at all is in place, or has failed."""
    loss: CapacityLoss = CapacityLoss(nodes=0, gpus=0, at=0.0)
    """The largest of all plays, with what is out of service already."""
    gpu_hours_lost: float = 0.0
    proof: ProofForecast | None = None
    halted_plays: int = 0
    """In how many plays the target is halted in the end."""
    required_limits: RequiredLimits | None = None
    """None: nobody asked."""
    remarks: tuple[str, ...] = ()
    """For a person: what will not move, what is lost, what is in the way, and how one knows."""
