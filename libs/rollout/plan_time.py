"""How long a plan says that a rollout takes, the same wherever that is shown. Pure.

The times of a plan count from when it was asked for. A rollout takes from the start of its first
node to the end of its last one, whenever that start is.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from libs.contracts.node import WaitCode
from libs.contracts.queries import PlanAnswer, PlannedNode
from libs.rollout.durations import format_duration

_MINUTE: Final = 60.0


class PlanTime(NamedTuple):
    """Seconds from the first start on; None: unknown."""

    p50: float | None
    p95: float | None

    def __str__(self) -> str:
        late = "not known" if self.p95 is None else brief(self.p95)
        return "no end" if self.p50 is None else f"{brief(self.p50)} (p50), {late} (p95)"


def plan_time(p50: float | None, p95: float | None, starts: Iterable[float | None]) -> PlanTime:
    """Return how long a rollout takes, of a plan's ends of the last node and starts of nodes."""
    first = first_start(starts)
    p50, p95 = (None if end is None else max(0.0, end - first) for end in (p50, p95))
    return PlanTime(p50, p95)


def takes(plan: PlanAnswer) -> str:
    """Return how long the rollout takes; without its end, how long those nodes take that have one.

    Nodes that people keep out are no part of either.
    """
    nodes = [node for node in plan.nodes if not is_left_out(node)]
    if not nodes:
        return "nothing to do"
    starts = [node.start_p50 for node in nodes]
    if plan.makespan_p50 is not None:
        return str(plan_time(plan.makespan_p50, plan.makespan_p95, starts))
    if ends := [node.end_p50 for node in nodes if node.end_p50 is not None]:
        likely = brief(max(ends) - first_start(starts))
        others = _count(len(nodes) - len(ends))
        return f"{likely} (p50) for {_count(len(ends))}, no end for {others}"
    if not any(start is not None for start in starts):
        return "nothing would start"
    halts = any(node.wait is not None and node.wait.code is WaitCode.HALTED for node in nodes)
    return "would halt" if halts else "no end is known"


def is_left_out(node: PlannedNode) -> bool:
    """Return whether people keep the node out of the rollout."""
    return node.end_p50 is None and node.wait is not None and node.wait.code is WaitCode.SKIPPED


def _count(nodes: int) -> str:
    return f"{nodes} node" if nodes == 1 else f"{nodes} nodes"


def first_start(starts: Iterable[float | None]) -> float:
    """Return when the first node starts; 0 where none does."""
    return min((start for start in starts if start is not None), default=0.0)


def brief(seconds: float) -> str:
    """Return a duration as precise as a plan is: from ten minutes on without seconds."""
    is_short = seconds < 10 * _MINUTE
    return format_duration(seconds if is_short else round(seconds / _MINUTE) * _MINUTE)
