"""Convert a plan to the message that answers a query."""

from libs.contracts.queries import PlanAnswer, PlannedNode, WaitReason
from libs.forecast.rollout_plan import NodeForecast, RolloutPlan
from libs.rollout.decision import Wait


def plan_response(plan: RolloutPlan) -> PlanAnswer:
    """Return the message; what it has no field for is in the remarks."""
    needed = plan.required_limits
    return PlanAnswer(
        pool=plan.pool,
        target=plan.target,
        nodes=tuple(_node(node) for node in plan.nodes),
        makespan_p50=plan.makespan.p50,
        makespan_p95=plan.makespan.p95,
        gpu_hours_lost=plan.gpu_hours_lost,
        largest_loss=plan.loss.nodes,
        largest_loss_at=plan.loss.at,
        needed_max_unavailable=None if needed is None else needed.max_unavailable,
        remarks=plan.remarks,
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
        blocked_by=node.blocked_by,
        wait=None if node.wait is None else _reason(node.wait),
    )


def _reason(wait: Wait) -> WaitReason:
    return WaitReason(
        code=wait.code, detail=wait.detail, since=wait.since, until=wait.until, who=wait.who
    )
