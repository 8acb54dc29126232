"""A plan as events, which `sluice plan --compare` sets beside what happened. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from libs.contracts.events import PlanEvent, PlannedTime
from libs.contracts.queries import PlanAnswer
from libs.rollout.plan_time import takes

NODES_PER_EVENT: Final = 40
"""So that no event is too large for the stream, however long the names are."""
MOST_NODES: Final = 1_000
"""Nodes of a plan that are kept, in the order of their starts."""


class PlanPart(NamedTuple):
    """One event of a plan."""

    event: PlanEvent
    id: str
    message: str


def plan_events(answer: PlanAnswer, plan: str, *, version: str = "") -> Iterator[PlanPart]:
    """Yield the events of a plan of this name: one at least. `version` is that of its driver."""
    moving = [
        PlannedTime(node=node.node, start=node.start_p50, end=node.end_p50, gpus=node.gpus)
        for node in answer.nodes
        if node.start_p50 is not None
    ][:MOST_NODES]
    wanted = version or answer.target
    message = f"{answer.pool}: a plan was asked for, to {wanted}: {takes(answer)}"
    for start in range(0, max(1, len(moving)), NODES_PER_EVENT):
        event = PlanEvent(
            pool=answer.pool,
            target=answer.target,
            plan=plan,
            nodes=tuple(moving[start : start + NODES_PER_EVENT]),
            makespan_p50=answer.makespan_p50,
            makespan_p95=answer.makespan_p95,
            gpu_hours_lost=answer.gpu_hours_lost,
            limits=answer.limits,
            policy_limits=answer.policy_limits,
        )
        yield PlanPart(event, f"{plan}/{start}", message)
