"""A rollout beside its plan, from events."""

from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from libs.contracts.events import (
    Event,
    EventBody,
    EvictionEvent,
    GrantEvent,
    PlanEvent,
    PlannedTime,
    RolloutEvent,
    StepEvent,
    WaitEvent,
)
from libs.contracts.identities import Writer
from libs.contracts.queries import PlanLimits
from libs.contracts.waits import WaitCode
from libs.ctl.comparison import Comparison
from libs.ctl.output import view_lines
from libs.ctl.rollout_history import RolloutHistory
from libs.ctl.views.comparison import (
    comparison_page,
    comparison_timeline,
    comparison_view,
)
from libs.ctl.views.rollout_html import rollout_html
from libs.ctl.views.rollout_svg import rollout_svg
from tests.unit.ctl.test_plan_html import HOSTILE, Elements, rectangles

POOL, OLD, NEW = "gpus", "1" * 32, "2" * 32
NOW = 1_800_000_000.0


class Stream:
    """Events in their order, at seconds from NOW."""

    def __init__(self) -> None:
        self.history = RolloutHistory()

    def add(self, at: float, body: EventBody, node: str = "") -> None:
        event = Event.of(
            body, id=f"{at}", at=NOW + at, writer=Writer.SCHEDULER, message="", node=node
        )
        self.history.add(event, event.open())

    def plan(
        self,
        at: float,
        *nodes: PlannedTime,
        name: str = "p",
        took: float = 600.0,
        **more: Any,
    ) -> None:
        self.add(
            at,
            PlanEvent(
                pool=POOL,
                target=NEW,
                plan=name,
                nodes=nodes,
                makespan_p50=took,
                makespan_p95=took * 1.5,
                **more,
            ),
        )

    def grant(self, at: float, *nodes: str, target: str = NEW) -> None:
        self.add(at, GrantEvent(pool=POOL, target=target, epoch=1, nodes=nodes))

    def step(self, at: float, node: str, before: str, after: str, target: str = NEW) -> None:
        body = StepEvent(pool=POOL, token=1, before=before, after=after, target=target)
        self.add(at, body, node)

    def done(self, at: float, node: str, target: str = NEW) -> None:
        self.step(at, node, "uncordon-required", "upgrade-done", target)

    def evict(self, at: float, node: str, uid: str, answer: str) -> None:
        self.add(at, EvictionEvent(namespace="ns", pod=uid, pod_uid=uid, answer=answer), node)

    def wait(self, at: float, node: str, code: WaitCode | None) -> None:
        self.add(at, WaitEvent(pool=POOL, code=code), node)

    def complete(self, at: float, target: str = NEW) -> None:
        self.add(at, RolloutEvent(pool=POOL, target=target, before="Proven", after="Complete"))

    def compared(self, target: str = NEW, *, now: float = 100_000.0) -> Comparison:
        return self.history.comparison(POOL, target, now=NOW + now)


def planned(node: str, start: float, end: float | None) -> PlannedTime:
    return PlannedTime(node=node, start=start, end=end)


def rollout() -> Stream:
    """Two nodes, one after the other, a quarter slower than planned."""
    stream = Stream()
    nodes = planned("n-1", 20.0, 320.0), planned("n-2", 320.0, 620.0)
    stream.plan(-900.0, *nodes, took=620.0)
    stream.grant(0.0, "n-1")
    stream.step(10.0, "n-1", "upgrade-required", "pod-deletion-required")
    stream.done(350.0, "n-1")
    stream.grant(360.0, "n-2")
    stream.done(750.0, "n-2")
    stream.complete(751.0)
    return stream


def text(comparison: Comparison, width: int) -> str:
    return "\n".join(view_lines(comparison_view(comparison, width=width), width=width))


def test_the_error_is_a_share_of_what_was_planned() -> None:
    found = rollout().compared()
    assert (found.complete, found.began, found.planned_at) == (True, NOW, NOW - 900.0)
    assert (found.makespan, found.planned_makespan) == (750.0, 600.0)
    assert found.error == pytest.approx(0.25)
    first, second = found.nodes
    assert (first.planned_start, first.planned_end, first.start, first.end) == (0, 300, 0, 350)
    assert (second.planned_start, second.planned_end) == (300.0, 600.0)
    assert (second.start, second.end) == (360.0, 750.0)


