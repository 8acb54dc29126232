"""What is done about the pod that confirms a validation, decided from the Node and the pods."""

from typing import Any

import pytest

from libs.contracts.node import UpgradeState, ValidationPod
from libs.policy.kinds.cluster_policy import ClusterPolicy
from libs.policy.render.validation_pod import render_validation_pod, validation_pod_name
from services.driver.cluster.resources import Node, ValidatingPod
from services.driver.cluster.validation_pod_steps import (
    CreatePod,
    DeletePod,
    PodStep,
    Tell,
    pod_steps,
)
from tests.builders import objects
from tests.builders.fleet import record, written
from tests.builders.objects import seen
from tests.unit.policy.situations import SETTINGS

UID = "uid-a"
ORDER = "7.3"
GPU = {"nvidia.com/gpu": "2"}
NAME = validation_pod_name(UID, ORDER)
CREATE = CreatePod(order=ORDER, resource="nvidia.com/gpu")
DELETE = DeletePod(name=NAME, uid="pod-1")


def outcome(passed: bool | None = None, message: str = "", *, order: str = ORDER) -> ValidationPod:
    return ValidationPod(node_uid=UID, order=order, passed=passed, message=message)


PASSED = outcome(True, "a pod that asked for a GPU computed on it")


def node(
    *,
    asks: str = ORDER,
    state: str = UpgradeState.VALIDATION_REQUIRED,
    told: ValidationPod | None = None,
    offers: dict[str, str] = GPU,
    uid: str = UID,
) -> Node:
    asking = record(node_uid=UID, token=7, state=state, validation_pod=asks)
    notes = written(asking, validation_pod=told)
    whole = objects.node(uid=uid, annotations=notes)
    return seen(Node, {**whole, "status": {"allocatable": offers}})


def pod(
    phase: str = "Pending",
    *,
    name: str = NAME,
    reason: str = "",
    state: dict[str, Any] | None = None,
    owner: str = UID,
    deleting: bool = False,
) -> ValidatingPod:
    meta: dict[str, Any] = {
        "uid": "pod-1",
        "ownerReferences": [{"kind": "Node", "name": "a", "uid": owner}],
        "deletionTimestamp": "2026-01-01T00:00:00Z" if deleting else None,
    }
    shown = [] if state is None else [{"name": "plugin-validation", "state": state}]
    status = {"phase": phase, "reason": reason, "containerStatuses": shown}
    return seen(ValidatingPod, objects.pod(name, node="a", status=status, meta=meta))


def ended(code: int, message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": message}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def steps(about: Node | None, *pods: ValidatingPod, **more: object) -> list[PodStep]:
    return list(pod_steps("a", about, pods, **more))  # pyright: ignore[reportArgumentType]


def test_a_pod_is_made_as_long_as_there_is_none() -> None:
    assert steps(node()) == [CREATE]
    assert steps(node(), is_paused=True) == []
    assert steps(node(), pod(deleting=True)) == [CREATE]
    assert steps(node(), pod()) == []
    assert steps(node(told=outcome(message="exceeded quota")), pod()) == [Tell(outcome=None)]


def test_it_asks_for_a_mig_device_where_there_are_some() -> None:
    both = {**GPU, "nvidia.com/mig-1g.10gb": "14", "nvidia.com/mig-2g.20gb": "0"}
    assert steps(node(offers=both)) == [CreatePod(order=ORDER, resource="nvidia.com/mig-1g.10gb")]
    none = outcome(message="the node has no GPU that pods can ask for")
    assert steps(node(offers={"nvidia.com/gpu": "0"})) == [Tell(outcome=none)]


def test_a_refusal_is_told_and_the_pod_is_tried_again() -> None:
    told = outcome(message="exceeded quota")
    assert steps(node(), refused="exceeded quota", is_paused=True) == [Tell(outcome=told)]
    assert steps(node(told=told), refused="exceeded quota") == [CREATE]


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (pod("Succeeded", state=ended(0)), PASSED),
        (pod("Failed", state=ended(1, "the GPU is lost\n")), outcome(False, "the GPU is lost")),
        (pod("Failed", state=ended(1)), outcome(False, "its container failed")),
        (pod("Failed", reason="DeadlineExceeded"), outcome(False, "DeadlineExceeded")),
        (
            pod(state=waiting("ErrImagePull", "no such image\x1b[31m")),
            outcome(message="ErrImagePull: no such image?[31m"),
        ),
    ],
)
def test_what_became_of_it_is_told(shown: ValidatingPod, told: ValidationPod) -> None:
    assert steps(node(), shown) == [Tell(outcome=told)]


