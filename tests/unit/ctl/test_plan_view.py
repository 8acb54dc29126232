"""A plan as text, at 160, 80 and 30 columns."""

from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import RenderableType

from libs.contracts.queries import (
    CapacityPoint,
    PlanAnswer,
    PlanLimits,
    PlannedNode,
    PlanStop,
    PlanStopKind,
    WaitReason,
)
from libs.contracts.waits import RESOLVED_BY, WaitCode
from libs.ctl.answers import PlannedFile, PlanView, PoolPlans
from libs.ctl.output import view_lines
from libs.ctl.views.bars import bar
from libs.ctl.views.plan import plan_page, plan_view, plans_view
from libs.ctl.views.rollout_svg import rollout_svg
from libs.ctl.views.timeline import Span, Step, Timeline, plan_timeline
from libs.rollout.plan_time import ASSUMED_JOB

NOW = 1_800_000_000.0


def text(view: RenderableType, width: int) -> str:
    return "\n".join(view_lines(view, width=width))


def planned(name: str, start: float, end: float, late: float, **more: object) -> PlannedNode:
    return PlannedNode(node=name, start_p50=start, end_p50=end, end_p95=late, **more)  # pyright: ignore[reportArgumentType]


def plan_svg(view: PlanView) -> str:
    return rollout_svg(plan_page(view))


PLAN = PlanView(
    version="580.95.05",
    finish_by=NOW + 3600,
    plan=PlanAnswer(
        pool="gpus",
        target="2" * 32,
        nodes=(
            planned("node-2", 600.0, 1200.0, 1500.0, blocked_by=("web/frontend",)),
            planned("node-1", 0.0, 600.0, 700.0, evicted=("a/b", "a/c"), lost=("a/c",)),
            PlannedNode(
                node="node-3", wait=WaitReason(code=WaitCode.SKIPPED, detail="cordoned", since=0.0)
            ),
        ),
        makespan_p50=1200.0,
        makespan_p95=1500.0,
        gpu_hours_lost=2.66,
        needed_max_unavailable=2,
        remarks=("One node is skipped.",),
    ),
)

PLAN_HEAD = """\
gpus to 580.95.05: 20 min (p50), 25 min (p95)
  upgraded: 2 of 3 nodes; GPU-hours lost: 2.7; pods evicted: 2; smallest limit
  to end by 2027-01-15 09:00:00 UTC: maxUnavailable 2"""


def test_a_plan_has_bars_in_order_and_what_stands_in_the_way() -> None:
    lines = text(plan_view(PLAN, width=80), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:3] == PLAN_HEAD.splitlines()
    first, second = lines[3:5]
    assert first.startswith("node-1  █")
    assert second.startswith("node-2   ")
    assert first.endswith(" 0 s to 10 min")
    assert second.index("█") == first.index("█") + first.count("█")
    assert lines[-4:] == [
        "  disruption budget web/frontend blocks: node-2",
        "  node-1 loses 1 pod: a/c",
        "  node-3 is left out: cordoned",
        "One node is skipped.",
    ]


def test_plans_of_several_pools_are_told_in_short_without_their_nodes() -> None:
    idle = view_of(remarks=("Every node is up to date already.",))
    other = replace(idle, plan=replace(idle.plan, pool="other"))
    held = "node-1 waits for a job."
    moving = replace(PLAN, plan=replace(PLAN.plan, remarks=(held, "So."), held=(held,)))
    lines = text(plans_view(PoolPlans(plans=(moving, other))), 80).splitlines()
    assert lines == [
        *PLAN_HEAD.splitlines(),
        "  disruption budget web/frontend blocks: node-2",
        "  node-1 loses 1 pod: a/c",
        "  node-3 is left out: cordoned",
        "  node-1 waits for a job.",
        "other to 1: nothing to do",
        "  Every node is up to date already.",
        "The time of gpus rests on assumed durations: `sluice plan POOL` has them, and",
        "its nodes.",
    ]
    measured = replace(moving, plan=replace(moving.plan, measured_nodes=1))
    shown = text(plans_view(PoolPlans(plans=(measured, other))), 80)
    assert shown.endswith("\n`sluice plan POOL` shows its nodes.")