def test_the_cost_is_the_time_without_nodes_and_the_pods_that_were_evicted() -> None:
    stream = rollout()
    stream.evict(900.0, "n-1", "late", "evicted")
    assert stream.compared().evicted == 0
    stream = Stream()
    stream.grant(0.0, "n-1", "n-2")
    for at, node, uid, answer in (
        (10.0, "n-1", "a", "evicted"),
        (11.0, "n-1", "a", "evicted"),
        (11.0, "n-1", "b", "blocked"),
        (12.0, "n-2", "c", "evicted"),
        (12.0, "n-3", "d", "evicted"),
    ):
        stream.evict(at, node, uid, answer)
    stream.done(100.0, "n-1")
    stream.done(200.0, "n-2")
    found = stream.compared()
    assert (found.evicted, found.node_seconds) == (2, 300.0)
    lines = text(found, 80).splitlines()
    assert "  unavailable: a node for 2 min 30 s from start to end (mean), 5 min added up" in lines
    assert "  pods evicted: 2" in lines


def test_where_jobs_and_people_were_waited_for_no_share_is_told() -> None:
    stream = Stream()
    stream.plan(-900.0, planned("n-1", 0.0, 300.0), planned("n-2", 300.0, 600.0))
    stream.wait(-500.0, "n-2", WaitCode.PAUSED)
    stream.grant(0.0, "n-1")
    stream.wait(10.0, "n-1", WaitCode.JOBS)
    stream.wait(60.0, "n-2", None)
    stream.wait(250.0, "n-1", WaitCode.DRIVER_START)
    stream.done(350.0, "n-1")
    stream.grant(360.0, "n-2")
    stream.wait(361.0, "n-2", WaitCode.PDB)
    stream.done(481.0, "n-2")
    stream.wait(482.0, "n-2", WaitCode.JOBS)
    stream.complete(483.0)
    stream.wait(900.0, "n-2", None)
    found = stream.compared()
    assert [node.waited for node in found.nodes] == [
        {"jobs": 240.0},
        {"paused": 60.0, "pdb": 120.0},
    ]
    lines = text(found, 200).splitlines()
    assert (
        "  unplanned: n-1 waited for jobs for 4 min; n-2 waited for a disruption budget for 2 min;"
        " n-2 was paused for 1 min"
    ) in lines
    assert "  error of the plan: not judged, because of what was unplanned" in lines
    assert found.error is None
    short = rollout()
    short.wait(100.0, "n-1", WaitCode.JOBS)
    assert "it took 25% longer than the planned 10 min" in text(short.compared(), 80)


def test_what_people_stop_is_unplanned_and_told_of_many_nodes_at_once() -> None:
    stream = Stream()
    names = ("n-1", "n-2", "n-3", "n-4", "n-5")
    stream.plan(-900.0, *(planned(name, 0.0, 300.0) for name in names))
    stream.grant(0.0, "n-1")
    for name in names[1:]:
        stream.wait(10.0, name, WaitCode.HALTED)
    stream.wait(10.0, "n-1", WaitCode.SKIPPED)
    for number, name in enumerate(names):
        stream.wait(70.0 + number, name, None)
    told = "unplanned: n-2, n-3, n-4 and 1 more waited for the end of a halt for up to 1 min 4 s;"
    shown = text(stream.compared(), 200)
    assert f"{told} n-1 was kept out by people for 1 min" in shown


def test_a_retry_is_unplanned_and_its_node_has_not_ended_before() -> None:
    stream = Stream()
    stream.plan(-900.0, planned("n-1", 0.0, 300.0))
    stream.grant(0.0, "n-1")
    stream.step(100.0, "n-1", "pod-restart-required", "upgrade-failed")
    stream.grant(110.0, "n-1")
    assert not stream.compared().complete
    stream.done(200.0, "n-1")
    found = stream.compared()
    (node,) = found.nodes
    assert (found.complete, found.error) == (True, None)
    assert (node.start, node.end, node.failed, node.retries) == (0.0, 200.0, False, 1)
    shown = text(found, 200)
    assert "  unplanned: n-1 failed and was tried again\n" in shown
    assert "error of the plan: not judged" in shown


