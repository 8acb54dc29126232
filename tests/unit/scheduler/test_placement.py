"""Whether displaced pods fit on other nodes."""

from typing import Any

import pytest

from services.scheduler.placement import Placement, devices_of, displaced
from services.scheduler.resources import Node, Pod
from tests.builders import objects
from tests.builders.objects import GPU, seen


def node(name: str, gpus: int = 8, *, ready: bool = True, labels: Any = None, **spec: Any) -> Node:
    return seen(Node, objects.node(name, gpus=gpus, ready=ready, labels=labels, spec=spec))


def pod(name: str, gpus: int, on: str = "a", **spec: Any) -> Pod:
    meta = {"namespace": "ml", "uid": name}
    return seen(Pod, objects.pod(name, gpus=gpus, node=on, meta=meta, **spec))


def without_place(nodes: list[Node], pods: list[Pod], of: str = "a") -> dict[str, str]:
    placement = Placement(nodes)
    for each in pods:
        placement.hold(each)
    needs = [displaced(each) for each in pods if each.spec.node_name == of]
    return placement.without_place(of, [need for need in needs if need is not None])


def test_a_pod_fits_where_as_many_devices_are_free() -> None:
    nodes = [node("a"), node("b")]
    assert without_place(nodes, [pod("p", 4), pod("other", 4, "b")]) == {}
    full = without_place(nodes, [pod("p", 4), pod("other", 5, "b")])
    assert full == {"p": f"4 {GPU}: at most 3 {GPU} are free on a node that it permits"}


def test_pods_whose_devices_come_by_claims_are_not_judged() -> None:
    by_claims = node("a")
    del by_claims.status.allocatable[GPU]
    assert without_place([by_claims, node("b", 0)], [pod("p", 1)]) == {}
    assert without_place([node("a"), node("b", 0)], [pod("p", 1)]).keys() == {"p"}


def test_pods_of_one_node_do_not_share_what_is_free() -> None:
    nodes = [node("a"), node("b", 6)]
    assert without_place(nodes, [pod("p", 4), pod("q", 4)]).keys() == {"q"}
    assert without_place(nodes, [pod("p", 4), pod("q", 2)]) == {}


def test_a_large_pod_is_not_kept_out_by_a_small_one() -> None:
    nodes = [node("a"), node("b", 8), node("c", 2)]
    assert without_place(nodes, [pod("a-small", 2), pod("z-large", 8)]) == {}


@pytest.mark.parametrize(
    "closed", [{"unschedulable": True}, {"ready": False}, {"gpus": 0}], ids=str
)
def test_a_closed_node_takes_nothing(closed: dict[str, Any]) -> None:
    assert without_place([node("a"), node("b", **closed)], [pod("p", 1)]).keys() == {"p"}


def test_taints_keep_out_what_does_not_tolerate_them() -> None:
    taint = {"key": "team", "value": "ml", "effect": "NoSchedule"}
    nodes = [node("a"), node("b", taints=[taint])]
    nobody = "its selectors and tolerations permit no other node that is open now"
    assert without_place(nodes, [pod("p", 1)]) == {"p": f"1 {GPU}: {nobody}"}
    for toleration in (
        {"operator": "Exists"},
        {"key": "team", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "value": "ml"},
        {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
    ):
        assert without_place(nodes, [pod("p", 1, tolerations=[toleration])]) == {}
    for other in ({"key": "team", "value": "web"}, {"operator": "Exists", "effect": "NoExecute"}):
        assert without_place(nodes, [pod("p", 1, tolerations=[other])]).keys() == {"p"}


def test_a_taint_that_only_prefers_keeps_nothing_out() -> None:
    soft = {"key": "x", "effect": "PreferNoSchedule"}
    assert without_place([node("a"), node("b", taints=[soft])], [pod("p", 1)]) == {}


def test_selectors_and_required_affinity_choose_nodes() -> None:
    nodes = [node("a"), node("b", labels={"product": "H100"})]
    assert without_place(nodes, [pod("p", 1, nodeSelector={"product": "H100"})]) == {}
    assert without_place(nodes, [pod("p", 1, nodeSelector={"product": "A100"})]).keys() == {"p"}

    def wants(*products: str) -> dict[str, Any]:
        term = {"matchExpressions": [{"key": "product", "operator": "In", "values": products}]}
        required = {"nodeSelectorTerms": [term]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}

    assert without_place(nodes, [pod("p", 1, affinity=wants("H100", "H200"))]) == {}
    assert without_place(nodes, [pod("p", 1, affinity=wants("H200"))]).keys() == {"p"}


def test_what_cannot_be_judged_is_not_said_to_fit_nowhere() -> None:
    nodes = [node("a"), node("b", 0)]
    assert without_place(nodes, [pod("cpu", 0)]) == {}
    unreadable = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": 7}}
    assert without_place(nodes, [pod("p", 1, affinity=unreadable)]) == {}


def test_init_containers_hold_their_devices_before_the_others() -> None:
    init = {"name": "i", "resources": {"limits": {GPU: "3"}}}
    assert devices_of(pod("p", 2, initContainers=[init])) == {GPU: 3}
    assert devices_of(pod("p", 4, initContainers=[init])) == {GPU: 4}
