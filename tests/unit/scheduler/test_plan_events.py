"""A plan among the events: in parts that the stream takes, and not without end."""

import io

from rich.console import Console

from libs.contracts.events import Event
from libs.contracts.identities import Writer
from libs.contracts.message import encode
from libs.contracts.queries import PlanAnswer, PlanLimits, PlannedNode, WaitReason
from libs.contracts.subjects import EVENTS
from libs.contracts.waits import WaitCode
from libs.ctl.answers import PlanView
from libs.ctl.views.plan import plan_view
from services.scheduler.plan_events import MOST_NODES, NODES_PER_EVENT, plan_events

LONGEST_NAME = 253


def answer(count: int) -> PlanAnswer:
    nodes = tuple(
        PlannedNode(node=f"{number:0{LONGEST_NAME}}", start_p50=1 / 3, end_p50=1000 / 3)
        for number in range(count)
    )
    return PlanAnswer(pool="p" * 63, target="2" * 32, nodes=nodes, makespan_p50=100 / 3)


def test_each_part_fits_into_the_stream() -> None:
    parts = list(plan_events(answer(2 * NODES_PER_EVENT + 5), "plan/x/1"))
    assert [len(part.event.nodes) for part in parts] == [NODES_PER_EVENT, NODES_PER_EVENT, 5]
    assert len({part.id for part in parts}) == 3
    for part in parts:
        event = Event.of(
            part.event, id=part.id, at=1.8e9, writer=Writer.SCHEDULER, message=part.message
        )
        assert EVENTS.max_message is not None
        assert len(encode(event)) <= EVENTS.max_message


def test_a_large_plan_keeps_the_nodes_that_start_first() -> None:
    parts = list(plan_events(answer(MOST_NODES + 500), "plan/x/1"))
    kept = [node.node for part in parts for node in part.event.nodes]
    assert kept == [node.node for node in answer(MOST_NODES).nodes]


def test_a_plan_without_nodes_is_kept_too() -> None:
    nothing = PlanAnswer(pool="p", target="t", nodes=(PlannedNode(node="n"),))
    (part,) = plan_events(nothing, "plan/x/1", version="580.1")
    assert (part.event.nodes, part.message) == (
        (),
        "p: a plan was asked for, to 580.1: nothing would start",
    )


def test_an_event_keeps_what_a_rollout_is_judged_by() -> None:
    limits, policy = PlanLimits(max_unavailable="1"), PlanLimits(max_unavailable="4")
    plan = PlanAnswer(
        pool="p",
        target="t",
        nodes=(PlannedNode(node="n", start_p50=0.0, gpus=8),),
        gpu_hours_lost=1.5,
        limits=limits,
        policy_limits=policy,
    )
    ((event, _, _),) = plan_events(plan, "plan/x/1")
    assert (event.limits, event.policy_limits, event.gpu_hours_lost) == (limits, policy, 1.5)
    assert [node.gpus for node in event.nodes] == [8]


def test_how_long_a_plan_takes_is_told_in_words() -> None:
    node = PlannedNode(node="n", start_p50=60.0, end_p50=7895.0)
    plan = PlanAnswer(pool="p", target="t", nodes=(node,), makespan_p50=7895.0, makespan_p95=9060.0)
    (part,) = plan_events(plan, "plan/x/1", version="580.1")
    took = "2 h 11 min (p50), 2 h 30 min (p95)"
    assert part.message == f"p: a plan was asked for, to 580.1: {took}"


def test_an_event_says_what_the_plan_itself_says() -> None:
    wait = WaitReason(code=WaitCode.SKIPPED, detail="jane has it", since=0.0)
    left_out = PlanAnswer(pool="p", target="t", nodes=(PlannedNode(node="n", wait=wait),))
    (part,) = plan_events(left_out, "plan/x/1", version="580.1")
    shown = io.StringIO()
    Console(file=shown, width=80).print(
        plan_view(PlanView(version="580.1", plan=left_out), width=80)
    )
    assert shown.getvalue().splitlines()[0].strip() == "p to 580.1: nothing to do"
    assert part.message == "p: a plan was asked for, to 580.1: nothing to do"