def test_a_node_that_is_granted_again_without_a_failure_is_not_retried() -> None:
    stream = Stream()
    stream.grant(0.0, "n-1")
    stream.grant(10.0, "n-1")
    assert stream.compared().nodes[0].retries == 0


@pytest.mark.parametrize(
    ("took", "words"),
    [
        (600.0, "it took 25% longer than the planned 10 min"),
        (1000.0, "it took 25% less than the planned 17 min"),
        (75_000.0, "it took 99% less than the planned 20 h 50 min"),
        (1e6, "it took 99% less than the planned 11 d 13 h"),
        (752.0, "none: it took the planned 13 min"),
        (375.0, "it took 2.0 times as long as the planned 6 min 15 s"),
        (10.0, "it took 75.0 times as long as the planned 10 s"),
        (9.0, "not judged: 9 s is too short to judge by"),
        (0.0, "not judged: 0 s is too short to judge by"),
    ],
)
def test_the_error_is_a_number_that_people_can_use(took: float, words: str) -> None:
    stream = Stream()
    stream.plan(-900.0, planned("n-1", 5.0, 5.0 + took), took=5.0 + took)
    stream.grant(0.0, "n-1")
    stream.done(750.0, "n-1")
    stream.complete(751.0)
    assert f"  error of the plan: {words}" in text(stream.compared(), 120).splitlines()


def test_a_plan_without_an_end_is_not_judged() -> None:
    stream = Stream()
    body = PlanEvent(pool=POOL, target=NEW, plan="p", nodes=(planned("n-1", 0.0, None),))
    stream.add(-900.0, body)
    stream.grant(0.0, "n-1")
    stream.done(750.0, "n-1")
    shown = text(stream.compared(), 120)
    assert "was planned to take: no end\n" in shown
    assert "error of the plan: not judged: the plan had no end" in shown


def test_planned_nodes_that_did_not_start_are_counted() -> None:
    stream = Stream()
    stream.plan(-900.0, planned("n-1", 0.0, 300.0), planned("n-2", 0.0, 300.0))
    stream.grant(0.0, "n-1")
    stream.done(350.0, "n-1")
    stream.complete(351.0)
    assert "  upgraded: 1 of 2 nodes, 1 not started\n" in text(stream.compared(), 120)


def kept_out() -> Stream:
    """One of two nodes is leased while the rollout goes on, and returned after it."""
    stream = Stream()
    nodes = planned("n-1", 0.0, 300.0), planned("n-2", 0.0, 300.0)
    stream.plan(-900.0, *(replace(node, gpus=8) for node in nodes), took=300.0)
    stream.grant(0.0, "n-1")
    stream.wait(100.0, "n-2", WaitCode.SKIPPED)
    stream.done(350.0, "n-1")
    stream.complete(351.0)
    return stream


def test_a_node_that_is_returned_after_a_rollout_is_complete_belongs_to_it() -> None:
    stream = kept_out()
    shown = text(stream.compared(now=400.0), 160)
    assert "  upgraded: 1 of 2 nodes, 1 kept out by people\n" in shown
    assert "  unplanned: n-2 was kept out by people for 5 min so far\n" in shown
    stream.wait(460.0, "n-2", None)
    stream.grant(460.0, "n-2")
    going_on = stream.compared(now=500.0)
    assert going_on.gpu_hours is None
    shown = text(going_on, 160)
    assert "  upgraded: 1 of 2 nodes, 1 not ended yet\n" in shown
    assert "  followed: n-2: kept out before, from 2027-01-15 08:07:40 UTC on\n" in shown
    stream.evict(470.0, "n-2", "a", "evicted")
    stream.done(820.0, "n-2")
    stream.complete(821.0)
    found = stream.compared()
    shown = text(found, 160)
    assert "  upgraded: 2 of 2 nodes\n" in shown
    assert "  followed: n-2: kept out before, from 2027-01-15 08:07:40 to 08:13:40 UTC\n" in shown
    assert "  unplanned: n-2 was kept out by people for 6 min\n" in shown
    assert "error of the plan: not judged, because of what was unplanned" in shown
    assert (found.makespan, found.evicted, found.node_seconds) == (350.0, 1, 710.0)
    assert found.gpu_hours == pytest.approx(8 * 710 / 3600)


