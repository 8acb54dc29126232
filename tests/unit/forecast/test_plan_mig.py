"""Plans of nodes whose GPUs are to be divided."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import MigState
from libs.contracts.waits import WaitCode
from libs.policy.mig.geometry import NO_DIGEST
from libs.rollout.views.machine import WantedMig
from libs.rollout.views.node import NodeView
from libs.testing.not_none import not_none
from tests.unit.forecast.builders import (
    GRANTED,
    IDLE_LIFE,
    answer_for,
    gpu_pod,
    old_node,
    planned_node,
    pool_with_limits,
)
from tests.unit.rollout.builders import NEW, done, evidence
from tests.unit.rollout.mig import DIGEST, SEVEN, divisible

DIVIDES = 5.0
"""Seconds until the driver agent has divided the GPUs."""
MIG_LIFE = IDLE_LIFE - 25.52 + DIVIDES + 0.12
"""Seconds from the lease of an idle node to its release, if only its GPUs are divided.

25.52 are for the end of the old driver and the start of the new one, 0.12 for one more slot.
"""
NONE = WantedMig(config="all-disabled", digest=NO_DIGEST, applied=True)


def labelled(view: NodeView, wanted: WantedMig = SEVEN, state: str = MigState.PENDING) -> NodeView:
    return divisible(view, wanted, state)


def test_gpus_are_divided_within_the_budget() -> None:
    nodes = [labelled(done(name, NEW, pods=())) for name in ("node-1", "node-2")]
    planned = answer_for(pool_with_limits(parallel=1), [*nodes, done("node-3", NEW)])
    assert [node.node for node in planned.nodes] == ["node-1", "node-2"]
    first, second = planned.nodes
    assert first.end_p50 is not None
    assert first.end_p50 - not_none(first.start_p50) == pytest.approx(MIG_LIFE, abs=0.1)
    assert second.start_p50 == pytest.approx(first.end_p50 + GRANTED, abs=0.2)
    assert (planned.makespan_p50, planned.makespan_p95) == (second.end_p50, second.end_p95)
    assert planned.largest_loss == 1


def test_an_upgrade_divides_the_gpus_too() -> None:
    view = labelled(old_node("node-1", gpu_pod("a")))
    planned = answer_for(pool_with_limits(), [view])
    (node,) = planned.nodes
    assert node.end_p50 == pytest.approx(IDLE_LIFE + DIVIDES + 1.0, abs=2.0)
    assert len(node.evicted) == 1


@pytest.mark.parametrize("applied", [True, None])
def test_a_reload_drops_the_geometry_and_the_upgrade_makes_it_again(applied: bool | None) -> None:
    wanted = replace(SEVEN, applied=applied)
    proof = evidence(NEW, mig_digest=DIGEST)
    view = labelled(replace(old_node("node-1"), evidence=proof), wanted, MigState.SUCCESS)
    planned = answer_for(pool_with_limits(), [view])
    assert planned.nodes[0].end_p50 == pytest.approx(IDLE_LIFE + DIVIDES + 0.2, abs=1.0)


@pytest.mark.parametrize(
    "wanted", [NONE, WantedMig(config="all-1g.10gb")], ids=["undivided", "unknown"]
)
def test_nothing_is_played_for_gpus_that_stay_undivided_or_are_not_known(
    wanted: WantedMig,
) -> None:
    in_place = labelled(done("node-1", NEW), wanted, MigState.SUCCESS)
    old = labelled(old_node("node-2"), wanted, MigState.SUCCESS)
    planned = answer_for(pool_with_limits(), [in_place, old])
    assert [node.node for node in planned.nodes] == ["node-2"]
    assert planned.nodes[0].end_p50 == pytest.approx(0.06 + IDLE_LIFE, abs=0.1)


def test_a_configuration_that_cannot_be_applied_waits_for_a_person() -> None:
    wanted = WantedMig(config="all-9g", error="there is no MIG configuration all-9g")
    view = labelled(done("node-1", NEW), wanted, MigState.FAILED)
    planned = answer_for(pool_with_limits(), [view, old_node("node-2")])
    node = planned_node(planned, "node-1")
    assert node.end_p50 is None
    assert not_none(node.wait).code is WaitCode.MIG
