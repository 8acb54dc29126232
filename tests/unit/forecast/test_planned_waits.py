"""Why nodes do not start, in the words of a plan: of played fleets, and of invented ends."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.queries import PlanAnswer
from libs.contracts.rollout import TargetRecord
from libs.contracts.waits import WaitCode
from libs.forecast.options import PlanOptions
from libs.forecast.planned_waits import PlayEnd, named, planned_wait, versions_of
from libs.forecast.world import NEVER, ProcessEnd
from libs.rollout.decision import Wait
from libs.rollout.views.node import NodeView
from libs.rollout.views.pool import PoolView
from libs.testing.not_none import not_none
from libs.testing.stage.worlds import WorldOverride
from tests.unit.forecast.builders import (
    answer_for,
    awaiting_jobs,
    cordoned_node,
    fixed_worlds,
    gpu_pod,
    idle_nodes,
    old_node,
    planned_node,
    pool_with_limits,
)
from tests.unit.rollout.builders import NEW, build, fleet, label_of, with_status

VERSION = "580.95.05"
NEVER_LOADS = fixed_worlds(WorldOverride(load=ProcessEnd(1.0, 1)))


def pool_to(version: str = VERSION, **limits: Any) -> PoolView:
    return replace(pool_with_limits(**limits), version=version)


def detail_of(planned: PlanAnswer, node: str) -> str:
    wait = not_none(planned_node(planned, node).wait)
    return wait.detail


def skipped_node(name: str) -> NodeView:
    return replace(cordoned_node(name), skip=True)


# Played fleets: what the engine says is what is put in other words.


@pytest.mark.parametrize(("threshold", "failures"), [("1", "1 failure"), ("2", "2 failures")])
def test_a_halt_ahead_is_told_as_such_with_the_version(threshold: str, failures: str) -> None:
    planned = answer_for(pool_to(threshold=threshold), idle_nodes(6), NEVER_LOADS)
    assert detail_of(planned, "node-6") == f"the rollout would halt after {failures} of {VERSION}"


def test_the_version_of_an_option_is_told_not_that_of_the_policy() -> None:
    other = PlanOptions(target="other", version="590.1", builds={"ubuntu24.04": build("other")})
    planned = answer_for(pool_to(threshold="1"), idle_nodes(6), NEVER_LOADS, options=other)
    assert detail_of(planned, "node-6") == "the rollout would halt after 1 failure of 590.1"
    unnamed = replace(other, version="")
    planned = answer_for(pool_to(threshold="1"), idle_nodes(6), NEVER_LOADS, options=unnamed)
    assert detail_of(planned, "node-6").endswith("of other")


def test_all_nodes_that_fill_the_budget_before_are_named() -> None:
    away = [skipped_node(f"node-{number}") for number in range(1, 5)]
    planned = answer_for(pool_to(unavailable=3), [*away, old_node("node-5")])
    assert detail_of(planned, "node-5") == (
        "maxUnavailable is 3, and 4 nodes are unavailable already: node-1 (cordoned), node-2"
        " (cordoned), node-3 (cordoned), node-4 (cordoned)"
    )
    wait = not_none(planned_node(planned, "node-5").wait)
    assert "raising maxUnavailable" in wait.who
    assert "itself" not in wait.who
    share = answer_for(pool_to(unavailable="20%"), [*away[:1], *idle_nodes(5)[1:]])
    assert detail_of(share, "node-5") == (
        "maxUnavailable is 20%, which is 1 node, and 1 node is unavailable already: node-1"
        " (cordoned)"
    )


def test_a_budget_that_the_rollout_itself_fills_is_told_as_ahead() -> None:
    nodes = [
        skipped_node("node-9"),
        old_node("node-1", gpu_pod("train", job=True)),
        old_node("node-2", gpu_pod("late", job=True)),
    ]
    pool = pool_to(unavailable=2, **awaiting_jobs())
    endless = fixed_worlds(
        WorldOverride(pod="uid-train", remainder=NEVER),
        WorldOverride(pod="uid-late", remainder=NEVER),
    )
    planned = answer_for(pool, nodes, endless)
    assert detail_of(planned, "node-2") == (
        "maxUnavailable is 2, and 2 nodes would be unavailable: node-1 (in an upgrade),"
        " node-9 (cordoned already)"
    )


def test_a_driver_that_would_not_be_proven_is_told_with_the_nodes_in_progress() -> None:
    endless = fixed_worlds(WorldOverride(pod="uid-train", remainder=NEVER))
    nodes = [old_node("node-1", gpu_pod("train", job=True), upgrade_last=False)]
    nodes += [replace(node, upgrade_last=True) for node in idle_nodes(2)[1:]]
    planned = answer_for(pool_to(threshold="1", **awaiting_jobs()), nodes, endless)
    assert detail_of(planned, "node-2") == (
        f"{VERSION} would not be proven: validated on 0 of 1 node; node-1 would still be in"
        " progress"
    )


# Invented ends.

END = PlayEnd(
    target=NEW,
    versions={NEW: VERSION, "d" * 32: VERSION},
    record=TargetRecord(threshold=2, failed=("a", "b"), validated=("c",)),
    in_flight=(),
    max_unavailable=1,
    limit=1,
    unavailable={},
    were_unavailable=frozenset(),
)


def told(code: WaitCode, detail: str, **changes: Any) -> str:
    wait = Wait(code=code, detail=detail, since=0.0)
    return planned_wait(wait, replace(END, **changes)).detail


def test_other_waits_are_told_as_the_engine_does_but_for_digests() -> None:
    assert told(WaitCode.JOBS, "pod of " + "d" * 32) == f"pod of {VERSION}"
    parallel = "maxParallelUpgrades (1) is reached by node-1 (in an upgrade)"
    assert told(WaitCode.BUDGET, parallel) == parallel
    of_another = "target target-old is halted: 1 of 1 allowed failures"
    assert told(WaitCode.HALTED, of_another) == of_another
    assert told(WaitCode.HALTED, f"target {NEW} is halted", record=None).startswith("target 580")


def test_failures_are_told_of_a_driver_that_would_not_be_proven() -> None:
    assert told(WaitCode.PROOF, f"waiting for {NEW}") == (
        f"{VERSION} would not be proven: validated on 1 of 2 nodes, 2 failed"
    )


def test_ten_of_many_unavailable_nodes_are_named() -> None:
    many = {f"n-{number:02}": "failed" for number in range(12)}
    detail = "1 of at most 1 nodes (maxUnavailable) are unavailable"
    words = told(WaitCode.BUDGET, detail, unavailable=many, were_unavailable=frozenset(many))
    assert words.startswith("maxUnavailable is 1, and 12 nodes are unavailable already: n-00 (")
    assert words.endswith("n-09 (failed) and 2 more")


def test_versions_are_known_of_wanted_targets_of_their_builds_and_of_the_rollout() -> None:
    pool = with_status(pool_to(), target="target-old", version="570.1")
    versions = versions_of(fleet(pool))
    assert versions == {"target-old": "570.1", NEW: VERSION, label_of(NEW): VERSION}
    assert named(f"from target-old to {NEW}", versions) == f"from 570.1 to {VERSION}"
    assert versions_of(fleet(pool_with_limits())) == {}
