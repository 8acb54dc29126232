"""Remarks about invented plans."""

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.queries import PlannedNode, PlanStop, PlanStopKind, WaitReason
from libs.contracts.rollout import Counts, RolloutPhase
from libs.contracts.waits import WaitCode
from libs.forecast.forecast import ProofForecast, RequiredLimits
from libs.forecast.play_result import ProofDelay
from libs.forecast.remarks import remarks
from libs.rollout.plan_time import PlanTime
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.forecast.builders import (
    SURE,
    cordoned_node,
    forecast_of,
    gpu_pod,
    old_node,
    planned,
    pool_with_limits,
)
from tests.unit.rollout.builders import (
    NEW,
    NOW,
    OLD,
    done,
    failed,
    fleet,
    instant,
    with_status,
)

UNSURE = PlanTime(1.0, None)
STALE_AGE = 91.0
ASSUMED = (
    "assumed: driver load 2-4 min, validation 45 s-2 min, unload 4-20 s, image pull 20 s-2 min,"
    " pod end 2-20 s, job 2 h-1 d, budget's refusal 3-20 min, and how often things fail."
)


def remarks_of(
    *nodes: PlannedNode,
    members: tuple[NodeView, ...] = (),
    pool: PoolView | None = None,
    now: Instant | None = None,
    **changes: Any,
) -> tuple[str, ...]:
    snapshot = fleet(pool or pool_with_limits(), *members)
    return remarks(forecast_of(*nodes, **changes), snapshot, snapshot, now or instant())


def among(texts: tuple[str, ...], words: str) -> list[str]:
    return [remark for remark in texts if words in remark]


def node(number: int = 1, **changes: Any) -> PlannedNode:
    return planned(f"node-{number}", **changes)


def waiting(code: WaitCode = WaitCode.JOBS, who: str = "") -> WaitReason:
    return WaitReason(code=code, detail="ml/train.", since=NOW, who=who)


def test_a_smooth_plan_has_its_basis_as_its_only_remark() -> None:
    assert remarks_of(node()) == (f"Durations (p50-p95, 20 simulated runs) {ASSUMED}",)
    assert remarks_of(members=(done("node-1"),)) == ("Every node is up to date already.",)
    no_nodes = "There is no node to plan for: the policy selects no node with GPUs."
    assert remarks_of() == (no_nodes,)


def test_what_the_figures_of_a_plan_say_is_not_said_again() -> None:
    never_starts = node(3, start=PlanTime(), end=PlanTime(), wait=waiting())
    assert remarks_of(
        node(1, evicted=("ml/a", "ml/b"), lost=("ml/a (bare)",), blocked_by=("ml/w",)),
        never_starts,
    ) == remarks_of(node())


@pytest.mark.parametrize(
    ("phase", "word"),
    [
        (RolloutPhase.PROVING, "under way"),
        (RolloutPhase.PROVEN, "under way"),
        (RolloutPhase.HALTED, "halted"),
    ],
)
def test_the_rollout_that_a_plan_takes_over_from_is_told(phase: RolloutPhase, word: str) -> None:
    counts = Counts(total=6, done=2)
    moving = with_status(
        pool_with_limits(), target=OLD, version="570.86.15", phase=phase, counts=counts
    )
    assert remarks_of(node(), pool=moving)[0] == (
        f"The rollout of 570.86.15 is {word} (2 of 6 nodes done). This plan takes over from it now:"
        " nodes whose driver is being replaced finish that first, the others skip it."
    )
    assert not among(remarks_of(pool=moving), "The rollout of")
    for ended in (
        with_status(moving, target=NEW),
        with_status(moving, phase=RolloutPhase.COMPLETE),
        replace(moving, rollout=None),
    ):
        assert not among(remarks_of(node(), pool=ended), "The rollout of")


# Unknown ends.


def test_started_nodes_with_an_unknown_end_are_named() -> None:
    found = remarks_of(node(end=PlanTime(), wait=waiting(who="its owner")))
    assert among(found, "is unknown") == [
        "The end of node-1 is unknown (jobs): ml/train (can be ended by its owner)."
    ]


@pytest.mark.parametrize(
    "other",
    [
        node(start=PlanTime(), end=PlanTime(), wait=waiting()),
        node(end=UNSURE, wait=waiting()),
        node(end=PlanTime()),
        node(end=PlanTime(), wait=waiting(WaitCode.FAILED)),
    ],
)
def test_other_nodes_have_no_unknown_end(other: PlannedNode) -> None:
    assert not among(remarks_of(other), "is unknown")


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (3, []),
        (4, ["The end of 1 more node is unknown too."]),
        (5, ["The end of 2 more nodes is unknown too."]),
    ],
)
def test_three_unknown_ends_are_named_and_the_others_counted(count: int, more: list[str]) -> None:
    found = remarks_of(*(node(number, end=PlanTime(), wait=waiting()) for number in range(count)))
    assert len(among(found, "is unknown (")) == 3
    assert among(found, "unknown too") == more


# The proof, failures and halts.


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (SURE, "Others start once 2 nodes have proven the driver: 1 s (p50), 2 s (p95)."),
        (UNSURE, "Others start once 2 nodes have proven the driver: 1 s (p50), not known (p95)."),
    ],
)
def test_how_long_the_proof_takes(after: PlanTime, words: str) -> None:
    proof = ProofForecast(threshold=2, after=after, delay=None)
    assert words in remarks_of(node(1), node(2), node(3), proof=proof)