def test_nodes_that_fail_or_have_no_end_are_not_among_the_upgraded_ones() -> None:
    def told(**changes: int) -> str:
        plan = replace(PLAN, plan=replace(PLAN.plan, **changes))
        return text(plan_view(plan, width=160), 160).splitlines()[1]

    assert "  upgraded: 1 of 3 nodes, 1 will probably fail; GPU" in told(upgraded=1, failing=1)
    assert "  upgraded: 1 of 3 nodes, 1 without a known end; GPU" in told(upgraded=1)
    assert "  upgraded: 2 of 3 nodes; GPU" in told(upgraded=2)
    assert "  upgraded: 2 of 3 nodes not done; GPU" in told(upgraded=2, pool_nodes=6)


def test_an_unknown_latest_end_is_said() -> None:
    plan = replace(PLAN, plan=replace(PLAN.plan, makespan_p95=None))
    assert ": 20 min (p50), not known (p95)\n" in text(plan_view(plan, width=80), 80)


def view_of(*nodes: PlannedNode, **changes: Any) -> PlanView:
    return PlanView(version="1", plan=PlanAnswer(pool="gpus", target="", nodes=nodes, **changes))


def stopped(name: str, code: WaitCode, detail: str, who: str = "") -> PlannedNode:
    wait = WaitReason(code=code, detail=detail, since=0.0, who=who)
    return PlannedNode(node=name, wait=wait)


@pytest.mark.parametrize(
    ("code", "who", "words"),
    [
        (WaitCode.JOBS, "the owner", "jobs: so; can be ended by the owner"),
        (WaitCode.BUDGET, "itself; the author", "so; can be ended by the author"),
        (WaitCode.PDB, "itself; if it lasts, me", "pdb: so; can be ended by me"),
        (WaitCode.PROOF, "itself", "so"),
        (WaitCode.HALTED, "", "so"),
        (
            WaitCode.HALTED,
            RESOLVED_BY[WaitCode.HALTED],
            "so; then `sluice upgrade release 1 gpus` accepts it, or another driver is set",
        ),
        (
            WaitCode.FAILED,
            RESOLVED_BY[WaitCode.FAILED],
            "so; `sluice upgrade retry n` tries again, or another driver is set",
        ),
    ],
)
def test_why_a_node_would_not_start_and_who_can_change_that_is_said(
    code: WaitCode, who: str, words: str
) -> None:
    lines = text(plan_view(view_of(stopped("n", code, "so", who)), width=200), 200).splitlines()
    assert lines == ["gpus to 1: nothing would start", f"  n would not start: {words}"]


def test_nodes_that_people_keep_out_are_named_apart_and_have_no_part_in_the_time() -> None:
    out = [stopped(name, WaitCode.SKIPPED, "jane has it") for name in ("n-2", "n-3")]
    lines = text(plan_view(view_of(*out), width=80), 80).splitlines()
    assert lines == ["gpus to 1: nothing to do", "  n-2, n-3 are left out: jane has it"]
    moving = view_of(planned("n-1", 10.0, 70.0, 80.0), *out, makespan_p50=70.0, makespan_p95=80.0)
    lines = text(plan_view(moving, width=80), 80).splitlines()
    assert lines[0] == "gpus to 1: 1 min (p50), 1 min 10 s (p95)"
    assert "  n-2, n-3 are left out: jane has it" in lines


def test_without_an_end_of_all_the_time_of_those_with_one_is_said() -> None:
    waiting = stopped("n-2", WaitCode.BUDGET, "so")
    skipped = stopped("n-4", WaitCode.SKIPPED, "so")
    view = view_of(planned("n-1", 2.0, 20.0, 30.0), waiting, skipped)
    shown = text(plan_view(view, width=80), 80)
    assert shown.startswith("gpus to 1: 18 s (p50) for 1 node, no end for 1 node\n")
    endless = PlannedNode(node="n-1", start_p50=0.0)
    alone = text(plan_view(view_of(endless), width=80), 80)
    assert alone.startswith("gpus to 1: no end is known\n")
    halted = stopped("n-2", WaitCode.HALTED, "so")
    halting = text(plan_view(view_of(endless, halted), width=80), 80)
    assert halting.startswith("gpus to 1: would halt\n")


