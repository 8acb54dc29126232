"""How long a node was drained for an upgrade, and how long of that its image was pulled."""

import pytest
from msgspec.structs import replace

from libs.contracts.node import LeaseOwner, NodeLease, Operation
from libs.rollout.decision import NodeApplyConfiguration
from libs.rollout.views.machine import DriverPod
from libs.rollout.views.node import NodeView
from services.scheduler.drained import drained_seconds
from tests.builders.fleet import record

DONE = NodeApplyConfiguration(state="upgrade-done")


def node(operation: Operation = Operation.UPGRADE, *, started: bool = True) -> NodeView:
    """Return a node whose upgrade began with its cordon at 100."""
    return NodeView(
        name="a",
        uid="uid",
        revision="1",
        boot_id="boot",
        lease=NodeLease(node_uid="uid", owner=LeaseOwner.UPGRADE, token=1, since=100.0),
        record=record(node_uid="uid", operation=operation, started=started),
        driver_pods=(DriverPod(namespace="n", name="p", uid="u", label="l", pulled=20.0),),
    )


def test_the_seconds_begin_with_the_cordon() -> None:
    assert drained_seconds(node(), DONE, now=160.0) == (60.0, 20.0)
    assert drained_seconds(node(), DONE, now=110.0) == (10.0, 10.0)
    unknown = replace(node(), driver_pods=())
    assert drained_seconds(unknown, DONE, now=160.0) == (60.0, 0.0)


@pytest.mark.parametrize("operation", [Operation.BRING_UP, Operation.VALIDATE, Operation.MIG])
def test_other_operations_drain_for_no_upgrade(operation: Operation) -> None:
    assert drained_seconds(node(operation), DONE, now=160.0) is None


def test_only_an_upgrade_that_succeeded_counts() -> None:
    failed = replace(DONE, state="upgrade-failed")
    assert drained_seconds(node(), failed, now=160.0) is None
    assert drained_seconds(node(started=False), DONE, now=160.0) is None
    assert drained_seconds(None, DONE, now=160.0) is None
