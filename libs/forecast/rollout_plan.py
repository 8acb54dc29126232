"""The result of a forecast, and the message that answers a query with it.

Times are seconds from the moment of the forecast; None is unknown, never a guess. A play in which
an event never happens counts as infinitely late, so a percentile is never too early. Plays in which
the driver is halted are counted, but only if they are the most do they make times unknown.
"""

from collections.abc import Iterable
from math import ceil, inf, sqrt
from statistics import mean, stdev

import msgspec

from libs.contracts.node import WaitCode
from libs.contracts.queries import (
    CapacityPoint,
    PlanAnswer,
    PlanLimits,
    PlannedNode,
    PlanStop,
    WaitReason,
)
from libs.forecast.play_result import CapacityLoss, ProofDelay
from libs.rollout.decision import Wait

_MEDIAN, _LATE = 0.5, 0.95
_ENOUGH_PLAYS = 10
"""Minimum number of plays to distinguish chance from a cause."""
_STUDENT = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833),
    *(1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740),
)
"""The 95 % quantiles of Student's distribution for 2 to 18 plays."""


class Percentiles(msgspec.Struct, frozen=True):
    """Seconds from now; None: unknown."""

    p50: float | None = None
    p95: float | None = None


def percentiles_of(times: Iterable[float | None], plays: int) -> Percentiles:
    """Return percentiles over this number of plays; None and missing times count as infinite.

    The rollout itself is like one more play, so that the 95 % figure is the time within which 95 %
    of further plays end; of fewer than 19 plays it is the worst, which is too early.
    """
    ordered = _ordered(times, plays)
    return Percentiles(_within(ordered, _MEDIAN), _at(ordered, _further(_LATE, plays)))


def predicted_percentiles(times: Iterable[float | None], plays: int) -> Percentiles:
    """Return percentiles as `percentiles_of`; of few plays, the 95 % figure adds their spread.

    It is the upper limit of a further play if plays are normally distributed.
    """
    ordered = _ordered(times, plays)
    found = percentiles_of(ordered, plays)
    if found.p95 is None or not 2 <= plays <= len(_STUDENT) + 1:
        return found
    spread = _STUDENT[plays - 2] * stdev(ordered) * sqrt(1.0 + 1.0 / plays)
    return Percentiles(found.p50, max(found.p95, mean(ordered) + spread))


def _ordered(times: Iterable[float | None], plays: int) -> list[float]:
    ordered = sorted(inf if time is None else time for time in times)
    if len(ordered) > plays or plays < 1:
        raise ValueError(f"{len(ordered)} times cannot come from {plays} plays: one each at most")
    return ordered + [inf] * (plays - len(ordered))