def test_the_first_start_is_told_and_the_rollout_takes_from_it_on() -> None:
    node = planned("n-1", 7200.0, 9000.0, 9600.0)
    view = view_of(node, makespan_p50=9000.0, makespan_p95=9600.0, upgraded=1)
    lines = text(plan_view(view, width=80), 80).splitlines()
    assert lines[0] == "gpus to 1: 30 min (p50), 40 min (p95)"
    assert "  upgraded: 1 of 1 node; first start: in 2 h; GPU-hours lost: 0" in lines


def test_a_stopped_rollout_has_no_end_and_what_ends_the_stop_is_told() -> None:
    def shown(*stops: PlanStop) -> list[str]:
        node = planned("n-1", 20.0, 60.0, 80.0)
        view = view_of(node, makespan_p50=60.0, makespan_p95=80.0, stops=stops)
        return text(plan_view(view, width=160), 160).splitlines()

    paused = PlanStop(kind=PlanStopKind.PAUSED, because="by jane: so")
    halted = PlanStop(kind=PlanStopKind.HALTED, because="by Sluice, as so", failures=2)
    lines = shown(paused)
    assert lines[0] == "gpus to 1: paused: no end until a resume, then 40 s (p50), 1 min (p95)"
    assert "first start: 20 s later;" in lines[1]
    assert lines[2] == "  paused by jane: so; `sluice upgrade resume gpus` ends it"
    assert "┬resume " in lines[4]
    lines = shown(halted, paused)
    assert lines[0].startswith("gpus to 1: halted and paused: no end until a release and a resume,")
    release = "`sluice upgrade release 1 gpus --failures 2` ends it"
    assert lines[2] == f"  halted by Sluice, as so; {release}"
    assert "┬then " in lines[5]
    lines = shown(PlanStop(kind=PlanStopKind.AUTO_UPGRADE_OFF))
    assert lines[2].startswith("  autoUpgrade is off: a node keeps its driver until its driver pod")
    lines = shown(PlanStop(kind=PlanStopKind.AUTO_UPGRADE_OFF, because="set by jane"))
    assert lines[2].startswith("  autoUpgrade is off: set by jane; a node keeps its driver until")
    assert lines[0].startswith("gpus to 1: autoUpgrade is off: no end until autoUpgrade is on, the")
    lines = shown(PlanStop(kind=PlanStopKind("newer")))
    assert lines[0].startswith("gpus to 1: newer: no end until that ends, then 40 s (p50)")


def test_without_its_policy_nothing_starts_even_if_there_is_nothing_to_do() -> None:
    gone = view_of(stops=(PlanStop(kind=PlanStopKind.POLICY_DELETED),))
    node = stopped("n", WaitCode.POLICY_GONE, "the policy was deleted", "the author")
    for view in (gone, replace(gone, plan=replace(gone.plan, nodes=(node,)))):
        (line,) = text(plan_view(view, width=160), 160).splitlines()
        told = "nothing starts, as the policy was deleted; nodes keep the driver that they have"
        assert line == f"gpus to 1: {told}"


@pytest.mark.parametrize(
    ("lost", "words"),
    [(0.0, "0"), (0.123, "0.12, busy or idle"), (2.66, "2.7, busy or idle")],
)
def test_lost_gpu_hours_are_those_of_idle_gpus_too(lost: float, words: str) -> None:
    view = view_of(planned("n-1", 0.0, 60.0, 60.0), gpu_hours_lost=lost)
    shown = text(plan_view(view, width=80, wide=True), 80)
    assert shown.splitlines()[1].endswith(f"GPU-hours lost: {words}")
    assert "busy or idle" not in text(plan_view(view, width=80), 80)


def test_lost_gpu_hours_say_that_they_rest_on_an_assumed_job() -> None:
    held = (f"n-1 will wait for the job a/b, {ASSUMED_JOB} 30 min (p50), 2 h (p95): its owner",)
    view = view_of(planned("n-1", 0.0, 60.0, 60.0), gpu_hours_lost=2.66, held=held, remarks=held)
    told = "GPU-hours lost: 2.7, if jobs end as assumed"
    assert told in text(plan_view(view, width=160), 160)
    budget = ("n-1 waits for a disruption budget",)
    view = view_of(planned("n-1", 0.0, 60.0, 60.0), gpu_hours_lost=2.66, held=budget)
    assert "as assumed" not in text(plan_view(view, width=160), 160)


