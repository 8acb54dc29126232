import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gate
from libs.contracts.gpus import GpuIdentity
from libs.contracts.node import LeaseOwner, NodeRecord, UpgradeState
from libs.contracts.queries import CapacityPoint, PlanStopKind
from libs.contracts.reports import Finding, Preflight
from libs.contracts.rollout import Brake, RolloutSpec, TargetRecord
from libs.contracts.waits import WaitCode
from libs.forecast.options import PlanOptions
from libs.forecast.plan import plan
from libs.forecast.world import NEVER, ProcessEnd
from libs.rollout.plan_time import PlanTime
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.machine import FailedGpu, GpuVerdict, PreflightQuery
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.testing.not_none import not_none
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.forecast.builders import (
    GRANTED,
    IDLE_LIFE,
    WorldOf,
    answer_for,
    awaiting_jobs,
    cordoned_node,
    end_of,
    fixed_worlds,
    forecast_for,
    gpu_pod,
    idle_nodes,
    makespan_of,
    old_node,
    planned_node,
    pool_with_limits,
    remark_with,
    varied_worlds,
    waiting_nodes,
)
from tests.unit.rollout.builders import (
    BOOT,
    NEW,
    NOW,
    POOL,
    VARIANT,
    build,
    done,
    driver_pod,
    failed,
    fleet,
    granted,
    in_flight_node,
    instant,
    label_of,
    lease,
    with_status,
    without_driver,
)
from tests.unit.rollout.builders import (
    node as new_node,
)


def test_a_plan_of_one_play_has_its_order_starts_and_ends() -> None:
    nodes = (old_node("node-1", gpu_pod("a")), old_node("node-2"))
    planned = answer_for(pool_with_limits(parallel=1), nodes)
    assert [node.node for node in planned.nodes] == ["node-2", "node-1"]
    first, second = planned.nodes
    assert first.start_p50 == first.start_p95 == pytest.approx(0.06, abs=0.1)
    assert first.end_p50 == pytest.approx(0.06 + IDLE_LIFE, abs=0.1)
    assert second.start_p50 == pytest.approx(0.06 + IDLE_LIFE + GRANTED, abs=0.2)
    assert makespan_of(planned) == end_of(second)
    assert max((point.nodes, point.gpus) for point in planned.capacity) == (1, 8)
    assert planned.largest_loss == 1
    assert planned.gpu_hours_lost == pytest.approx(8 * (2 * IDLE_LIFE + 1.02) / 3600, rel=0.01)


def test_p50_is_before_p95_in_several_plays() -> None:
    planned = answer_for(pool_with_limits(parallel=2), idle_nodes(6), varied_worlds(), plays=9)
    assert len(planned.nodes) == 6
    for node in planned.nodes:
        for p50, p95 in ((node.start_p50, node.start_p95), end_of(node)):
            assert not_none(p50) <= not_none(p95)
    assert not_none(planned.makespan_p50) < not_none(planned.makespan_p95)
    remark_with(planned, "9 simulated runs", "a node's p95 is the worst")


def every_third(*overrides: WorldOverride) -> WorldOf:
    """Return worlds of which every third has these overrides."""
    return lambda seed: SteadyWorld(overrides=overrides if seed % 3 == 2 else ())


def test_nodes_with_equal_medians_are_ordered_by_p95() -> None:
    nodes = (*idle_nodes(2), old_node("node-3", gpu_pod("a")), old_node("node-4"))
    late = every_third(WorldOverride(node="node-1", load=ProcessEnd(100.0)))
    planned = answer_for(pool_with_limits(parallel=2), nodes, late, plays=3)
    third, fourth = planned_node(planned, "node-3"), planned_node(planned, "node-4")
    assert third.start_p50 == fourth.start_p50 == fourth.start_p95
    late_start = (fourth.start_p95 or 0.0) + IDLE_LIFE + GRANTED
    assert third.start_p95 == pytest.approx(late_start, abs=0.1)
    assert [node.node for node in planned.nodes] == ["node-1", "node-2", "node-4", "node-3"]


