"""The engine's view of a Node, field by field."""

from collections.abc import Mapping
from typing import Any

import pytest

from libs.contracts import node as keys
from libs.contracts.facts import Cdi, ContainerRuntime, Facts
from libs.contracts.node import LeaseOwner, NodeLease, NodeRecord, NodeRequest
from libs.contracts.reports import Preflight
from libs.rollout.views.machine import PreflightQuery
from libs.rollout.views.node import MalformedAnnotation, NodeView
from services.scheduler.node_state import NodeState, NodeStates, PendingEviction, PreflightRequest
from services.scheduler.resources import Node, Pod
from services.scheduler.snapshot.node_view import NodeContext, node_view
from services.scheduler.snapshot.pools import PoolAssignment
from services.scheduler.snapshot.reports import NodeReports
from tests.builders import objects
from tests.builders.fleet import written
from tests.builders.objects import seen

LEASE = NodeLease(node_uid="u", owner=LeaseOwner.UPGRADE, token=3, since=1.0)
RECORD = NodeRecord(node_uid="u", epoch=1, token=3)


def view_of(
    *,
    labels: dict[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Any = None,
    ready: str = "True",
    **context: Any,
) -> NodeView:
    """Return the view of a Node decoded from JSON, as from a server."""
    body = objects.node(
        resourceVersion="7",
        creationTimestamp="2027-01-15T08:00:00Z",
        labels=labels,
        annotations=annotations,
        spec=spec,
        ready=ready,
        gpus=8,
        boot="b1",
        kernel="6.8",
    )
    body["status"]["conditions"].append(objects.condition("DiskPressure", "x"))
    return node_view(seen(Node, body), NodeContext(namespace="gpu-operator", **context))


def test_the_view_of_a_plain_node_has_its_facts_and_no_flag() -> None:
    view = view_of(assignment=PoolAssignment("p", "v"))
    assert (view.name, view.uid, view.revision, view.boot_id) == ("a", "u", "7", "b1")
    assert (view.kernel, view.created, view.gpus) == ("6.8", 1_800_000_000.0, 8)
    assert (view.pool, view.variant) == ("p", "v")
    assert view.ready
    flags = (view.cordoned, view.cordon_taint, view.upgrade_last, view.excluded, view.skip)
    assert not any(flags)
    assert (view.state, view.driver_label, view.lease, view.record) == ("", "", None, None)
    assert view.pods is None
    assert not any((view.write_pending, view.modules_reported, view.is_managed))


@pytest.mark.parametrize(
    ("ready", "expected"), [("True", True), ("False", False), ("Unknown", False)]
)
def test_a_node_is_ready_only_if_its_kubelet_says_so(ready: str, expected: bool) -> None:
    assert view_of(ready=ready).ready is expected


def test_a_cordon_and_its_taint_are_seen() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    view = view_of(spec={"unschedulable": True, "taints": [taint]})
    assert (view.cordoned, view.cordon_taint) == (True, True)


def test_the_label_names_a_configuration_of_the_plugin_where_the_policy_has_some() -> None:
    labels = {keys.PLUGIN_CONFIG_LABEL: "shared"}
    assert view_of(labels=labels, chooses_plugin_config=True).plugin_config == "shared"
    assert view_of(chooses_plugin_config=True).plugin_config == ""
    assert view_of(labels=labels).plugin_config == ""


def test_what_the_scheduler_wrote_is_read_back() -> None:
    view = view_of(
        labels={keys.STATE_LABEL: "upgrade-done", keys.DRIVER_LABEL: "l"},
        annotations={
            **written(RECORD, LEASE),
            keys.INITIALLY_CORDONED_ANNOTATION: "true",
        },
    )
    assert (view.state, view.driver_label, view.initially_cordoned) == ("upgrade-done", "l", True)
    assert (view.lease, view.record) == (LEASE, RECORD)


def test_malformed_annotations_carry_the_error() -> None:
    malformed: dict[str, str] = {keys.LEASE_ANNOTATION: "{", keys.RECORD_ANNOTATION: "{"}
    view = view_of(annotations=malformed)
    assert isinstance(view.lease, MalformedAnnotation)
    assert isinstance(view.record, MalformedAnnotation)
    assert view.record.reason


def test_labels_and_annotations_set_by_users() -> None:
    view = view_of(
        labels={keys.SKIP_LABEL: "true", keys.KEEP_CORDONED_LABEL: "true"},
        annotations={
            keys.REQUEST_ANNOTATION: "adopt",
            keys.REQUESTED_ANNOTATION: "true",
            keys.SAFE_LOAD_ANNOTATION: "true",
        },
    )
    assert (view.skip, view.keep_cordoned) == (True, True)
    assert (view.request, view.requested, view.safe_load) == (NodeRequest.ADOPT, True, True)


def test_empty_values_are_absent() -> None:
    absent: tuple[str, ...] = (
        keys.REQUEST_ANNOTATION,
        keys.REQUESTED_ANNOTATION,
        keys.SAFE_LOAD_ANNOTATION,
        keys.RECORD_ANNOTATION,
        keys.LEASE_ANNOTATION,
    )
    empty: dict[str, str] = dict.fromkeys(absent, "")
    view = view_of(annotations=empty)
    assert (view.request, view.requested, view.safe_load) == (None, False, False)
    assert (view.record, view.lease) == (None, None)


@pytest.mark.parametrize("key", ["driver", "operands"])
def test_a_label_without_operands_or_driver_excludes_the_node(key: str) -> None:
    assert view_of(labels={f"nvidia.com/gpu.deploy.{key}": "false"}).excluded
    assert not view_of(labels={f"nvidia.com/gpu.deploy.{key}": "true"}).excluded


def test_nodes_of_the_control_plane_are_upgraded_last() -> None:
    assert view_of(labels={"node-role.kubernetes.io/control-plane": ""}).upgrade_last
    assert view_of(runs_control_plane=True).upgrade_last


def pod(name: str, **meta: Any) -> Pod:
    return seen(Pod, objects.pod(name, meta={"namespace": "ml", "uid": name, **meta}))


def test_driver_pods_are_not_workload_pods() -> None:
    driver = pod("d", labels={keys.DRIVER_LABEL: "l"})
    view = view_of(driver_pods=(driver,), pods=(driver, pod("t")))
    assert [each.uid for each in view.driver_pods] == ["d"]
    assert view.pods is not None
    assert [each.uid for each in view.pods] == ["t"]


def test_a_deleted_pod_has_no_pending_eviction() -> None:
    state = NodeState(
        evictions={"t": PendingEviction(since=1.0, refused="no"), "u": PendingEviction(since=2.0)}
    )
    (each,) = view_of(state=state, pods=(pod("t"),)).evictions
    assert (each.uid, each.since, each.refused) == ("t", 1.0, "no")


QUERY = PreflightQuery(label="l", asked_at=5.0)


def test_a_preflight_of_another_boot_is_ignored() -> None:
    request = PreflightRequest(id="1", boot_id="b1", query=QUERY)
    assert view_of(state=NodeState(evictions={}, preflight=request)).preflight == QUERY
    other = PreflightRequest(id="1", boot_id="b0", query=QUERY)
    assert view_of(state=NodeState(evictions={}, preflight=other)).preflight is None


def test_only_the_first_answer_to_the_latest_preflight_counts() -> None:
    states = NodeStates()
    state = states.of_uid("a", "u")
    state.preflight = PreflightRequest(id="2", boot_id="b1", query=QUERY)
    states.record_answer("a", Preflight(check="1", label="l"), at=6.0)
    assert state.preflight.query == QUERY
    states.record_answer("a", Preflight(check="2", label="l"), at=7.0)
    states.record_answer("a", Preflight(check="2", label="l"), at=9.0)
    assert state.preflight.query.answered_at == 7.0
    assert states.of_uid("a", "another").preflight is None


def test_without_reports_nothing_is_known() -> None:
    view = view_of(reports=NodeReports())
    assert (view.loaded, view.gate, view.evidence, view.usage) == (None, None, None, None)
    assert dict(view.components) == {}


def test_a_reason_why_containers_lack_gpus_is_kept_as_far_as_it_is_safe_to_show() -> None:
    def reason(cdi: Cdi | None) -> str:
        return view_of(reports=NodeReports(facts=Facts(cdi=cdi))).no_gpus

    assert reason(None) == reason(Cdi(devices=("GPU-0",))) == ""
    assert reason(Cdi(why="no NVIDIA driver is loaded")) == "no NVIDIA driver is loaded"
    assert reason(Cdi(why="a\x1b[31m" + "b" * 1000)) == "a?[31m" + "b" * 393 + "…"


def test_what_the_driver_agent_says_of_the_container_runtime_is_kept() -> None:
    runtime = ContainerRuntime(name="containerd", why="does not know the handlers nvidia\x1b[31m")
    facts = Facts(cdi=Cdi(devices=("GPU-0",), digest="one"), container_runtime=runtime)
    view = view_of(reports=NodeReports(facts=facts))
    assert view.runtime_problem == "does not know the handlers nvidia?[31m"
    assert view.runtime_digest == "one"
    nothing = view_of(reports=NodeReports(facts=Facts()))
    assert (nothing.runtime_problem, nothing.runtime_digest) == ("", "")