@pytest.mark.parametrize(
    ("gpus", "lost", "words"),
    [
        (0, 0.0, "0 from now on"),
        (16, 0.0, "0 from now on"),
        (16, 2.66, "2.7 from now on"),
    ],
)
def test_lost_gpu_hours_are_beside_what_is_down_already(gpus: int, lost: float, words: str) -> None:
    down = CapacityPoint(at=0.0, nodes=2, gpus=gpus)
    node = planned("n-1", 0.0, 60.0, 60.0)
    view = view_of(node, gpu_hours_lost=lost, down=down, pool_nodes=4, pool_gpus=2 * gpus)
    assert f"GPU-hours lost: {words}" in text(plan_view(view, width=160), 160)


@pytest.mark.parametrize(
    ("p50", "p95", "words"),
    [
        (59.0, 90.0, ""),
        (60.0, 89.0, "  ends: 08:01 UTC; up"),
        (600.0, 1470.0, "  ends: 08:10-08:25 UTC; up"),
        (600.0, None, "  ends: 08:10 UTC (p50); up"),
        (50_000.0, 60_000.0, "  ends: today 21:53 to tomorrow 00:40 UTC; up"),
        (60_000.0, 70_000.0, "  ends: 00:40-03:27 UTC tomorrow; up"),
        (60_000.0, None, "  ends: 00:40 UTC tomorrow (p50); up"),
        (50_000.0, 400_000.0, "  ends: today 21:53 to 2027-01-19 23:07 UTC; up"),
    ],
)
def test_an_end_that_is_not_near_has_a_time_of_day(
    p50: float, p95: float | None, words: str
) -> None:
    node = planned("n-1", 0.0, p50, p95 or p50)
    view = replace(view_of(node, makespan_p50=p50, makespan_p95=p95), at=NOW)
    line = text(plan_view(view, width=160), 160).splitlines()[1]
    assert line.startswith(words or "  upgraded")
    stopped = replace(view.plan, stops=(PlanStop(kind=PlanStopKind.PAUSED),))
    assert "ends: " not in text(plan_view(replace(view, plan=stopped), width=160), 160)


def test_limits_that_were_asked_for_are_told_beside_the_policys() -> None:
    def told(unavailable: str, parallel: int = 0, *, given: bool = True) -> str:
        view = view_of(
            planned("n-1", 0.0, 60.0, 60.0),
            limits=PlanLimits(max_unavailable=unavailable, max_parallel=parallel),
            policy_limits=PlanLimits(max_unavailable="4"),
        )
        return text(plan_view(replace(view, limits_given=given), width=160), 160).splitlines()[1]

    assert told("3").endswith("; limits: maxUnavailable 3 (now 4)")
    assert told("4").endswith("; limits: maxUnavailable 4 (as now)")
    parallel = "maxUnavailable 4 (as now), maxParallelUpgrades 2 (now unlimited)"
    assert told("4", 2).endswith(f"; limits: {parallel}")
    assert "limits" not in told("4", given=False)


def test_with_nothing_to_do_no_limit_is_looked_for() -> None:
    out = stopped("n-1", WaitCode.SKIPPED, "so")
    for nodes in ((), (out,)):
        view = replace(view_of(*nodes), finish_by=NOW)
        assert "smallest limit" not in text(plan_view(view, width=80), 80)


def test_evicted_pods_are_named_with_o_wide() -> None:
    assert "node-1 evicts 2 pods: a/b, a/c" in text(plan_view(PLAN, width=80, wide=True), 80)
    assert "evicts" not in text(plan_view(PLAN, width=80), 80)


def test_how_long_nodes_are_unavailable_is_told_with_the_pull_of_the_image() -> None:
    def told(pulling: float, *, wide: bool = False) -> str:
        view = view_of(
            planned("n-1", 0.0, 60.0, 60.0),
            drained_seconds=222.0,
            pulling_seconds=pulling,
            largest_loss=1,
            pool_nodes=4,
        )
        return text(plan_view(view, width=200, wide=wide), 200)

    each = "not usable: at worst 1 of 4 nodes, a node for 3 min 42 s (median"
    assert f"{each}, 1 min 40 s of it for the image); GPU" in told(100.0)
    assert f"{each}); GPU" in told(20.0)
    assert f"{each}, 20 s of it for the image); GPU" in told(20.0, wide=True)
    assert f"{each}); GPU" in told(0.4, wide=True)