def test_equal_seeds_give_equal_plans() -> None:
    first, second, different = (
        answer_for(pool_with_limits(parallel=2), idle_nodes(4), varied_worlds(), plays=2, seed=seed)
        for seed in (5, 5, 50)
    )
    assert first == second
    assert makespan_of(first) != makespan_of(different)


def test_bars_and_curve_are_of_one_play() -> None:
    pool = pool_with_limits(parallel=2)
    answer = answer_for(pool, idle_nodes(5), varied_worlds(), plays=9)
    assert max(node.run_end or 0.0 for node in answer.nodes) == answer.makespan_p50
    times = [(node.run_start, node.run_end) for node in answer.nodes]
    assert len(answer.capacity) > 5
    for point in answer.capacity:
        moving = [
            1 for start, end in times if start is not None and end and start <= point.at < end
        ]
        assert point.nodes <= len(moving), point
    away = max(point.nodes for point in answer.capacity)
    assert away == 2


def test_the_order_of_nodes_and_pools_does_not_change_the_plan() -> None:
    nodes = [old_node(f"node-{number}", gpu_pod(f"w{number}")) for number in range(5)]
    pool = pool_with_limits(parallel=2)
    other = replace(pool, key="other")
    plans = [
        plan(
            Fleet(pools=pools, nodes={node.name: node for node in order}),
            instant(),
            pool=POOL,
            world_of=varied_worlds(),
            plays=2,
        )
        for order in (nodes, nodes[::-1], [*nodes[2:], *nodes[:2]])
        for pools in ({POOL: pool, "other": other}, {"other": other, POOL: pool})
    ]
    assert all(planned == plans[0] for planned in plans)


def test_nodes_in_place_are_not_in_the_plan() -> None:
    planned = answer_for(pool_with_limits(), [done("node-1"), old_node("node-2")])
    assert [node.node for node in planned.nodes] == ["node-2"]
    empty = answer_for(pool_with_limits(), [done("node-1")])
    assert not empty.nodes
    assert makespan_of(empty) == PlanTime(0.0, 0.0)
    remark_with(empty, "Every node is up to date already.")


def test_the_number_of_plays_depends_on_the_size() -> None:
    assert forecast_for(pool_with_limits(), idle_nodes(1), plays=None).plays == 99
    with pytest.raises(ValueError, match="cannot forecast with 0 plays"):
        answer_for(pool_with_limits(), idle_nodes(1), plays=0)


# Unknown ends.


def test_the_end_of_a_node_with_an_endless_job_is_unknown() -> None:
    endless = WorldOverride(pod="uid-train", remainder=NEVER)
    nodes = [old_node("node-1", gpu_pod("train", job=True)), old_node("node-2")]
    planned = answer_for(pool_with_limits(**awaiting_jobs()), nodes, fixed_worlds(endless))
    node = planned_node(planned, "node-1")
    assert node.start_p50 is not None
    assert end_of(node) == PlanTime(None, None)
    assert not_none(node.wait).code is WaitCode.JOBS
    assert planned_node(planned, "node-2").end_p50 is not None
    assert makespan_of(planned) == PlanTime(None, None)
    remark_with(planned, "The end of node-1 is unknown", "ml/train")


def test_the_end_of_a_node_is_known_with_a_limit_for_jobs() -> None:
    endless = WorldOverride(pod="uid-train", remainder=NEVER)
    nodes = [old_node("node-1", gpu_pod("train", job=True))]
    planned = answer_for(pool_with_limits(**awaiting_jobs(1800)), nodes, fixed_worlds(endless))
    assert planned.makespan_p50 == pytest.approx(1800 + IDLE_LIFE, abs=5)
    assert planned.nodes[0].evicted == ("ml/train",)
    assert planned.nodes[0].wait is None


