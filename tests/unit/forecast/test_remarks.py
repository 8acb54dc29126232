"""Remarks about invented plans."""

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.node import WaitCode
from libs.forecast.play_result import CapacityLoss, ProofDelay
from libs.forecast.remarks import format_count, format_duration, format_names, remarks
from libs.forecast.rollout_plan import (
    NodeForecast,
    Percentiles,
    ProofForecast,
    RequiredLimits,
    RolloutPlan,
)
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.forecast.builders import gpu_pod, old_node, pool_with_limits
from tests.unit.rollout.builders import NEW, NOW, POOL, failed, fleet, instant

SURE = Percentiles(1.0, 2.0)
UNSURE = Percentiles(1.0, None)
STALE_AGE = 91.0
ASSUMED = (
    (
        "Assumed, not seen in this fleet: a driver loads 2 min (95 %: 4 min);"
        " a validation 45 s (95 %: 2 min); an unload 4 s (95 %: 20 s);"
        " a pull of the driver's image 20 s (95 %: 2 min); a pod ends 2 s (95 %: 20 s);"
        " a job 2 h 00 min (95 %: 24 h 00 min);"
        " a disruption budget refuses 3 min (95 %: 20 min)."
    ),
    "How often things go wrong is assumed, whatever was seen.",
)


def remarks_of(
    *nodes: NodeForecast,
    members: tuple[NodeView, ...] = (),
    pool: PoolView | None = None,
    now: Instant | None = None,
    **changes: Any,
) -> tuple[str, ...]:
    fields: dict[str, Any] = {"pool": POOL, "target": NEW, "plays": 20, "nodes": nodes, **changes}
    snapshot = fleet(pool or pool_with_limits(), *members)
    return remarks(RolloutPlan(**fields), snapshot, snapshot, now or instant())


def among(texts: tuple[str, ...], words: str) -> list[str]:
    return [remark for remark in texts if words in remark]


def node(number: int = 1, **changes: Any) -> NodeForecast:
    return replace(NodeForecast(node=f"node-{number}", start=SURE, end=SURE), **changes)


def waiting(code: WaitCode = WaitCode.JOBS, who: str = "") -> Wait:
    return Wait(code=code, detail="ml/train.", since=NOW, who=who)


def test_a_smooth_plan_has_few_remarks() -> None:
    assert remarks_of(node()) == (
        "At most 0 of 0 nodes are unavailable at one time, with 0 GPUs, 0 s from now.",
        (
            "0.0 GPU-hours are lost on unavailable nodes,"
            " without the work that evicted jobs have to repeat."
        ),
        "Based on 20 plays of this rollout with different random outcomes.",
        *ASSUMED,
    )
    assert remarks_of() == (
        "Every node is already up to date: there is nothing to do.",
        "Based on 20 plays of this rollout with different random outcomes.",
        *ASSUMED,
    )


# Nodes that do not start, and unknown ends.


def test_nodes_that_never_start_are_named_with_their_remedy() -> None:
    never_starts = node(
        start=Percentiles(), end=Percentiles(), wait=waiting(WaitCode.SKIPPED, who="a person")
    )
    assert among(remarks_of(never_starts), "will not start") == [
        "1 node will not start (skipped): node-1: ml/train (can be ended by a person)."
    ]
    without_owner = replace(never_starts, wait=Wait(code=WaitCode.SKIPPED, detail="so", since=NOW))
    assert among(remarks_of(without_owner), "will not start") == [
        "1 node will not start (skipped): node-1: so."
    ]


@pytest.mark.parametrize(
    "moves",
    [
        node(start=UNSURE, end=Percentiles()),
        node(start=Percentiles()),
        node(start=Percentiles(), end=UNSURE),
    ],
)
def test_nodes_that_start_in_some_plays_are_not_reported_as_unmoved(moves: NodeForecast) -> None:
    assert not among(remarks_of(replace(moves, wait=waiting())), "will not start")


def test_started_nodes_with_an_unknown_end_are_named() -> None:
    found = remarks_of(node(end=Percentiles(), wait=waiting(who="its owner")))
    assert among(found, "is unknown") == [
        "The end of node-1 is unknown (jobs): ml/train (can be ended by its owner)."
    ]


@pytest.mark.parametrize(
    "other",
    [
        node(start=Percentiles(), end=Percentiles(), wait=waiting()),
        node(end=UNSURE, wait=waiting()),
        node(end=Percentiles()),
        node(end=Percentiles(), wait=waiting(WaitCode.FAILED)),
    ],
)
def test_other_nodes_have_no_unknown_end(other: NodeForecast) -> None:
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
    found = remarks_of(
        *(node(number, end=Percentiles(), wait=waiting()) for number in range(count))
    )
    assert len(among(found, "is unknown (")) == 3
    assert among(found, "unknown too") == more