def upper_median(amounts: Iterable[float]) -> float:
    """Return the median, of two the greater; 0 without amounts."""
    ordered = sorted(amounts)
    return ordered[len(ordered) // 2] if ordered else 0.0


def _within(ordered: list[float], share: float) -> float | None:
    return _at(ordered, ceil(share * len(ordered)))


def _further(share: float, plays: int) -> int:
    """Return the rank of the play within which this share of further plays ends."""
    return min(plays, ceil(share * (plays + 1)))


def _at(ordered: list[float], rank: int) -> float | None:
    time = ordered[rank - 1]
    return None if time == inf else time


class NodeForecast(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is not up to date."""

    node: str
    start: Percentiles = Percentiles()
    end: Percentiles = Percentiles()
    evicted: tuple[str, ...] = ()
    """Pods that are evicted in at least one play."""
    lost_pods: tuple[str, ...] = ()
    """Evicted pods that lose data or work, each with the loss."""
    without_place: tuple[str, ...] = ()
    """Evicted pods that would fit on no other node now, each with the reason."""
    blocked_by: tuple[str, ...] = ()
    """Disruption budgets that refuse an eviction now, and keep the node from its end in the median
    play, or until its pods are deleted by force.
    """
    wait: Wait | None = None
    """Its final wait, if its end is unknown."""
    failed_plays: int = 0
    """Number of plays in which it failed and did not recover."""
    gpus: int | None = None
    """How many GPUs it takes away: 0 where something else has already; None: not known."""
    run_start: float | None = None
    run_end: float | None = None
    """In the play of which the losses are."""


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
    """The largest loss of all plays, including nodes that are unavailable already."""
    pool_nodes: int = 0
    pool_gpus: int = 0
    """0: those of some node are not known, which has no driver yet."""
    losses: tuple[CapacityLoss, ...] = ()
    """The unavailable nodes over time, in a play of median duration."""
    down: CapacityLoss | None = None
    """Those that are unavailable already; None: none is."""
    gpu_hours_lost: float = 0.0
    drained_seconds: float | None = None
    """For which a node is out of service, in the median; None: none is, or none is upgraded."""
    pulling_seconds: float | None = None
    """Of those, in the median: while the driver's image is pulled."""
    proof: ProofForecast | None = None
    halted_plays: int = 0
    """Number of plays in which the target is halted in the end."""
    required_limits: RequiredLimits | None = None
    """None: not requested."""
    measured_nodes: int = 0
    """Number of nodes whose last upgrade was measured: durations are theirs."""
    stops: tuple[PlanStop, ...] = ()
    """What has to end before the rollout goes on, from whose end times count."""
    limits: PlanLimits | None = None
    policy_limits: PlanLimits | None = None
    held: tuple[str, ...] = ()
    """Of the remarks, those about nodes that jobs or disruption budgets hold up."""
    remarks: tuple[str, ...] = ()

    @property
    def failing(self) -> tuple[str, ...]:
        """Return the nodes that probably fail; with few plays, only those with a known cause."""
        return tuple(
            node.node
            for node in self.nodes
            if 2 * node.failed_plays > self.plays
            and (self.plays >= _ENOUGH_PLAYS or node.blocked_by)
        )

    @property
    def failing_by_chance(self) -> int:
        """Return how many others usually fail, without being the same in each play."""
        others = sum(node.failed_plays for node in self.nodes) / self.plays - len(self.failing)
        return round(others) if others >= 1 else 0

    @property
    def has_something_to_do(self) -> bool:
        """Whether any node is to be upgraded that people do not keep out."""
        waits = (node.wait for node in self.nodes)
        return any(wait is None or wait.code is not WaitCode.SKIPPED for wait in waits)

    @property
    def upgraded(self) -> int:
        """Return how many nodes are upgraded in the end, as far as that is known."""
        failing = set(self.failing)
        ended = (node.end.p50 is not None and node.node not in failing for node in self.nodes)
        return max(0, sum(ended) - self.failing_by_chance)


def plan_response(plan: RolloutPlan) -> PlanAnswer:
    """Return the message; results without a field in the message are in the remarks."""
    needed = plan.required_limits
    return PlanAnswer(
        pool=plan.pool,
        target=plan.target,
        nodes=tuple(_node(node) for node in plan.nodes),
        upgraded=plan.upgraded,
        failing=len(plan.failing) + plan.failing_by_chance,
        makespan_p50=plan.makespan.p50,
        makespan_p95=plan.makespan.p95,
        gpu_hours_lost=plan.gpu_hours_lost,
        drained_seconds=plan.drained_seconds,
        pulling_seconds=plan.pulling_seconds,
        largest_loss=plan.loss.nodes,
        largest_loss_at=plan.loss.at,
        pool_nodes=plan.pool_nodes,
        pool_gpus=plan.pool_gpus,
        capacity=tuple(map(_point, plan.losses)),
        down=None if plan.down is None else _point(plan.down),
        needed_max_unavailable=None if needed is None else needed.max_unavailable,
        measured_nodes=plan.measured_nodes,
        remarks=plan.remarks,
        held=plan.held,
        stops=plan.stops,
        limits=plan.limits,
        policy_limits=plan.policy_limits,
    )


def _node(node: NodeForecast) -> PlannedNode:
    return PlannedNode(
        node=node.node,
        start_p50=node.start.p50,
        start_p95=node.start.p95,
        end_p50=node.end.p50,
        end_p95=node.end.p95,
        evicted=node.evicted,
        lost=node.lost_pods,
        without_place=node.without_place,
        gpus=node.gpus,
        run_start=node.run_start,
        run_end=node.run_end,
        blocked_by=node.blocked_by,
        wait=None if node.wait is None else _reason(node.wait),
    )


def _point(loss: CapacityLoss) -> CapacityPoint:
    return CapacityPoint(at=loss.at, nodes=loss.nodes, gpus=loss.gpus)


def _reason(wait: Wait) -> WaitReason:
    return WaitReason(
        code=wait.code, detail=wait.detail, since=wait.since, until=wait.until, who=wait.who
    )