def test_a_proof_after_which_no_others_start_is_not_told() -> None:
    proof = ProofForecast(threshold=2, after=SURE, delay=None)
    never_starts = node(3, start=PlanTime(), end=PlanTime(), wait=waiting())
    assert not among(remarks_of(node(1), node(2), never_starts, proof=proof), "proven")
    never = replace(proof, after=PlanTime())
    assert not among(remarks_of(node(1), node(2), node(3), proof=never), "proven")


@pytest.mark.parametrize(("seconds", "words"), [(inf, "without end"), (720.0, "for 12 min")])
def test_a_delay_of_the_proof_is_named(seconds: float, words: str) -> None:
    delay = ProofDelay(node="node-1", detail="ml/train", seconds=seconds)
    proof = ProofForecast(threshold=2, after=UNSURE, delay=delay)
    assert f"node-1 delays the proof {words}: ml/train." in remarks_of(node(), proof=proof)


@pytest.mark.parametrize(
    ("failures", "plays", "blocked", "expected"),
    [
        (11, 20, (), True),
        (10, 20, (), False),
        (6, 10, (), True),
        (9, 9, (), False),
        (5, 9, ("ml/web",), True),
        (4, 9, ("ml/web",), False),
    ],
)
def test_a_node_that_fails_in_most_plays_will_probably_fail(
    failures: int, plays: int, blocked: tuple[str, ...], expected: bool
) -> None:
    failing = remarks_of(node(blocked_by=blocked), plays=plays, failed={"node-1": failures})
    words = "1 node will probably fail and stay cordoned: node-1."
    assert (words in failing) == expected


def test_failures_by_chance_are_counted_from_one_node_on() -> None:
    words = "About 1 node will fail by chance."
    both = {"node-1": 1, "node-2": 1}
    assert words in remarks_of(node(1), node(2), plays=2, failed=both)
    one = remarks_of(node(1), node(2), plays=2, failed={"node-1": 1})
    assert not among(one, "fail by chance")


def test_no_remark_speaks_of_plays() -> None:
    proof = ProofForecast(threshold=2, after=UNSURE, delay=None)
    for plays in (1, 20):
        nodes, times = (node(1), node(2), node(3, end=PlanTime())), {"node-1": plays, "node-2": 1}
        found = remarks_of(*nodes, plays=plays, failed=times, halted_plays=1, proof=proof)
        assert not among(found, " play")
    assert among(remarks_of(node(), plays=1), "(p50-p95, 1 simulated run,")


def test_the_number_of_halted_plays_is_reported() -> None:
    assert (
        "In 3 of 20 simulated runs failures halt the rollout; times are of the other 17."
        in remarks_of(node(), halted_plays=3)
    )
    (most,) = among(remarks_of(node(), halted_plays=11), "In 11 of 20")
    assert most.endswith("; the nodes that are left would wait for a person.")


def test_what_a_plan_takes_for_granted_after_a_release_is_told() -> None:
    halted = PlanStop(kind=PlanStopKind.HALTED, because="so", failures=1)
    (told,) = among(remarks_of(node(), stops=(halted,)), "after the release")
    assert told.endswith("loads as usual after the release: mend the cause first.")
    paused = replace(halted, kind=PlanStopKind.PAUSED)
    assert not among(remarks_of(node(), stops=(paused,)), "after the release")


# Unavailable nodes, and the basis of the plan.


def test_three_nodes_that_are_unavailable_already_are_named_with_reasons() -> None:
    other = replace(failed("node-3"), pool="else")
    members = (failed("node-1"), old_node("node-2"), other)
    words = "Not usable already: node-1 (failed)."
    assert words in remarks_of(node(), members=members)
    assert not among(remarks_of(members=members), "Not usable already")
    full = WaitReason(code=WaitCode.BUDGET, detail="1 node is unavailable already: n", since=NOW)
    told = node(2, start=PlanTime(), end=PlanTime(), wait=full)
    assert not among(remarks_of(node(), told, members=members), "Not usable already")
    cordoned = [cordoned_node(f"node-{number}") for number in (8, 5, 7, 6)]
    names = "node-1 (failed), node-5, node-6, node-7 and 1 more (cordoned)"
    found = remarks_of(node(), members=(*members, *cordoned))
    assert f"Not usable already: {names}." in found


def test_pods_that_could_not_be_listed_are_told() -> None:
    members = (replace(old_node("node-1"), pods=None), old_node("node-2", gpu_pod("c")))
    found = remarks_of(node(1), members=members)
    assert among(found, "The pods of 1 node could not be listed:")


def test_what_the_required_limit_is_found_from_is_told() -> None:
    known = RequiredLimits(max_unavailable=3, why="with maxUnavailable 3 it ends soon")
    unknown = RequiredLimits(max_unavailable=None, why="that time has passed")
    assert "With maxUnavailable 3 it ends soon." in remarks_of(node(), required_limits=known)
    assert "That time has passed." in remarks_of(node(), required_limits=unknown)


def test_stale_sources_are_reported() -> None:
    (found,) = among(remarks_of(node(), now=instant(ages={"pods": STALE_AGE})), "is old")
    assert found.startswith("What is known of pods is old")
    assert among(remarks_of(node(), now=instant(bus_down_since=NOW - 5)), "NATS is unreachable")


@pytest.mark.parametrize(("plays", "few"), [(18, True), (19, False)])
def test_with_few_plays_the_95_percent_figure_of_a_node_is_the_worst(plays: int, few: bool) -> None:
    (found,) = remarks_of(node(), plays=plays)
    assert found.startswith("Durations (p50-p95")
    assert ("a node's p95 is the worst" in found) == few