@pytest.mark.parametrize("shown", [pod("Running"), pod(state=waiting("ContainerCreating"))])
def test_while_it_runs_nothing_is_written(shown: ValidatingPod) -> None:
    assert steps(node(), shown) == []


def test_an_outcome_is_final_and_ends_the_pod() -> None:
    shown = pod("Succeeded", state=ended(0))
    assert steps(node(told=PASSED), shown) == [DELETE]
    assert steps(node(told=PASSED)) == []
    failed = outcome(False, "the GPU is lost")
    assert steps(node(told=failed), shown) == [DELETE]


def test_a_pod_that_was_not_admitted_proves_nothing() -> None:
    told = outcome(message="the kubelet did not admit the pod: OutOfnvidia.com/gpu")
    refused = pod("Failed", reason="OutOfnvidia.com/gpu")
    assert steps(node(), refused, is_paused=True) == [DELETE, Tell(outcome=told)]


@pytest.mark.parametrize(
    "stale", [validation_pod_name(UID, "7.2"), validation_pod_name("x", ORDER)]
)
def test_a_stale_pod_proves_nothing_and_goes(stale: str) -> None:
    shown = pod("Succeeded", name=stale, state=ended(0))
    assert steps(node(), shown) == [DeletePod(name=stale, uid="pod-1")]
    assert steps(None, shown) == [DeletePod(name=stale, uid="pod-1")]


def test_a_pod_of_an_earlier_node_of_that_name_proves_nothing() -> None:
    assert steps(node(), pod("Succeeded", owner="uid-before", state=ended(0))) == [DELETE]
    assert steps(node(uid="uid-new")) == []


def test_what_was_told_about_another_validation_does_not_count() -> None:
    before = outcome(True, order="7.2")
    assert steps(node(told=before)) == [CREATE, Tell(outcome=None)]
    assert steps(node(told=before), pod()) == [Tell(outcome=None)]


def test_no_pod_is_made_for_an_earlier_lease_or_another_state() -> None:
    assert steps(node(asks="6.3")) == []
    assert steps(node(asks="")) == []
    assert steps(node(state=UpgradeState.POD_RESTART_REQUIRED), pod()) == [DELETE]


def test_an_outcome_stays_until_the_record_asks_for_none() -> None:
    failed = outcome(False, "no")
    state = UpgradeState.UPGRADE_FAILED
    assert steps(node(state=state, told=failed)) == []
    late = outcome(False, "exceeded quota")
    silent = outcome(False, "it did not end in time")
    assert steps(node(state=state), pod("Running")) == [DELETE, Tell(outcome=silent)]
    assert steps(node(state=state, told=outcome(message="exceeded quota"))) == [Tell(outcome=late)]
    done = node(asks="", state=UpgradeState.UPGRADE_DONE, told=failed)
    assert steps(done) == [Tell(outcome=None)]


def test_an_unreadable_record_asks_for_nothing() -> None:
    assert steps(seen(Node, objects.node(uid=UID, annotations=written("{")))) == []


def test_the_pod_may_do_nothing_but_compute() -> None:
    asked = {"node": "a", "node_uid": UID, "order": ORDER, "resource": "nvidia.com/gpu"}
    rendered = render_validation_pod(ClusterPolicy(), SETTINGS, **asked)
    spec = rendered["spec"]
    (container,) = spec["containers"]
    assert rendered["metadata"]["name"] == NAME
    assert (spec["nodeName"], spec["restartPolicy"]) == ("a", "Never")
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert "volumes" not in spec
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