def test_the_node_that_holds_up_the_proof_is_named_with_its_job() -> None:
    endless = WorldOverride(pod="uid-train", remainder=NEVER)
    pool = pool_with_limits(threshold="1", **awaiting_jobs())
    forecast = forecast_for(
        pool,
        [old_node("node-1", gpu_pod("train", job=True)), *busy_nodes(2)],
        fixed_worlds(endless),
    )
    planned, proof = forecast.answer, forecast.proof
    assert proof is not None
    assert (proof.threshold, proof.after) == (1, PlanTime(None, None))
    assert proof.delay is not None
    assert proof.delay.node == "node-1"
    assert proof.delay.detail == "waiting for jobs to finish: ml/train"
    remark_with(planned, "node-1 delays the proof", "ml/train")
    wait = not_none(planned_node(planned, "node-2").wait)
    assert wait.code is WaitCode.PROOF


def busy_nodes(count: int) -> list[NodeView]:
    return [
        old_node(f"node-{number}", gpu_pod(f"x{number}"), gpu_pod(f"y{number}"))
        for number in range(2, count + 2)
    ]


def test_a_proof_of_usual_length_is_no_delay() -> None:
    forecast = forecast_for(pool_with_limits(threshold="2"), idle_nodes(4))
    proof = not_none(forecast.proof)
    assert proof.threshold == 2
    assert proof.after.p50 == pytest.approx(IDLE_LIFE, abs=0.5)
    assert proof.delay is None
    remark_with(forecast.answer, "Others start once 2 nodes have proven the driver: 37 s (p50)")


# Nodes that do not start.


def test_max_unavailable_0_starts_unavailable_nodes_only() -> None:
    planned = answer_for(pool_with_limits(unavailable=0), [*idle_nodes(3), cordoned_node("node-4")])
    assert waiting_nodes(planned, WaitCode.BUDGET) == ["node-1", "node-2", "node-3"]
    assert end_of(planned_node(planned, "node-1")) == PlanTime()
    assert planned_node(planned, "node-4").end_p50 is not None
    assert makespan_of(planned) == PlanTime(None, None)
    assert planned.largest_loss == 1
    assert planned.gpu_hours_lost == 0.0
    remark_with(planned, "Not usable already: node-4 (cordoned)")


def test_a_node_that_cannot_start_does_not_delay_the_others() -> None:
    nodes = [*idle_nodes(2), old_node("node-3", ready=False), old_node("node-4", skip=True)]
    planned = answer_for(pool_with_limits(), nodes)
    assert planned.makespan_p50 == pytest.approx(IDLE_LIFE, abs=1)
    assert waiting_nodes(planned, WaitCode.NOT_READY) == ["node-3"]
    assert waiting_nodes(planned, WaitCode.SKIPPED) == ["node-4"]
    remark_with(planned, "Not usable already: ")


def test_nodes_that_people_keep_out_are_named() -> None:
    held = lease("node-2", owner=LeaseOwner.HUMAN, who="jane")
    nodes = [
        done("node-1", skip=True),
        old_node("node-2", lease=held),
        new_node("node-3", excluded=True),
        old_node("node-4", skip=True),
        old_node("node-5", skip=True),
    ]
    planned = answer_for(pool_with_limits(), nodes)
    assert waiting_nodes(planned, WaitCode.SKIPPED, "jane has the node") == ["node-2"]
    assert waiting_nodes(planned, WaitCode.SKIPPED, "skip label") == ["node-4", "node-5"]
    assert makespan_of(planned) == PlanTime()
    assert planned.remarks == ("1 node is left out: node-3 (excluded).",)
    planned = answer_for(pool_with_limits(), [*nodes[:-1], old_node("node-6")])
    assert planned.makespan_p50 == pytest.approx(IDLE_LIFE, abs=1)
    assert planned.remarks[0] == "1 node is left out: node-3 (excluded)."
    planned = answer_for(pool_with_limits(), [done("node-1"), nodes[2]])
    assert planned.remarks == ("1 node is left out: node-3 (excluded).",)


