"""The startup taint: the first `upgrade-done` of a node removes it, and no other write."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import MANAGER, NodeLease, NodeRecord, Operation, UpgradeState
from libs.policy.kinds.strategy import StrategySpec
from libs.rollout.decision import NodeTaint, Step, WriteNode
from libs.rollout.in_flight.failure import fail
from libs.rollout.in_flight.in_flight_node import in_flight_node
from libs.rollout.in_flight.lease_end import release
from libs.rollout.views.node import NodeField, NodeView
from libs.rollout.views.pool import PoolView
from tests.unit.rollout.builders import node, node_case, pool, required
from tests.unit.rollout.in_flight.step_runner import in_flight
from tests.unit.rollout.in_flight.test_whole_upgrades import all_writes

S = UpgradeState
KEY = "example.com/starting"
STARTUP = (
    NodeTaint(key=KEY, effect="NoSchedule"),
    NodeTaint(key=KEY, effect="NoExecute", value="x"),
)
OTHERS = NodeTaint(key="nvidia.com/gpu", effect="NoSchedule", value="present", time_added="T")


def tainted(view: NodeView) -> NodeView:
    managers = {**view.field_managers, NodeField.TAINTS: ("kubelet",)}
    return replace(view, taints=(STARTUP[0], OTHERS, STARTUP[1]), field_managers=managers)


def with_startup_taint(**upgrade: object) -> PoolView:
    return replace(pool(upgrade=upgrade), strategy=StrategySpec(pool="p", startup_taint=KEY))


def taint_writes(steps: list[Step]) -> list[tuple[NodeTaint, ...] | None]:
    return [
        action.applied.taints
        for step in steps
        for action in step.actions
        if isinstance(action, WriteNode)
    ]


def test_the_write_of_the_first_upgrade_done_removes_it_and_no_other_taint() -> None:
    last, states, steps = all_writes(tainted(node()), with_startup_taint(), Operation.BRING_UP)
    assert states[-1] == "upgrade-done"
    assert taint_writes(steps) == [*(None for _ in states[:-1]), (OTHERS,)]
    assert last.taints == (OTHERS,)
    assert isinstance(last.record, NodeRecord)
    assert last.record.was_done
    because = next(step.because for step in steps if taint_writes([step]) == [(OTHERS,)])
    assert "its startup taint is removed" in because


def test_a_list_that_becomes_empty_is_written_empty() -> None:
    """Left out, the list would stay with its other owner."""
    alone = replace(tainted(node()), taints=STARTUP[:1])
    last, _, steps = all_writes(alone, with_startup_taint(), Operation.BRING_UP)
    assert taint_writes(steps)[-1] == ()
    assert last.taints == ()


def test_a_later_upgrade_removes_none() -> None:
    before = tainted(required(pods=()))
    record = before.record
    assert isinstance(record, NodeRecord)
    done_once = replace(before, record=replace(record, was_done=True))
    last, states, steps = all_writes(done_once, with_startup_taint())
    assert states[-1] == "upgrade-done"
    assert set(taint_writes(steps)) == {None}
    assert last.taints == before.taints


def test_without_a_key_none_is_removed() -> None:
    last, _, steps = all_writes(tainted(node()), pool(), Operation.BRING_UP)
    assert set(taint_writes(steps)) == {None}
    assert len(last.taints) == 3


def test_while_we_own_the_list_each_write_repeats_it() -> None:
    """Left out, the API server would remove the taints of others too."""
    owned = {NodeField.TAINTS: (MANAGER,)}
    before = replace(required(pods=()), taints=(OTHERS,))
    before = replace(before, field_managers={**before.field_managers, **owned})
    last, states, steps = all_writes(before, with_startup_taint())
    assert states[-1] == "upgrade-done"
    assert set(taint_writes(steps)) == {(OTHERS,)}
    assert last.taints == (OTHERS,)
    freed = replace(before, taints=())
    assert set(taint_writes(all_writes(freed, with_startup_taint())[2])) == {None}


@pytest.mark.parametrize("state", [S.VALIDATION_REQUIRED, S.POD_DELETION_REQUIRED])
def test_neither_a_failure_nor_a_release_removes_it(state: UpgradeState) -> None:
    view = tainted(in_flight(state))
    assert isinstance(view.record, NodeRecord)
    assert isinstance(view.lease, NodeLease)
    f = in_flight_node(node_case(view, with_startup_taint()), view.record, view.lease)
    for ended in (fail(f, "test"), release(f, "test", back_off=False)):
        assert isinstance(ended, Step)
        assert set(taint_writes([ended])) <= {None}
