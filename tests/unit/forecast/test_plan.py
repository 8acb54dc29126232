import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gate
from libs.contracts.reports import Finding, Preflight
from libs.contracts.rollout import Brake, RolloutSpec
from libs.contracts.waits import WaitCode
from libs.forecast import Likely, Usual, plan
from libs.forecast.world import NEVER, Ending, Model, Oddity, Steady
from libs.rollout.views.fleet import Fleet
from libs.rollout.views.machine import Checked
from libs.rollout.views.node import NodeView
from tests.unit.forecast.plays import (
    GRANTED,
    IDLE_LIFE,
    Fixed,
    Varied,
    awaiting_jobs,
    cordoned,
    foreseen,
    idle,
    of,
    old,
    places,
    said,
    work,
)
from tests.unit.rollout.building import (
    NEW,
    NOW,
    POOL,
    done,
    failed,
    fleet,
    instant,
    label_of,
    without_driver,
)

# When.


def test_the_order_the_starts_and_the_ends_are_those_of_the_play() -> None:
    nodes = (old("node-1", work("a")), old("node-2"))
    made = foreseen(places(parallel=1), nodes)
    assert [node.node for node in made.nodes] == ["node-2", "node-1"]
    first, second = made.nodes
    assert first.start.p50 == first.start.p95 == pytest.approx(0.06, abs=0.1)
    assert first.end.p50 == pytest.approx(0.06 + IDLE_LIFE, abs=0.1)
    assert second.start.p50 == pytest.approx(0.06 + IDLE_LIFE + GRANTED, abs=0.2)
    assert made.makespan == second.end
    assert (made.loss.nodes, made.loss.gpus) == (1, 8)
    assert made.gpu_hours_lost == pytest.approx(8 * (2 * IDLE_LIFE + 1.02) / 3600, rel=0.01)
    assert made.plays == 1


def test_of_several_plays_half_are_over_before_nineteen_of_twenty() -> None:
    made = foreseen(places(parallel=2), idle(6), Varied(), plays=9)
    assert len(made.nodes) == 6
    for node in made.nodes:
        for likely in (node.start, node.end):
            assert likely.p50 is not None
            assert likely.p95 is not None
            assert likely.p50 <= likely.p95
    assert made.makespan.p50 is not None
    assert made.makespan.p95 is not None
    assert made.makespan.p50 < made.makespan.p95
    said(made, "9 plays", "for 19 of 20 cases stands the worst")


class NowAndThen:
    """Worlds of which every third is odd."""

    said = ("In worlds that differ.",)

    def __init__(self, *oddities: Oddity) -> None:
        self._oddities = oddities

    def world(self, seed: int) -> Model:
        """The first two are not."""
        return Steady(oddities=self._oddities if seed % 3 == 2 else ())


def test_of_those_that_start_together_as_a_rule_the_one_that_may_be_late_comes_last() -> None:
    nodes = (*idle(2), old("node-3", work("a")), old("node-4"))
    late = NowAndThen(Oddity(node="node-1", load=Ending(100.0)))
    made = foreseen(places(parallel=2), nodes, late, plays=3)
    third, fourth = of(made, "node-3").start, of(made, "node-4").start
    assert third.p50 == fourth.p50
    assert fourth.p95 == fourth.p50
    assert third.p95 == pytest.approx((fourth.p95 or 0.0) + IDLE_LIFE + GRANTED, abs=0.1)
    assert [node.node for node in made.nodes] == ["node-1", "node-2", "node-4", "node-3"]


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    one, again, other = (
        foreseen(places(parallel=2), idle(4), Varied(), plays=2, seed=seed) for seed in (5, 5, 50)
    )
    assert one == again
    assert one.makespan != other.makespan


