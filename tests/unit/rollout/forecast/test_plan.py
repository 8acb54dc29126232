import pytest
from msgspec.structs import replace

from sluice.contracts.facts import Gate
from sluice.contracts.reports import Finding, Preflight
from sluice.contracts.rollout import Brake, RolloutSpec
from sluice.contracts.waits import WaitCode
from sluice.rollout.forecast import Likely, NodeForecast, Plan, Usual, Wish, plan
from sluice.rollout.views.fleet import Fleet
from sluice.rollout.views.machine import Checked, Leaving
from sluice.rollout.views.node import NodeView
from sluice.rollout.views.pool import Build
from sluice.rollout.world import NEVER, Ending, Oddity
from tests.unit.rollout.building import (
    NEW,
    NOW,
    POOL,
    VARIANT,
    done,
    failed,
    fleet,
    instant,
    label_of,
    without_driver,
)
from tests.unit.rollout.forecast.plays import (
    GRANTED,
    IDLE_LIFE,
    Fixed,
    Varied,
    awaiting_jobs,
    cordoned,
    foreseen,
    idle,
    old,
    places,
    work,
)


def of(made: Plan, name: str) -> NodeForecast:
    return next(node for node in made.nodes if node.node == name)


def said(made: Plan, *words: str) -> str:
    """The one remark that has all of these words."""
    found = [remark for remark in made.remarks if all(word in remark for word in words)]
    assert len(found) == 1, made.remarks
    return found[0]


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


# Pods.


def test_pods_that_are_lost_are_named_with_what_is_lost() -> None:
    pods = [
        work("solo", bare=True),
        work("cache", empty_dir=True),
        work("rank-0", gang="ml/train"),
        work("plain"),
    ]
    nodes = [old("node-1", *pods), old("node-2", work("rank-1", gang="ml/train"))]
    made = foreseen(places(), nodes)
    node = of(made, "node-1")
    assert node.evicted == ("ml/cache", "ml/plain", "ml/rank-0", "ml/solo")
    assert node.lost == (
        "ml/cache (emptyDir: its files go with it)",
        "ml/rank-0 (of gang ml/train, which stops as a whole: 1 more pods are known)",
        "ml/solo (bare: nobody makes it anew)",
    )
    assert of(made, "node-2").lost
    said(made, "5 pods will be evicted")
    said(made, "With 4 pods something is lost")


def test_pods_at_which_nobody_has_looked_are_known_by_uid_alone() -> None:
    seen = old("node-1", work("a"))
    made = foreseen(places(), [replace(seen, pods=None), old("node-2")])
    assert of(made, "node-1").evicted == ("the pod with uid uid-a",)
    said(made, "Nobody has looked at the pods of 1 node")


def test_a_disruption_budget_that_refuses_is_named_and_what_comes_of_it() -> None:
    kept = work("web", budget="ml/web-budget")
    made = foreseen(places(), [old("node-1", kept), old("node-2")])
    node = of(made, "node-1")
    assert node.blocked_by == ("ml/web-budget (keeps ml/web)",)
    assert node.end == Likely(None, None)
    assert node.failed == 1
    assert node.wait is not None
    assert node.wait.code is WaitCode.FAILED
    said(made, "1 disruption budget will refuse", "ml/web-budget")
    said(made, "will probably fail", "node-1")


def test_what_is_refused_now_is_told_in_the_words_of_the_api_server() -> None:
    leaving = Leaving(uid="uid-a", since=NOW - 10, refused="Cannot evict pod: budget ml/pdb")
    made = foreseen(places(), [old("node-1", work("a"), leaving=(leaving,))])
    assert made.nodes[0].blocked_by == ("ml/a: Cannot evict pod: budget ml/pdb",)


# What if.


def test_another_budget_is_foreseen_on_wish() -> None:
    serial = foreseen(places(parallel=1), idle(4))
    wished = foreseen(places(parallel=1), idle(4), wish=Wish(max_parallel=0, max_unavailable=2))
    assert wished.loss.nodes == 2
    assert serial.makespan.p50 is not None
    assert wished.makespan.p50 == pytest.approx(serial.makespan.p50 / 2, rel=0.05)


def test_another_driver_is_foreseen_on_wish() -> None:
    there = [done("node-1"), done("node-2")]
    assert not foreseen(places(), there).nodes
    build = Build(label="label-next", install_digest="install-next")
    made = foreseen(places(), there, wish=Wish(target="next", builds={VARIANT: build}))
    assert made.target == "next"
    assert all(node.end.p50 for node in made.nodes)
    unknown = foreseen(places(), there, wish=Wish(target="next"))
    assert unknown.makespan == Likely(None, None)
    said(unknown, "2 nodes will not move (target-missing)")


@pytest.mark.parametrize("seconds", [30, 50, 80, 120, 200, 400])
def test_the_needed_limit_is_the_smallest_that_does(seconds: int) -> None:
    nodes = [old(f"node-{number}", *[work(f"w{number}")] * (number % 2)) for number in range(6)]
    by_hand = None
    for number in range(7):
        made = foreseen(places(unavailable=number), nodes, Varied(), plays=2)
        if made.makespan.p95 is not None and made.makespan.p95 <= seconds:
            by_hand = number
            break
    found = foreseen(places(unavailable=1), nodes, Varied(), plays=2, finish_by=NOW + seconds)
    assert found.needed is not None
    assert found.needed.max_unavailable == by_hand
    if by_hand is None:
        said(found, "No maxUnavailable can be named")
    else:
        said(found, f"maxUnavailable has to be {by_hand} or more")


def test_where_the_parallel_limit_is_in_the_way_the_plan_says_so() -> None:
    made = foreseen(places(parallel=1), idle(4), finish_by=NOW + 90)
    assert made.needed is not None
    assert (made.needed.max_unavailable, made.needed.max_parallel) == (2, 0)
    assert foreseen(places(parallel=1), idle(4)).needed is None


def test_with_an_endless_job_no_limit_can_be_named() -> None:
    endless = Oddity(pod="uid-train", remainder=NEVER)
    nodes = [old("node-1", work("train", job=True))]
    made = foreseen(places(**awaiting_jobs()), nodes, Fixed(endless), finish_by=NOW + 9000)
    assert made.needed is not None
    assert made.needed.max_unavailable is None
    assert "it cannot be said" in made.needed.why


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