@pytest.mark.parametrize(
    ("most", "words"),
    [(4, "at worst 4 of 6 nodes (4 already)"), (5, "at worst 5 of 6 nodes (4 already)")],
)
def test_nodes_that_are_unavailable_already_are_told_apart_from_further_ones(
    most: int, words: str
) -> None:
    view = view_of(
        planned("n-1", 0.0, 60.0, 60.0),
        drained_seconds=94.0,
        largest_loss=most,
        pool_nodes=6,
        down=CapacityPoint(at=0.0, nodes=4, gpus=32),
    )
    shown = text(plan_view(view, width=200), 200)
    assert f"not usable: {words}, a further node for 1 min 34 s (median); GPU" in shown


def test_where_no_node_is_usable_yet_none_is_a_further_one() -> None:
    view = view_of(
        planned("n-1", 0.0, 60.0, 60.0),
        drained_seconds=94.0,
        largest_loss=1,
        pool_nodes=1,
        down=CapacityPoint(at=0.0, nodes=1, gpus=8),
    )
    shown = text(plan_view(view, width=200), 200)
    assert "not usable: at worst 1 of 1 node (1 already); GPU" in shown


def test_nothing_to_do_is_said_without_figures() -> None:
    plan = PlanAnswer(pool="gpus", target="", remarks=("Every node is up to date already.",))
    assert text(plan_view(PlanView(version="1", plan=plan), width=80), 80).splitlines() == [
        "gpus to 1: nothing to do",
        "Every node is up to date already.",
    ]


def test_a_narrow_plan_has_its_bars_below_the_names() -> None:
    lines = text(plan_view(PLAN, width=30), 30).splitlines()
    assert max(map(len, lines)) <= 30
    start = lines.index("node-1")
    assert lines[start + 1] == "  0 s to 10 min"
    assert lines[start + 2] == "  " + "█" * 11 + "░" * 2
    assert lines[start + 5] == "  " + " " * 11 + "█" * 11 + "░" * 6
    assert "█ p50  ░ p95" in lines


def test_a_bar_is_never_empty_and_never_too_long() -> None:
    assert bar(Span(1000.0, 1000.0, 1000.0), seconds=1000.0, cells=10) == " " * 9 + "█"
    assert bar(Span(0.0, 1.0, 5000.0), seconds=1000.0, cells=10) == "█" + "░" * 9
    assert bar(Span(500.0, 500.0, 500.0, is_open=True), seconds=1000.0, cells=10) == (
        " " * 5 + "█?"
    )


CAPACITY = (
    CapacityPoint(at=0.0, nodes=1, gpus=8),
    CapacityPoint(at=600.0, nodes=2, gpus=16),
    CapacityPoint(at=1200.0, nodes=0, gpus=0),
)


def with_capacity() -> PlanView:
    plan = replace(PLAN.plan, pool_nodes=4, pool_gpus=32, capacity=CAPACITY, largest_loss=2)
    return replace(PLAN, plan=plan)


def test_the_capacity_is_a_curve_on_the_scale_of_the_bars() -> None:
    lines = text(plan_view(with_capacity(), width=80), 80).splitlines()
    first = next(line for line in lines if line.startswith("node-1"))
    left = first.index("█")
    scale = next(line for line in lines if "┬" in line)
    assert scale.index("┬") == left
    assert [name.split()[0] for name in scale.split("┬")[1:]] == ["now", "10", "20"]
    assert scale.endswith("─       █ p50  ░ p95")
    top, bottom = lines[lines.index(scale) + 1 :][:2]
    assert top.startswith("32 GPUs  ▄")
    assert bottom.startswith(" 0 GPUs  █")
    assert top.endswith("  GPUs, median run:")
    assert bottom.endswith("  at least 16 of 32")
    assert max(map(len, lines)) <= 80
    curve = top[left:].split("  GPUs,")[0]
    cells = len(curve)
    assert curve.strip()[-1] == "█"  # all is available at the end
    middle = curve[round(0.45 * cells)]
    assert middle == " "  # half is missing, which is in the lowest lines alone
    assert "not usable: at worst 2 of 4 nodes" in lines[1]