def test_preflight_findings_persist_in_the_forecast() -> None:
    finding = Finding(code="nouveau", message="nouveau is loaded", remedy="blacklist it")
    answer = Preflight(check="c", label=label_of(NEW), findings=(finding,))
    asked = PreflightQuery(
        label=label_of(NEW), asked_at=NOW - 30, answered_at=NOW - 29, answer=answer
    )
    planned = answer_for(
        pool_with_limits(), [old_node("node-1", preflight=asked), old_node("node-2")]
    )
    assert waiting_nodes(planned, WaitCode.PREFLIGHT, "nouveau is loaded") == ["node-1"]
    assert planned_node(planned, "node-2").end_p50 is not None


def test_a_pod_that_must_not_be_evicted_keeps_its_node_from_starting() -> None:
    default_pool = pool_with_limits()
    pool = replace(
        default_pool,
        upgrade=replace(
            default_pool.upgrade, pod_deletion=type(default_pool.upgrade.pod_deletion)()
        ),
    )
    planned = answer_for(pool, [old_node("node-1", gpu_pod("solo", bare=True)), old_node("node-2")])
    assert planned_node(planned, "node-1").evicted == ()
    assert waiting_nodes(planned, WaitCode.PREFLIGHT, "ml/solo") == ["node-1"]


def test_a_driver_that_never_loads_is_halted_and_the_other_nodes_do_not_start() -> None:
    never_loads = WorldOverride(load=ProcessEnd(1.0, 1))
    forecast = forecast_for(
        pool_with_limits(parallel=1, threshold="1"), idle_nodes(3), fixed_worlds(never_loads)
    )
    planned = forecast.answer
    assert forecast.halted_plays == 1
    assert [*forecast.failed.values()] == [1]
    assert makespan_of(planned) == PlanTime(None, None)
    remark_with(planned, "In 1 of 1 simulated run failures halt the rollout", "wait for a person")
    words = f"the rollout would halt after 1 failure of {NEW}"
    assert len(waiting_nodes(planned, WaitCode.HALTED, words)) == 2


def test_times_are_those_of_the_plays_in_which_the_driver_is_not_halted() -> None:
    never_loads = every_third(WorldOverride(load=ProcessEnd(1.0, 1)))
    pool = pool_with_limits(parallel=1, threshold="1")
    forecast = forecast_for(pool, idle_nodes(3), never_loads, plays=3)
    planned = forecast.answer
    assert forecast.halted_plays == 1
    assert planned.makespan_p95 == pytest.approx(3 * IDLE_LIFE, rel=0.05)
    assert all(node.end_p95 is not None for node in planned.nodes)
    remark_with(planned, "In 1 of 3 simulated runs failures halt the rollout", "are of the other 2")
    mostly = forecast_for(pool, idle_nodes(3), never_loads, plays=2, seed=1)
    assert mostly.halted_plays == 1
    assert mostly.answer.makespan_p95 is None


def test_no_node_starts_while_a_foreign_operator_leads() -> None:
    now = instant(foreign_operator="the GPU Operator leads (lease of 3 s ago)")
    planned = plan(
        fleet(pool_with_limits(), *idle_nodes(2)),
        now,
        pool=POOL,
        world_of=fixed_worlds(),
        plays=1,
    ).answer
    assert makespan_of(planned) == PlanTime(None, None)
    assert len(waiting_nodes(planned, WaitCode.FOREIGN_OPERATOR, "the GPU Operator leads")) == 2


def test_a_pause_is_told_and_does_not_change_the_times() -> None:
    pool = pool_with_limits()
    planned = answer_for(paused(pool), idle_nodes(2))
    assert makespan_of(planned) == makespan_of(answer_for(pool, idle_nodes(2)))
    (stop,) = planned.stops
    assert (stop.kind, stop.because) == (PlanStopKind.PAUSED, "by jane: so")
    assert answer_for(paused(pool), [done("node-1", NEW)]).stops == ()