def test_a_node_that_was_kept_out_when_the_plan_was_made_disturbs_no_judgement() -> None:
    stream = Stream()
    stream.wait(-1000.0, "n-2", WaitCode.SKIPPED)
    stream.wait(-1000.0, "n-3", WaitCode.SKIPPED)
    stream.plan(-900.0, planned("n-1", 0.0, 300.0), took=300.0)
    stream.grant(0.0, "n-1")
    assert "1 not ended yet, 2 kept out by people" in text(stream.compared(now=50.0), 160)
    stream.done(300.0, "n-1")
    stream.complete(301.0)
    stream.wait(90_000.0, "n-2", None)
    stream.grant(90_000.0, "n-2")
    stream.done(90_300.0, "n-2")
    found = stream.compared()
    shown = text(found, 160)
    assert "  upgraded: 2 of 3 nodes, 1 kept out by people\n" in shown
    assert "n-2: kept out before, from 2027-01-16 09:00:00 to 09:05:00 UTC\n" in shown
    assert "error of the plan: none: it took the planned 5 min" in shown
    assert not any(words in shown for words in ("unplanned", "not in the plan"))
    page = rollout_html(comparison_page(found))
    assert "kept out</td>" in page
    assert comparison_timeline(found, most_rows=0).seconds == 300.0


def test_what_became_of_each_node_is_counted() -> None:
    stream = Stream()
    names = ("n-1", "n-2", "n-3", "n-4", "n-5", "n-6")
    stream.plan(-900.0, *(planned(name, 0.0, 300.0) for name in names[:5]))
    stream.grant(0.0, "n-1", "n-2", "n-3", "n-4", "n-6")
    for name in names[:2]:
        stream.done(350.0, name)
    stream.step(400.0, "n-3", "pod-restart-required", "upgrade-failed")
    shown = text(stream.compared(now=700.0), 120)
    assert "  upgraded: 2 of 6 nodes, 1 failed, 2 not ended yet, 1 not started yet\n" in shown
    assert "  has taken so far: 12 min\n" in shown
    assert "  not in the plan: n-6: not expected to start then\n" in shown


def test_a_wait_that_goes_on_is_among_the_unplanned_ones() -> None:
    stream = Stream()
    stream.plan(-900.0, planned("n-1", 0.0, 300.0), planned("n-2", 0.0, 300.0))
    stream.grant(0.0, "n-1")
    stream.wait(10.0, "n-1", WaitCode.JOBS)
    stream.wait(10.0, "n-2", WaitCode.HALTED)
    found = stream.compared(now=250.0)
    assert [(node.waited, node.waits_for) for node in found.nodes] == [
        ({"jobs": 240.0}, "jobs"),
        ({"halted": 240.0}, "halted"),
    ]
    told = "n-1 waited for jobs for 4 min so far; n-2 waited for the end of a halt for 4 min so far"
    assert f"  unplanned: {told}\n" in text(found, 120)
    assert stream.compared(now=5.0 + 5.5).nodes[0].waited == {}
    stream.grant(260.0, "n-3", target=OLD)
    assert not any(node.waited for node in stream.compared(now=300.0).nodes)