def test_bars_are_of_the_run_that_the_curve_is_of() -> None:
    """The median of a node alone may be before or after: two nodes would overlap that never do."""
    nodes = (
        planned("node-1", 0.0, 700.0, 900.0, run_start=0.0, run_end=600.0),
        planned("node-2", 500.0, 1200.0, 1500.0, run_start=610.0, run_end=1250.0),
    )
    one = replace(PLAN, plan=replace(with_capacity().plan, nodes=nodes))
    timeline = plan_timeline(one.plan, most_rows=0)
    spans = [row.plan for row in timeline.rows]
    assert spans == [Span(0.0, 600.0, 900.0), Span(610.0, 1250.0, 1500.0)]
    drawn = text(plan_view(one, width=80), 80)
    assert "█ median run  ░ p95" in drawn
    assert "in the median run" in plan_svg(one)


def test_a_short_rise_between_two_nodes_is_no_needle() -> None:
    def curve(*steps: tuple[float, int]) -> list[int]:
        found = Timeline(
            rows=(), seconds=100.0, total=8, curve=tuple(Step(*step) for step in steps)
        )
        return found.least(10)

    one_by_one = curve((10.0, 4), (49.0, 8), (61.0, 4), (90.0, 8))
    assert one_by_one == [8, 4, 4, 4, 4, 4, 4, 4, 4, 8]
    assert curve((10.0, 4), (40.0, 8), (70.0, 4), (90.0, 8)) == [8, 4, 4, 4, 8, 8, 8, 4, 4, 8]
    assert curve((31.0, 2), (33.0, 8))[3] == 2, "a loss is never left out"


def test_many_nodes_share_rows_unless_each_is_asked_for() -> None:
    nodes = tuple(planned(f"n-{n:03}", n * 10.0, n * 10.0 + 60, n * 10.0 + 90) for n in range(100))
    many = PlanView(version="1", plan=PlanAnswer(pool="gpus", target="", nodes=nodes))
    lines = text(plan_view(many, width=80), 80).splitlines()
    assert lines[2].startswith("n-000 and 2 more  █")
    assert "up to 3 nodes in a row; -o wide has a row for each" in lines
    wide = text(plan_view(many, width=160, wide=True), 160)
    assert wide.count("\nn-") == 100
    assert max(map(len, wide.splitlines())) <= 160


def test_names_of_nodes_and_budgets_harm_no_terminal() -> None:
    hostile = "n\x1b[2J\u202e"
    node = planned(hostile, 0.0, 60.0, 60.0, blocked_by=(hostile,), lost=(hostile,))
    plan = PlanAnswer(pool=hostile, target="", nodes=(node,), remarks=(hostile,))
    for width in (30, 80):
        shown = text(plan_view(PlanView(version=hostile, plan=plan), width=width), width)
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_a_scale_has_no_more_marks_than_fit() -> None:
    timeline = plan_timeline(PLAN.plan, most_rows=40)
    assert timeline.seconds == 1500.0
    assert timeline.marks(5) == (0.0, 300.0, 600.0, 900.0, 1200.0, 1500.0)
    assert timeline.marks(1) == (0.0,)


def test_pods_that_fit_nowhere_else_are_named_and_of_many_nodes_counted() -> None:
    nodes = tuple(
        planned(f"n-{number:02}", 0.0, 60.0, 90.0, without_place=("ml/a (4 nvidia.com/gpu: full)",))
        for number in range(12)
    )
    view = PlanView(version="1", plan=PlanAnswer(pool="gpus", target="", nodes=nodes))
    shown = text(plan_view(view, width=160), 160)
    first = "n-00 displaces 1 pod that fit on no other node now: ml/a (4 nvidia.com/gpu: full)"
    assert first in shown
    assert "2 more pods that fit on no other node now: on 2 more nodes" in shown
    assert shown.count("displaces") == 10
    assert text(plan_view(view, width=160, wide=True), 160).count("displaces") == 12