def test_a_halt_is_told_and_its_release_is_played() -> None:
    record = TargetRecord(threshold=1, failed=("uid-node-1",), halted_because="by Sluice, as so")
    halted = with_status(pool_with_limits(threshold="1"), targets={NEW: record})
    nodes = [failed("node-1", NEW), old_node("node-2")]
    planned = answer_for(halted, nodes)
    (stop,) = planned.stops
    assert (stop.kind, stop.because) == (PlanStopKind.HALTED, "by Sluice, as so")
    assert stop.failures == 1
    assert planned_node(planned, "node-2").end_p50 is not None
    other = PlanOptions(target="other", builds={VARIANT: build("other")})
    assert answer_for(halted, nodes, options=other).stops == ()


def test_a_deleted_policy_is_the_only_reason_and_nothing_starts() -> None:
    gone = replace(paused(pool_with_limits()), gone=True)
    planned = answer_for(gone, idle_nodes(1))
    assert [stop.kind for stop in planned.stops] == [PlanStopKind.POLICY_DELETED]
    assert planned_node(planned, "node-1").start_p50 is None
    idle = answer_for(gone, [done("node-1", NEW)])
    assert (len(idle.stops), idle.remarks) == (1, ())


def paused(pool: PoolView) -> PoolView:
    spec = RolloutSpec(brake=Brake.PAUSE)
    rollout = replace(not_none(pool.rollout), spec=spec, brake_set_by="jane", brake_reason="so")
    return replace(pool, rollout=rollout)


# Failed nodes and refused evictions.


def test_nodes_without_a_first_driver_are_unavailable_and_no_loss_to_the_budget() -> None:
    nodes = [new_node(f"node-{number}") for number in range(1, 4)]
    planned = answer_for(pool_with_limits(unavailable=1), nodes)
    assert planned.down == CapacityPoint(nodes=3, gpus=24, at=0.0)
    assert (planned.largest_loss, planned.largest_loss_at) == (3, 0.0)
    assert (planned.gpu_hours_lost, planned.drained_seconds) == (0.0, None)
    assert planned.capacity[-1].nodes == 0
    assert planned.upgraded == 3
    assert not any("Others start" in line for line in planned.remarks), "they start at once"
    remark_with(planned, "Not usable already: node-1, node-2, node-3 (without a driver).")
    silent = new_node("node-4", modules_reported=False)
    told = answer_for(pool_with_limits(unavailable=0), [old_node("node-1"), silent])
    remark_with(told, "Not usable already: node-4 (no report about its driver).")
    wait = not_none(planned_node(told, "node-1").wait)
    assert "node-4" not in wait.detail


def test_a_driver_that_crashes_on_a_failed_node_is_not_expected_to_load_by_itself() -> None:
    """The engine tries the node again once, and then a person has to."""
    pod = driver_pod(NEW, ready=False, started=None, restarts=3, trouble="it crashes")
    crashing = failed("node-1", NEW, driver_pods=(pod,), gate=Gate(admitted_pod_uid=pod.uid))
    assert isinstance(crashing.record, NodeRecord)
    exhausted = replace(crashing, record=replace(crashing.record, attempt=2))
    others = [old_node("node-2"), old_node("node-3")]
    planned = answer_for(pool_with_limits(), [exhausted, *others])
    node = planned_node(planned, "node-1")
    assert (node.start_p50, node.end_p50) == (None, None)
    assert not_none(node.wait).code is WaitCode.FAILED
    retried = replace(crashing, record=replace(crashing.record, attempt=1))
    planned = answer_for(pool_with_limits(), [retried, *others])
    assert planned_node(planned, "node-1").end_p50 is not None
    record = TargetRecord(threshold=1, failed=("uid-node-1",), halted_because="so")
    halted = with_status(pool_with_limits(), targets={NEW: record})
    planned = answer_for(halted, [exhausted, *others])
    assert planned_node(planned, "node-1").end_p50 is not None