def test_lost_gpu_hours_are_beside_the_planned_ones() -> None:
    def compared(*gpus: int | None) -> Comparison:
        stream = Stream()
        names = ("n-1", "n-2", "n-3")
        nodes = [
            PlannedTime(node=name, start=0.0, end=900.0, gpus=number)
            for name, number in zip(names, gpus, strict=True)
        ]
        stream.plan(-900.0, *nodes, gpu_hours_lost=3.5)
        stream.grant(0.0, *names)
        stream.done(1800.0, "n-1")
        stream.step(1800.0, "n-2", "pod-restart-required", "upgrade-failed")
        assert stream.compared().gpu_hours is None, "it goes on"
        stream.done(3600.0, "n-3")
        return stream.compared()

    found = compared(8, 4, 0)
    assert found.gpu_hours == 8 * 0.5 + 4 * 1.0
    told = "  GPU-hours lost: 8.0, planned 3.5, without n-3: was not usable before\n"
    assert told in text(found, 120)
    assert "  GPU-hours lost: 12.0, planned 3.5\n" in text(compared(8, 4, 4), 120)
    leased = compared(8, None, 0)
    assert leased.gpu_hours is None
    assert "  GPU-hours lost: not known: the plan had no GPUs of n-2\n" in text(leased, 120)


def test_a_plan_by_the_limits_of_the_policy_is_preferred_and_limits_are_told() -> None:
    four, one = PlanLimits(max_unavailable="4"), PlanLimits(max_unavailable="1", max_parallel=2)
    stream = Stream()
    node = planned("n-1", 0.0, 300.0)
    stream.plan(-900.0, node, name="a", limits=four, policy_limits=four)
    stream.plan(-800.0, node, name="b", limits=one, policy_limits=four)
    other = rollout()
    other.grant(5_000.0, "n-1", target=OLD)
    other.plan(6_000.0, node, name="b", limits=one, policy_limits=four)
    for each, at in ((stream, 0.0), (other, 9_000.0)):
        each.grant(at, "n-1")
        each.done(at + 300.0, "n-1")
    found = stream.compared()
    assert found.planned_at == NOW - 900.0
    assert " UTC, with maxUnavailable 4\n" in text(found, 120)
    told = "with maxUnavailable 1, maxParallelUpgrades 2; the policy had maxUnavailable 4\n"
    assert told in text(other.compared(), 160)


def test_only_a_plan_from_before_the_rollout_counts_and_the_last_of_those() -> None:
    stream = Stream()
    stream.plan(-900.0, planned("n-1", 0.0, 10.0), name="first", took=10.0)
    stream.plan(-800.0, planned("n-1", 0.0, 300.0), name="second", took=300.0)
    stream.plan(-800.0, planned("n-2", 0.0, 300.0), name="second", took=300.0)
    stream.grant(0.0, "n-1", "n-2")
    stream.plan(50.0, planned("n-1", 0.0, 1.0), name="late", took=1.0)
    found = stream.compared()
    assert (found.planned_at, found.planned_makespan) == (NOW - 800.0, 300.0)
    assert [node.planned_end for node in found.nodes] == [300.0, 300.0]


def test_a_plan_with_nothing_to_do_is_none_of_the_nodes_that_came_later() -> None:
    stream = Stream()
    stream.plan(-900.0, planned("n-1", 0.0, 300.0), name="before", took=300.0)
    stream.plan(-60.0, name="empty", took=0.0)
    stream.grant(0.0, "n-1")
    assert stream.compared().planned_at == NOW - 900.0


def test_a_rollout_that_goes_on_has_no_error_yet() -> None:
    stream = Stream()
    stream.plan(-1.0, planned("n-1", 0.0, 300.0), planned("n-2", 300.0, None))
    stream.grant(0.0, "n-1")
    stream.done(350.0, "n-1")
    found = stream.compared(now=370.0)
    assert (found.complete, found.error, found.makespan) == (False, None, 370.0)
    shown = text(found, 80)
    assert "has taken so far: 6 min 10 s" in shown
    assert "? the end is not known" in shown


def test_nodes_that_failed_end_a_rollout_too() -> None:
    stream = Stream()
    stream.plan(-1.0, planned("n-1", 0.0, 300.0))
    stream.grant(0.0, "n-1")
    stream.step(1800.0, "n-1", "pod-restart-required", "upgrade-failed")
    found = stream.compared()
    assert found.complete
    assert found.nodes[0].failed
    assert "upgraded: 0 of 1 node, 1 failed" in text(found, 80)