def test_a_plan_of_twelve_nodes_fits_on_a_screen() -> None:
    """24 lines of 80, of which the shell needs the last one."""
    nodes = tuple(
        planned(f"gpu-node-{n:02}", n * 90.0, n * 90.0 + 300, n * 90.0 + 500, evicted=(f"ml/{n}",))
        for n in range(12)
    )
    basis = (
        "Durations (p50-p95, 99 simulated runs) as 12 nodes took last: driver restart 2-4 min,"
        " validation 45 s-2 min, image pull 20 s-2 min, pods leave 2-20 s; assumed: job 2 h-1 d,"
        " budget's refusal 3-20 min, and how often things fail."
    )
    plan = PlanAnswer(
        pool="clusterpolicy-cluster-policy",
        target="2" * 32,
        nodes=nodes,
        makespan_p50=1290.0,
        makespan_p95=1490.0,
        gpu_hours_lost=6.5,
        drained_seconds=222.0,
        pulling_seconds=20.0,
        largest_loss=3,
        pool_nodes=12,
        pool_gpus=96,
        capacity=CAPACITY,
        remarks=(
            "Others start once 1 node has proven the driver: 4 min (p50), 7 min (p95).",
            "In 4 of 99 simulated runs failures halt the rollout; times are of the other 95.",
            basis,
        ),
    )
    shown = text(plan_view(PlanView(version="590.48.01", plan=plan, at=NOW), width=80), 80)
    assert len(shown.splitlines()) == 23


FILE = PlannedFile(
    file="policy.yaml",
    policy="ClusterPolicy cluster-policy",
    version="580.95.05",
    max_unavailable="25%",
    max_parallel=0,
    changes_nothing=False,
    nodes=("node-1", "node-2"),
)


def shown_file(wide: bool = False, **changes: object) -> str:
    limits, now = PlanLimits(max_unavailable="25%"), PlanLimits(max_unavailable="4")
    plan = replace(PLAN.plan, limits=limits, policy_limits=now)
    view = replace(PLAN, plan=plan, file=replace(FILE, **changes))  # pyright: ignore[reportArgumentType]
    return text(plan_view(view, width=200, wide=wide), 200)


def test_a_file_is_named_with_its_limits_and_the_nodes_that_it_selects() -> None:
    shown = shown_file()
    assert shown.startswith("gpus to 580.95.05, with policy.yaml: 20 min (p50), 25 min (p95)\n")
    assert "limits: maxUnavailable 25% (now 4)" in shown
    selected = "ClusterPolicy cluster-policy selects 2 nodes: node-1, node-2\n"
    assert f"  policy.yaml: {selected}" in shown
    assert "not in this plan" not in shown
    assert "left out of the file" not in shown
    unchanged = "cluster-policy is in the cluster as it is here, and selects 2 nodes"
    assert unchanged in shown_file(changes_nothing=True)
    many = tuple(f"n-{number}" for number in range(5))
    assert "selects 5 nodes: n-0, n-1, n-2 and 2 more\n" in shown_file(nodes=many)
    assert "selects 5 nodes: n-0, n-1, n-2, n-3, n-4\n" in shown_file(wide=True, nodes=many)
    assert "selects 0 nodes\n" in shown_file(nodes=())


def test_what_of_a_file_is_not_in_the_plan_is_named_or_counted() -> None:
    shown = shown_file(joining=("n-1",), leaving=("n-2", "n-3"), not_planned=("spec.a 1 (now 2)",))
    for told in ("n-1 joins the pool", "n-2, n-3 leave the pool", "spec.a 1 (now 2)"):
        assert f"  not in this plan: {told}\n" in shown
    fields = tuple(f"spec.f{number}" for number in range(12))
    few = shown_file(not_planned=fields)
    assert "  not in this plan: 2 more, which -o wide names\n" in few
    assert few.count("not in this plan: spec.f") == 10
    assert "spec.f11" in shown_file(wide=True, not_planned=fields)
    driver = shown_file(driver_changes=("spec.driver.env", "spec.driver.args"))
    changes = "spec.driver.env; spec.driver.args"
    assert f"  the driver changes: {changes}\n" in driver
    assert "  left out of the file: ConfigMap mig\n" in shown_file(left_out=("ConfigMap mig",))