# The proof, failures and halts.


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (SURE, "that takes 1 s (95 %: 2 s)."),
        (UNSURE, "that takes 1 s, and may never end."),
        (Percentiles(), "that takes an unknown time, and may never end."),
    ],
)
def test_how_long_the_proof_takes(after: Percentiles, words: str) -> None:
    proof = ProofForecast(threshold=2, after=after, delay=None)
    (found,) = among(remarks_of(node(), proof=proof), "have proven")
    assert found.endswith(words)


@pytest.mark.parametrize(("seconds", "words"), [(inf, "forever"), (720.0, "for 12 min")])
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
    failing = node(failed_plays=failures, blocked_by=blocked)
    words = "1 node will probably fail and stay cordoned: node-1."
    assert (words in remarks_of(failing, plays=plays)) == expected


def test_failures_by_chance_are_counted_from_one_node_on() -> None:
    words = "About 1 node will fail by chance."
    assert words in remarks_of(node(1, failed_plays=1), node(2, failed_plays=1), plays=2)
    assert not among(remarks_of(node(1, failed_plays=1), node(2), plays=2), "fail by chance")


def test_the_number_of_halted_plays_is_reported() -> None:
    (found,) = among(remarks_of(node(), halted_plays=3), "is halted")
    assert found.startswith("In 3 of 20 plays the driver is halted because of failures")


# Losses, and the basis of the plan.


def test_the_largest_loss_is_reported_with_the_nodes_already_unavailable() -> None:
    other = replace(old_node("node-3"), pool="else")
    members = (failed("node-1"), old_node("node-2"), other)
    (found,) = among(
        remarks_of(node(), members=members, loss=CapacityLoss(nodes=2, gpus=16, at=60.0)), "At most"
    )
    assert found == (
        "At most 2 of 2 nodes are unavailable at one time, with 16 GPUs, 1 min from now;"
        " 1 of them is unavailable already."
    )


def test_effects_on_pods_are_counted() -> None:
    found = remarks_of(
        node(1, evicted=("ml/a", "ml/b"), lost_pods=("ml/a (bare)",), blocked_by=("ml/w",)),
        node(2, evicted=("ml/c",), blocked_by=("ml/w", "ml/v")),
        members=(replace(old_node("node-1"), pods=None), old_node("node-2", gpu_pod("c"))),
    )
    assert "3 pods will be evicted." in found
    assert "1 pod will lose something: ml/a (bare)." in found
    assert "2 disruption budgets would refuse evictions now: ml/v, ml/w." in found
    assert among(found, "The pods of 1 node could not be listed:")


def test_max_unavailable_0_is_explained() -> None:
    never_starts = node(2, start=Percentiles(), end=Percentiles(), wait=waiting())
    (found,) = among(
        remarks_of(node(1), never_starts, pool=pool_with_limits(unavailable=0)),
        "maxUnavailable is 0",
    )
    assert "Already unavailable nodes (1 node) can still start." in found


def test_the_required_limit_is_reported() -> None:
    known = RequiredLimits(max_unavailable=3, why="with 3 at a time it takes 1 min")
    unknown = RequiredLimits(max_unavailable=None, why="that time has passed")
    assert (
        "To finish in time, set maxUnavailable to 3: with 3 at a time it takes 1 min."
        in remarks_of(node(), required_limits=known)
    )
    assert "No maxUnavailable is known to finish in time: that time has passed." in remarks_of(
        node(), required_limits=unknown
    )


def test_stale_sources_are_reported() -> None:
    (found,) = among(remarks_of(node(), now=instant(ages={"pods": STALE_AGE})), "is out of date")
    assert found.startswith("pods is out of date")
    assert among(remarks_of(node(), now=instant(bus_down_since=NOW - 5)), "NATS is unreachable")


@pytest.mark.parametrize(("plays", "few"), [(18, True), (19, False)])
def test_with_few_plays_the_95_percent_figure_of_a_node_is_the_worst(plays: int, few: bool) -> None:
    (found,) = among(remarks_of(node(), plays=plays), "Based on")
    assert ("the 95 % figure of a node is the worst" in found) == few


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "an unknown time"),
        (0.0, "0 s"),
        (59.4, "59 s"),
        (60.0, "1 min"),
        (3599.0, "60 min"),
        (3600.0, "1 h 00 min"),
        (7265.0, "2 h 01 min"),
        (172_799.0, "48 h 00 min"),
        (172_800.0, "2.0 days"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


def test_counts_and_names() -> None:
    assert format_count(1, "node") == "1 node"
    assert format_count(0, "node") == "0 nodes"
    assert format_names(["a", "b", "c"]) == "a, b, c"
    assert format_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert format_names([]) == ""
