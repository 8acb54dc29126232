"""How long a plan says that a rollout takes, the same wherever that is shown. Pure.

The times of a plan count from when it was asked for. A rollout takes from the start of its first
node to the end of its last one, whenever that start is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from libs.contracts.queries import PlanAnswer, PlannedNode, PlanStop, PlanStopKind
from libs.contracts.waits import WaitCode
from libs.contracts.words import format_duration, plural

ASSUMED_JOB: Final = "assumed to go on for"
"""Is in a remark of a plan about a job, whose end is not known."""
_MINUTE: Final = 60.0


class PlanTime(NamedTuple):
    """Seconds within which half of all plays are through, and 95 % of them; None: unknown."""

    p50: float | None = None
    p95: float | None = None

    def __str__(self) -> str:
        late = "not known" if self.p95 is None else brief(self.p95)
        return "no end" if self.p50 is None else f"{brief(self.p50)} (p50), {late} (p95)"


def plan_time(p50: float | None, p95: float | None, starts: Iterable[float | None]) -> PlanTime:
    """Return how long a rollout takes, of a plan's ends of the last node and starts of nodes."""
    first = first_start(starts)
    p50, p95 = (None if end is None else max(0.0, end - first) for end in (p50, p95))
    return PlanTime(p50, p95)


class _Words(NamedTuple):
    state: str
    end: str
    """What ends it."""


_STOPS: Final[Mapping[PlanStopKind, _Words]] = {
    PlanStopKind.POLICY_DELETED: _Words("policy deleted", "the policy is there again"),
    PlanStopKind.HALTED: _Words("halted", "a release"),
    PlanStopKind.PAUSED: _Words("paused", "a resume"),
    PlanStopKind.FROZEN: _Words("frozen", "a resume"),
    PlanStopKind.AUTO_UPGRADE_OFF: _Words("autoUpgrade is off", "autoUpgrade is on"),
}


def takes(plan: PlanAnswer) -> str:
    """Return how long the rollout takes; without its end, how long those nodes take that have one.

    Nodes that people keep out are no part of either. A rollout that is stopped has no end until it
    goes on.
    """
    if any(stop.kind is PlanStopKind.POLICY_DELETED for stop in plan.stops):
        return "nothing starts, as the policy was deleted; nodes keep the driver that they have"
    nodes = [node for node in plan.nodes if not is_left_out(node)]
    if not nodes:
        return "nothing to do"
    if not plan.stops:
        return _takes(plan, nodes)
    words = [stop_words(stop) for stop in plan.stops]
    states, ends = (" and ".join(dict.fromkeys(each)) for each in zip(*words, strict=True))
    return f"{states}: no end until {ends}, then {_takes(plan, nodes)}"


def stop_words(stop: PlanStop) -> tuple[str, str]:
    """Return the state of a pool that is stopped so, and what ends it."""
    return _STOPS.get(stop.kind, _Words(stop.kind.value, "that ends"))


def _takes(plan: PlanAnswer, nodes: Sequence[PlannedNode]) -> str:
    starts = [node.start_p50 for node in nodes]
    if plan.makespan_p50 is not None:
        return str(plan_time(plan.makespan_p50, plan.makespan_p95, starts))
    if ends := [node.end_p50 for node in nodes if node.end_p50 is not None]:
        likely = brief(max(ends) - first_start(starts))
        others = plural(len(nodes) - len(ends), "node")
        return f"{likely} (p50) for {plural(len(ends), 'node')}, no end for {others}"
    if not any(start is not None for start in starts):
        return "nothing would start"
    halts = any(node.wait is not None and node.wait.code is WaitCode.HALTED for node in nodes)
    return "would halt" if halts else "no end is known"


def is_left_out(node: PlannedNode) -> bool:
    """Return whether people keep the node out of the rollout."""
    return node.end_p50 is None and node.wait is not None and node.wait.code is WaitCode.SKIPPED


def first_start(starts: Iterable[float | None]) -> float:
    """Return when the first node starts; 0 where none does."""
    return min((start for start in starts if start is not None), default=0.0)


def brief(seconds: float) -> str:
    """Return a duration as precise as a plan is: from ten minutes on without seconds."""
    is_short = seconds < 10 * _MINUTE
    return format_duration(seconds if is_short else round(seconds / _MINUTE) * _MINUTE)