def test_the_order_in_which_nodes_are_given_does_not_matter() -> None:
    nodes = [old(f"node-{number}", work(f"w{number}")) for number in range(5)]
    given = places(parallel=2)
    other = replace(given, key="other")
    plans = [
        plan(
            Fleet(pools=pools, nodes={node.name: node for node in order}),
            instant(),
            pool=POOL,
            assumptions=Varied(),
            plays=2,
        )
        for order in (nodes, nodes[::-1], [*nodes[2:], *nodes[:2]])
        for pools in ({POOL: given, "other": other}, {"other": other, POOL: given})
    ]
    assert all(made == plans[0] for made in plans)


def test_nodes_in_place_are_no_part_of_it() -> None:
    made = foreseen(places(), [done("node-1"), old("node-2")])
    assert [node.node for node in made.nodes] == ["node-2"]
    nothing = foreseen(places(), [done("node-1")])
    assert not nothing.nodes
    assert nothing.makespan == Likely(0.0, 0.0)
    said(nothing, "there is nothing to do")


def test_how_many_plays_there_are_depends_on_the_size() -> None:
    assert foreseen(places(), idle(1), plays=None).plays == 20
    with pytest.raises(ValueError, match="0 plays foresee nothing"):
        foreseen(places(), idle(1), plays=0)


# What nobody can know.


def test_a_job_that_may_run_for_ever_makes_its_node_unknown_and_is_named() -> None:
    endless = Oddity(pod="uid-train", remainder=NEVER)
    nodes = [old("node-1", work("train", job=True)), old("node-2")]
    made = foreseen(places(**awaiting_jobs()), nodes, Fixed(endless))
    busy = of(made, "node-1")
    assert busy.start.p50 is not None
    assert busy.end == Likely(None, None)
    assert busy.wait is not None
    assert busy.wait.code is WaitCode.JOBS
    assert of(made, "node-2").end.p50 is not None
    assert made.makespan == Likely(None, None)
    said(made, "When node-1 is in place is unknown", "ml/train")


def test_a_limit_for_jobs_makes_it_known_again() -> None:
    endless = Oddity(pod="uid-train", remainder=NEVER)
    nodes = [old("node-1", work("train", job=True))]
    made = foreseen(places(**awaiting_jobs(1800)), nodes, Fixed(endless))
    assert made.makespan.p50 == pytest.approx(1800 + IDLE_LIFE, abs=5)
    assert made.nodes[0].evicted == ("ml/train",)
    assert made.nodes[0].wait is None


def test_the_node_that_holds_up_the_proof_is_named_with_its_job() -> None:
    endless = Oddity(pod="uid-train", remainder=NEVER)
    pool = places(threshold="1", **awaiting_jobs())
    made = foreseen(pool, [old("node-1", work("train", job=True)), *busy(2)], Fixed(endless))
    assert made.proof is not None
    assert (made.proof.threshold, made.proof.after) == (1, Likely(None, None))
    assert made.proof.held is not None
    assert (made.proof.held.node, made.proof.held.detail) == ("node-1", "ml/train")
    said(made, "node-1 holds up the proof", "ml/train")
    later = of(made, "node-2").wait
    assert later is not None
    assert later.code is WaitCode.PROOF


def busy(count: int) -> list[NodeView]:
    """Nodes with two pods, whose turn comes after those with one."""
    return [
        old(f"node-{number}", work(f"x{number}"), work(f"y{number}"))
        for number in range(2, count + 2)
    ]


def test_a_proof_that_takes_its_time_is_no_holdup() -> None:
    made = foreseen(places(threshold="2"), idle(4))
    assert made.proof is not None
    assert made.proof.threshold == 2
    assert made.proof.after.p50 == pytest.approx(IDLE_LIFE, abs=0.5)
    assert made.proof.held is None
    said(made, "Until the driver is proven, by 2 nodes")


# What will not move.


def test_with_nothing_that_may_be_unavailable_only_what_is_so_already_moves() -> None:
    made = foreseen(places(unavailable=0), [*idle(3), cordoned("node-4")])
    for name in ("node-1", "node-2", "node-3"):
        node = of(made, name)
        assert (node.start, node.end) == (Likely(), Likely())
        assert node.wait is not None
        assert node.wait.code is WaitCode.BUDGET
    assert of(made, "node-4").end.p50 is not None
    assert made.makespan == Likely(None, None)
    assert made.loss.nodes == 1
    assert made.gpu_hours_lost == 0.0
    said(made, "maxUnavailable is 0", "1 node")
    said(made, "3 nodes will not move (budget)", "node-1, node-2, node-3")