def test_what_happens_after_a_rollout_or_to_other_targets_is_no_part_of_it() -> None:
    stream = rollout()
    stream.step(800.0, "n-1", "upgrade-required", "upgrade-done", target=OLD)
    stream.grant(90_000.0, "n-3")
    stream.done(90_500.0, "n-3")
    stream.done(90_500.0, "n-1")
    assert stream.compared() == rollout().compared()


def test_a_return_to_a_target_is_a_rollout_of_its_own() -> None:
    stream = rollout()
    stream.grant(5_000.0, "n-1", target=OLD)
    stream.grant(9_000.0, "n-1")
    found = stream.compared()
    assert (found.began, found.complete) == (NOW + 9_000.0, False)
    assert stream.history.targets(POOL) == [NEW, OLD]


def test_a_plan_from_before_the_last_rollout_is_not_that_of_a_return() -> None:
    stream = rollout()
    stream.grant(5_000.0, "n-1", target=OLD)
    stream.grant(9_000.0, "n-1")
    assert stream.compared().planned_at is None
    again = rollout()
    again.grant(5_000.0, "n-1", target=OLD)
    again.plan(6_000.0, planned("n-1", 0.0, 300.0), name="again")
    again.grant(9_000.0, "n-1")
    assert again.compared().planned_at == NOW + 6_000.0


def test_a_restart_after_which_nodes_are_validated_again_takes_no_plan_away() -> None:
    """The driver before is of a time of which there are no events."""
    stream = Stream()
    stream.plan(-900.0, planned("n-1", 0.0, 300.0))
    stream.grant(-500.0, "n-1", target=OLD)
    stream.step(-500.0, "n-1", "upgrade-done", "validation-required", target=OLD)
    stream.done(-490.0, "n-1", target=OLD)
    stream.grant(0.0, "n-1")
    assert stream.compared().planned_at == NOW - 900.0

    moved = Stream()
    moved.plan(-900.0, planned("n-1", 0.0, 300.0))
    moved.grant(-500.0, "n-1", target=OLD)
    moved.step(-490.0, "n-1", "pod-deletion-required", "pod-restart-required", target=OLD)
    moved.grant(0.0, "n-1")
    assert moved.compared().planned_at is None


def test_the_picture_has_a_line_for_the_plan_and_one_for_what_happened() -> None:
    lines = text(replace(rollout().compared(), version="580.1"), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "gpus to 580.1: plan and rollout"
    assert "  was planned to take: 10 min (p50), 15 min (p95)" in lines
    assert "  error of the plan: it took 25% longer than the planned 10 min" in lines
    first = next(number for number, line in enumerate(lines) if line.startswith("n-1"))
    plan, happened, second = lines[first : first + 3]
    assert plan.count("▒") < happened.count("█")
    assert plan.index("▒") == happened.index("█")
    assert second.startswith("n-2")
    assert "▒ planned (p50)  █ happened" in lines


def test_without_a_plan_what_happened_is_shown_alone() -> None:
    stream = Stream()
    stream.grant(0.0, "n-1")
    stream.done(60.0, "n-1")
    shown = text(stream.compared(), 80)
    assert "none was asked for before it began" in shown
    stream.complete(61.0)
    assert "GPU-hours lost: not known without a plan" in text(stream.compared(), 80)
    assert "n-1  █" in shown


def test_page_and_picture_have_both_and_stay_text() -> None:
    found = rollout().compared()
    svg = ElementTree.fromstring(rollout_svg(comparison_page(found)))
    assert len(rectangles(svg, "planned")) == len(rectangles(svg, "bar")) == 2
    assert (rectangles(svg, "planned")[0][1]) < rectangles(svg, "bar")[0][1]
    page = Elements(rollout_html(comparison_page(found)))
    assert "2 min 30 s" in page.text
    nodes = (replace(found.nodes[0], node=HOSTILE),)
    hostile = replace(found, pool=HOSTILE, version=HOSTILE, nodes=nodes)
    ElementTree.fromstring(rollout_svg(comparison_page(hostile)))
    for made in (rollout_svg(comparison_page(hostile)), rollout_html(comparison_page(hostile))):
        assert "script" not in Elements(made).tags