@pytest.mark.parametrize(
    ("restarts", "running", "times", "fails"),
    [
        (0, False, "once: the plan assumes that it loads the next time", False),
        (1, False, "2 times: the plan assumes that it ends so each time", True),
        (2, True, "2 times: the plan assumes that it ends so each time", True),
    ],
)
def test_a_driver_that_crashes_again_and_again_on_a_node_in_flight_is_expected_to_fail(
    restarts: int, running: bool, times: str, fails: bool
) -> None:
    pod = driver_pod(
        NEW,
        ready=False,
        started=NOW - 1.0 if running else None,
        restarts=restarts,
        trouble="" if running else "CrashLoopBackOff",
        last_exit="exited with code 1, and its log ends: no such device",
        latest_exit="exited with code 1",
    )
    canary = in_flight_node(
        UpgradeState.POD_RESTART_REQUIRED,
        driver_pods=(pod,),
        loaded=None,
        gate=Gate(admitted_pod_uid=pod.uid),
    )
    others = [old_node("node-2"), old_node("node-3")]
    canaries = granted(pool_with_limits(parallel=1, threshold="1"), canary)
    forecast = forecast_for(canaries, [canary, *others])
    planned = forecast.answer
    remark_with(planned, f"The driver on node-1 has exited with code 1, {times}.")
    assert forecast.failed.get("node-1", 0) == fails
    assert forecast.halted_plays == fails
    assert (planned_node(planned, "node-2").start_p50 is None) is fails


def test_failed_and_driverless_nodes_are_planned_too() -> None:
    driverless = without_driver(old_node("node-3", gate=Gate()))
    planned = answer_for(
        pool_with_limits(), [failed("node-1", "target-old"), old_node("node-2"), driverless]
    )
    assert all(node.end_p50 is not None for node in planned.nodes)
    assert planned_node(planned, "node-1").start_p50 == pytest.approx(0.1, abs=3)
    assert planned.largest_loss == 3


def test_a_refusing_disruption_budget_is_reported_with_its_consequence() -> None:
    pod = gpu_pod("web", budget="ml/web-budget")
    nodes = [old_node("node-1", pod), old_node("node-2")]
    forecast = forecast_for(pool_with_limits(), nodes)
    planned = forecast.answer
    node = planned_node(planned, "node-1")
    assert node.blocked_by == ("ml/web-budget (keeps ml/web)",)
    assert end_of(node) == PlanTime(None, None)
    assert forecast.failed == {"node-1": 1}
    assert not_none(node.wait).code is WaitCode.FAILED
    remark_with(planned, "will probably fail", "node-1")


FAILED_GPU = FailedGpu(GpuIdentity(uuid="GPU-1"), "the GPU fell off the bus: reboot the node")


def test_a_node_with_a_failed_gpu_is_not_upgraded_and_the_others_are() -> None:
    broken = old_node("node-1", gpu_verdict=GpuVerdict(BOOT, (FAILED_GPU,)))
    planned = answer_for(pool_with_limits(), (broken, *idle_nodes(3)[1:]))
    ends = {node.node: node.end_p50 for node in planned.nodes}
    assert ends["node-1"] is None
    assert ends["node-2"] == ends["node-3"] == pytest.approx(0.06 + IDLE_LIFE, abs=0.1)
    why = "GPU-1 has failed: the GPU fell off the bus: reboot the node"
    assert waiting_nodes(planned, WaitCode.GPU_FAILED, why) == ["node-1"]


def test_a_requested_upgrade_of_a_node_with_a_failed_gpu_is_played() -> None:
    for failed_gpus, ends in ((1, True), (8, False)):
        failures = tuple(
            replace(FAILED_GPU, gpu=GpuIdentity(uuid=f"GPU-{index}"))
            for index in range(failed_gpus)
        )
        broken = old_node("node-1", requested=True, gpu_verdict=GpuVerdict(BOOT, failures))
        forecast = forecast_for(pool_with_limits(), (broken,))
        (node,) = forecast.answer.nodes
        assert (node.end_p50 is not None) is ends
        assert forecast.failed == ({} if ends else {"node-1": 1})


def test_a_verdict_of_an_earlier_boot_excludes_no_node() -> None:
    verdict = GpuVerdict("another boot", (FAILED_GPU,))
    (node,) = answer_for(pool_with_limits(), (old_node("node-1", gpu_verdict=verdict),)).nodes
    assert node.end_p50 is not None