def test_a_node_that_stands_still_by_itself_holds_up_nobody() -> None:
    nodes = [*idle(2), old("node-3", ready=False), old("node-4", skip=True)]
    made = foreseen(places(), nodes)
    assert made.makespan.p50 == pytest.approx(IDLE_LIFE, abs=1)
    assert of(made, "node-3").wait is not None
    said(made, "1 node will not move (not-ready): node-3")
    said(made, "1 node will not move (skipped): node-4")
    said(made, "1 of them are already")


def test_what_a_preflight_found_is_taken_to_be_there_still() -> None:
    finding = Finding(code="nouveau", message="nouveau is loaded", remedy="blacklist it")
    answer = Preflight(check="c", label=label_of(NEW), findings=(finding,))
    asked = Checked(label=label_of(NEW), asked=NOW - 30, answered=NOW - 29, answer=answer)
    made = foreseen(places(), [old("node-1", preflight=asked), old("node-2")])
    assert of(made, "node-1").start == Likely()
    said(made, "1 node will not move (preflight): node-1", "nouveau is loaded")
    assert of(made, "node-2").end.p50 is not None


def test_a_pod_that_nobody_may_evict_keeps_its_node_from_moving() -> None:
    policy = places()
    kept = replace(
        policy, upgrade=replace(policy.upgrade, pod_deletion=type(policy.upgrade.pod_deletion)())
    )
    made = foreseen(kept, [old("node-1", work("solo", bare=True)), old("node-2")])
    assert of(made, "node-1").start == Likely()
    assert of(made, "node-1").evicted == ()
    said(made, "will not move (preflight): node-1", "ml/solo")


def test_a_driver_that_never_loads_is_halted_and_the_rest_waits_for_a_person() -> None:
    bad = Oddity(load=Ending(1.0, 1))
    made = foreseen(places(parallel=1, threshold="1"), idle(3), Fixed(bad))
    assert made.halted == 1
    assert [node.failed for node in made.nodes].count(1) == 1
    assert made.makespan == Likely(None, None)
    said(made, "In 1 of 1 plays the driver is halted")
    said(made, "2 nodes will not move (halted)")


def test_a_foreign_operator_holds_up_everything() -> None:
    moment = instant(foreign_operator="the GPU Operator leads (lease of 3 s ago)")
    made = plan(fleet(places(), *idle(2)), moment, pool=POOL, assumptions=Fixed(), plays=1)
    assert made.makespan == Likely(None, None)
    said(made, "2 nodes will not move (foreign-operator)", "the GPU Operator leads")


def test_a_pause_is_named_and_not_counted() -> None:
    pool = places()
    assert pool.rollout is not None
    held = replace(pool, rollout=replace(pool.rollout, spec=RolloutSpec(brake=Brake.PAUSE)))
    made = foreseen(held, idle(2))
    assert made.makespan == foreseen(pool, idle(2)).makespan
    said(made, "the brake is Pause", "from the moment when that ends")


# Other beginnings.


def test_a_failed_node_and_one_without_a_driver_are_foreseen_too() -> None:
    lost = without_driver(old("node-3", gate=Gate()))
    made = foreseen(places(), [failed("node-1", "target-old"), old("node-2"), lost])
    assert all(node.end.p50 is not None for node in made.nodes)
    assert of(made, "node-1").start.p50 == pytest.approx(0.1, abs=3)
    assert made.loss.nodes == 3


def test_in_a_usual_world_the_assumptions_are_named() -> None:
    made = foreseen(places(parallel=0), idle(3), Usual(), plays=2)
    said(made, "Assumed, not seen in this fleet", "a driver loads 2 min")
    said(made, "How often things go wrong is assumed")
