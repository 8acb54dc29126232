"""Whether an operand is applied, deleted or refused."""

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
from services.driver.cluster.plan import ObjectKey, OperandPlan
from tests.unit.driver.cluster.builders import driver_of, live_object, node, plan, with_handlers
from tests.unit.policy.situations import cluster_policy

MONITORED = cluster_policy(dcgmExporter={"serviceMonitor": {"enabled": True}})
OBJECTS = plan(
    MONITORED, nodes=(with_handlers(node(), "nvidia", "nvidia-cdi"),), has_monitors=True
).objects
AGENT = OBJECTS[ObjectKey("DaemonSet", "sluice-telemetry-agent")]
CONFIG_MAP = OBJECTS[ObjectKey("ConfigMap", "sluice-driver-startup-probe")]
RUNTIME_CLASS = OBJECTS[ObjectKey("RuntimeClass", "nvidia")]
CDI_CLASS = OBJECTS[ObjectKey("RuntimeClass", "nvidia-cdi")]
SERVICE = OBJECTS[ObjectKey("Service", "nvidia-dcgm-exporter")]
MONITOR = OBJECTS[ObjectKey("ServiceMonitor", "nvidia-dcgm-exporter")]
UNDECIDED = plan(cluster_policy(driver={"version": "1"}))
"""The plan for a policy with errors."""
WITHOUT_CDI = plan(cluster_policy(cdi={"enabled": False}))
DRIVER = driver_of(plan())
OWNERS = [{"kind": "ClusterPolicy", "name": "p", "uid": "1"}]


@pytest.mark.parametrize("wanted", [AGENT, CONFIG_MAP, RUNTIME_CLASS, DRIVER, SERVICE, MONITOR])
def test_an_operand_is_applied_if_it_is_missing_or_edited(wanted: RenderedObject) -> None:
    assert isinstance(decide_operand(wanted, None), ApplyOperand)
    assert decide_operand(wanted, live_object(wanted.object)) is None
    action = decide_operand(wanted, live_object(wanted.object, labels={}))
    assert isinstance(action, ApplyOperand)
    assert action.because.startswith("metadata.labels")
    deleting = live_object(wanted.object, labels={}, deletionTimestamp="2027-01-15T08:00:00Z")
    assert decide_operand(wanted, deleting) is None


@pytest.mark.parametrize(
    ("wanted", "changes", "words"),
    [
        (CONFIG_MAP, {"data": {}}, "sluice-driver-startup-probe exists and was not created by"),
        (AGENT, {}, "sluice-telemetry-agent exists and was not created by Sluice"),
        (RUNTIME_CLASS, {"handler": "mine"}, '"mine" instead of "nvidia"'),
    ],
)
def test_a_foreign_object_under_our_name_is_refused(
    wanted: RenderedObject, changes: dict[str, Any], words: str
) -> None:
    action = decide_operand(wanted, live_object({**wanted.object, **changes}, ours=False))
    assert isinstance(action, RefuseOperand)
    assert words in action.why


@pytest.mark.parametrize("wanted", [AGENT, CONFIG_MAP, DRIVER, SERVICE, MONITOR])
@pytest.mark.parametrize(
    "origin", [{"ownerReferences": OWNERS}, {"annotations": {"nvidia.com/last-applied-hash": "1"}}]
)
def test_an_object_of_the_gpu_operator_is_never_taken_over(
    wanted: RenderedObject, origin: dict[str, Any]
) -> None:
    foreign = live_object(wanted.object, ours=False, **origin)
    action = decide_operand(wanted, foreign)
    assert isinstance(action, RefuseOperand)
    assert f"{wanted.kind} {wanted.name} " in action.why


def test_an_equal_foreign_runtime_class_is_used() -> None:
    foreign = live_object(RUNTIME_CLASS.object, ours=False, labels={})
    assert decide_operand(RUNTIME_CLASS, foreign) is None


@pytest.mark.parametrize(
    ("rendered", "ours", "policies", "deleted"),
    [
        (AGENT, True, WITHOUT_CDI, True),
        (CDI_CLASS, True, WITHOUT_CDI, True),
        (CDI_CLASS, True, plan(nodes=(node(),)), False),
        (RUNTIME_CLASS, True, WITHOUT_CDI, False),
        (AGENT, True, UNDECIDED, False),
        (CDI_CLASS, True, UNDECIDED, False),
        (CDI_CLASS, False, WITHOUT_CDI, False),
        (DRIVER, True, WITHOUT_CDI, False),
        (CONFIG_MAP, True, WITHOUT_CDI, False),
        (SERVICE, True, WITHOUT_CDI, True),
        (MONITOR, True, WITHOUT_CDI, True),
        (MONITOR, False, WITHOUT_CDI, False),
        (MONITOR, True, UNDECIDED, False),
    ],
)
def test_unwanted_operands_are_deleted_if_a_policy_decides(
    rendered: RenderedObject, ours: bool, policies: OperandPlan, deleted: bool
) -> None:
    live = live_object(rendered.object, ours=ours)
    action = decide_unwanted(live, policies, kind=rendered.kind)
    if deleted:
        assert isinstance(action, DeleteOperand)
    else:
        assert action is None
