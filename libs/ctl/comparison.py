"""A rollout beside its plan. Pure.

The plan is the last one that was asked for before the rollout began, and since nodes began to move
to the driver before it, not since they only validated that one again; rather one by the limits that
the policy had then than one by others. Times are seconds from the beginning: of the rollout its
first grant, of the plan its first start.
"""

from typing import Final

import msgspec

from libs.contracts.queries import PlanLimits
from libs.contracts.waits import WaitCode

LEAST_JUDGED: Final = 10.0
"""Seconds; of a shorter plan, a second more or less is too large a share."""


class ComparedNode(msgspec.Struct, frozen=True, kw_only=True):
    """When a node was upgraded, and when it was expected to be; None: not, or not known."""

    node: str
    planned_start: float | None = None
    planned_end: float | None = None
    start: float | None = None
    end: float | None = None
    failed: bool = False
    waited: dict[str, float] = {}
    """Seconds of the rollout in which it waited for jobs or people, by the code of the wait."""
    waits_for: str = ""
    """The code of the one of these that goes on."""
    retries: int = 0
    """How often it was tried again after a failure."""
    follows: bool = False
    """Whether it started after the rollout was complete without it, as people kept it out."""

    @property
    def is_kept_out(self) -> bool:
        """Whether people keep it out still."""
        return self.start is None and self.waits_for == WaitCode.SKIPPED

    @property
    def is_unplanned(self) -> bool:
        """Whether anything happened to it that no plan could know."""
        is_known = self.planned_start is None and (self.follows or self.is_kept_out)
        return bool(self.retries or self.waited) and not is_known


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout and its plan."""

    pool: str
    target: str
    version: str = ""
    began: float
    """Unix seconds."""
    complete: bool
    nodes: tuple[ComparedNode, ...]
    """In the order in which they were upgraded."""
    makespan: float
    """Until the last node that has ended, without those that followed; of a rollout that goes on,
    until now.
    """
    evicted: int = 0
    """Pods that were evicted from its nodes."""
    planned_at: float | None = None
    """Unix seconds; None: no plan was asked for before."""
    planned_makespan: float | None = None
    planned_makespan_p95: float | None = None
    planned_limits: PlanLimits | None = None
    """Those by which it was planned, and those of the policy then; None: not known."""
    policy_limits: PlanLimits | None = None
    gpu_hours: float | None = None
    """Lost, as far as they are in the plan; None: the rollout goes on, or GPUs are not known."""
    without_gpus: tuple[str, ...] = ()
    """Nodes that started and whose GPUs the plan did not know."""
    away_before: tuple[str, ...] = ()
    """Nodes that started and whose GPUs the rollout took from nobody: something else had already.
    """
    planned_gpu_hours: float | None = None

    @property
    def node_seconds(self) -> float:
        """Return how long the nodes were away, all together, those that have ended."""
        return sum(
            each.end - each.start
            for each in self.nodes
            if each.start is not None and each.end is not None
        )

    @property
    def was_disturbed(self) -> bool:
        """Whether anything happened that no plan could know."""
        return any(node.is_unplanned for node in self.nodes)

    @property
    def error(self) -> float | None:
        """Return how much longer than planned the rollout took, as a share of what was planned.

        None where that says nothing about the plan.
        """
        planned = self.planned_makespan
        if planned is None or planned < LEAST_JUDGED or not self.complete or self.was_disturbed:
            return None
        return (self.makespan - planned) / planned
