"""What is done about an operand, by who made it and whether anybody wants it."""

from typing import Any

import pytest

from libs.policy.render.rendered import RenderedObject
from services.driver.cluster.decide import (
    ApplyOperand,
    DeleteOperand,
    RefuseOperand,
    decide_operand,
    decide_unwanted,
)
from services.driver.cluster.plan import ObjectKey
from tests.unit.driver.cluster.builders import driver_of, live_object, plan

MADE = plan().objects
AGENT = MADE[ObjectKey("DaemonSet", "nvidia-dcgm-exporter")]
FILE = MADE[ObjectKey("ConfigMap", "nvidia-driver-startup-probe")]
CLASS = MADE[ObjectKey("RuntimeClass", "nvidia")]
DRIVER = driver_of(plan())
OWNER = [{"kind": "ClusterPolicy", "name": "p", "uid": "1"}]


@pytest.mark.parametrize("made", [AGENT, FILE, CLASS, DRIVER])
def test_what_is_not_there_is_made_and_what_is_right_is_left(made: RenderedObject) -> None:
    assert isinstance(decide_operand(made, None), ApplyOperand)
    assert decide_operand(made, live_object(made.object)) is None


@pytest.mark.parametrize("made", [AGENT, FILE, CLASS, DRIVER])
def test_an_edit_is_taken_back_and_what_is_going_is_waited_for(made: RenderedObject) -> None:
    edited = live_object(made.object, labels={})
    action = decide_operand(made, edited)
    assert isinstance(action, ApplyOperand)
    assert action.because.startswith("metadata.labels")
    gone = "2027-01-15T08:00:00Z"
    assert decide_operand(made, live_object(made.object, labels={}, deletionTimestamp=gone)) is None


@pytest.mark.parametrize(
    "sign", [{"ownerReferences": OWNER}, {"annotations": {"nvidia.com/last-applied-hash": "1"}}]
)
@pytest.mark.parametrize("ours", [True, False])
def test_what_the_gpu_operator_made_is_replaced_and_its_pods_stay(
    sign: dict[str, Any], ours: bool
) -> None:
    action = decide_operand(AGENT, live_object(AGENT.object, ours=ours, **sign))
    assert isinstance(action, DeleteOperand)
    assert (action.uid, action.revision, action.orphan) == ("u", "7", True)


def test_a_foreign_object_under_our_name_is_refused() -> None:
    action = decide_operand(AGENT, live_object(AGENT.object, ours=False))
    assert isinstance(action, RefuseOperand)
    assert "nvidia-dcgm-exporter exists and was not created by Sluice" in action.why


def test_a_config_map_under_our_name_is_applied_over() -> None:
    action = decide_operand(FILE, live_object({**FILE.object, "data": {}}, ours=False))
    assert isinstance(action, ApplyOperand)


def test_a_foreign_runtime_class_with_the_same_handler_serves() -> None:
    assert decide_operand(CLASS, live_object(CLASS.object, ours=False, labels={})) is None
    other = {**CLASS.object, "handler": "mine"}
    action = decide_operand(CLASS, live_object(other, ours=False))
    assert isinstance(action, RefuseOperand)
    assert '"mine" instead of "nvidia"' in action.why


@pytest.mark.parametrize("made", [AGENT, CLASS])
def test_unwanted_operands_are_deleted_if_a_policy_decides(made: RenderedObject) -> None:
    there = live_object(made.object)
    action = decide_unwanted(there, kind=made.kind, decided=True)
    assert isinstance(action, DeleteOperand)
    assert not action.orphan
    assert decide_unwanted(there, kind=made.kind, decided=False) is None
    theirs = live_object(made.object, ours=False)
    assert decide_unwanted(theirs, kind=made.kind, decided=True) is None


def test_unwanted_drivers_and_config_maps_stay() -> None:
    for made in (DRIVER, FILE):
        assert decide_unwanted(live_object(made.object), kind=made.kind, decided=True) is None
