"""What a DaemonSet wants, decided from what the caches hold."""

from typing import Any

import msgspec
import pytest

from libs.kube.times import parse_time
from libs.kube.views import Taint
from libs.testing.cluster.daemonsets import revisions, rolling_update
from libs.testing.cluster.daemonsets.plan import (
    GENERATION_ANNOTATION,
    DaemonTemplate,
    NodeEligibility,
    by_node,
    plan_pods,
    pod_for,
    target_node,
)
from libs.testing.cluster.daemonsets.status import as_patch, status
from libs.testing.cluster.views import ControllerRevision, DaemonSet, Pod
from tests.component.testing.cluster.builders import EPOCH, cached_daemon_set, node, pod

NOW = parse_time(EPOCH) + 1_000.0
GPU = {"gpu": "yes"}


def _ordered(daemon_set: DaemonSet, nodes: list[str], *pods: Pod) -> tuple[list[str], list[str]]:
    """Nodes to create on and pods to delete; the nodes are all of the selector."""
    known = {name: node(name, labels=GPU) for name in nodes}
    found = plan_pods(DaemonTemplate(daemon_set), known, by_node(pods))
    return list(found.create), [each.metadata.name for each in (*found.delete, *found.failed)]


def test_a_pod_belongs_on_each_node_of_the_selector() -> None:
    wanted = DaemonTemplate(cached_daemon_set(selector=GPU))
    assert wanted.eligibility(node("n1", labels=GPU)) == NodeEligibility(
        should_run=True, should_continue=True
    )
    assert wanted.eligibility(node("n2", labels={"gpu": "no"})) == NodeEligibility(
        should_run=False, should_continue=False
    )


@pytest.mark.parametrize(
    ("taint", "wish"),
    [
        (
            Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"),
            NodeEligibility(True, True),
        ),
        (
            Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"),
            NodeEligibility(True, True),
        ),
        (
            Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),
            NodeEligibility(False, True),
        ),
        (Taint(key="theirs", effect="NoSchedule"), NodeEligibility(False, True)),
        (Taint(key="theirs", effect="NoExecute"), NodeEligibility(False, False)),
        (Taint(key="theirs", effect="PreferNoSchedule"), NodeEligibility(True, True)),
    ],
)
def test_a_taint_keeps_new_pods_off_or_drives_old_ones_out(
    taint: Taint, wish: NodeEligibility
) -> None:
    assert (
        DaemonTemplate(cached_daemon_set(selector=GPU)).eligibility(
            node("n1", labels=GPU, taints=(taint,))
        )
        == wish
    )


def test_only_host_network_pods_bear_a_node_without_network() -> None:
    taint = Taint(key="node.kubernetes.io/network-unavailable", effect="NoSchedule")
    here = node("n1", taints=(taint,))
    assert not DaemonTemplate(cached_daemon_set()).eligibility(here).should_run
    assert DaemonTemplate(cached_daemon_set(hostNetwork=True)).eligibility(here).should_run


def test_a_pod_is_created_where_none_is() -> None:
    daemon_set = cached_daemon_set(selector=GPU)
    assert _ordered(daemon_set, ["n1", "n2"], pod("a", node="n1")) == (["n2"], [])


def test_a_pod_on_its_way_out_is_waited_for() -> None:
    daemon_set = cached_daemon_set(selector=GPU)
    assert _ordered(daemon_set, ["n1"], pod("a", node="n1", deleting=True)) == ([], [])


def test_of_two_on_a_node_the_older_one_stays() -> None:
    younger = pod("a", node="n1", created="2027-01-15T09:00:00Z")
    assert _ordered(cached_daemon_set(selector=GPU), ["n1"], younger, pod("b", node="n1")) == (
        [],
        ["a"],
    )


def test_what_ended_is_deleted_first_and_replaced_when_it_is_gone() -> None:
    daemon_set = cached_daemon_set(selector=GPU)
    for phase in ("Failed", "Succeeded"):
        assert _ordered(daemon_set, ["n1"], pod("a", node="n1", phase=phase)) == ([], ["a"])


def test_a_pod_of_a_node_that_is_gone_or_not_meant_is_deleted() -> None:
    daemon_set = cached_daemon_set(selector=GPU)
    assert _ordered(daemon_set, [], pod("a", node="n1")) == ([], ["a"])
    found = plan_pods(
        DaemonTemplate(daemon_set), {"n1": node("n1")}, by_node([pod("a", node="n1")])
    )
    assert [each.metadata.name for each in found.delete] == ["a"]


def test_the_pod_for_a_node_is_meant_for_it_alone_and_bears_what_daemons_bear() -> None:
    daemon_set = cached_daemon_set(selector=GPU)
    meta = msgspec.structs.replace(daemon_set.metadata, annotations={GENERATION_ANNOTATION: "3"})
    daemon_set = msgspec.structs.replace(daemon_set, metadata=meta)
    made = pod_for(daemon_set, "n7", revision="abc")
    assert made["metadata"]["labels"] == {
        "app": "d",
        "controller-revision-hash": "abc",
        "pod-template-generation": "3",
    }
    assert made["metadata"]["generateName"] == "d-"
    assert {each["key"].partition("/")[2] for each in made["spec"]["tolerations"]} == {
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
    }
    made["metadata"] |= {"name": "d-x", "uid": "u", "resourceVersion": "1"}
    assert target_node(msgspec.convert(made, Pod)) == "n7"
    assert "affinity" not in daemon_set.spec.template["spec"]


# Revisions


def _revision(daemon_set: DaemonSet, number: int) -> ControllerRevision:
    found = revisions.find_revision(daemon_set, [])
    assert isinstance(found, revisions.MissingRevision)
    wanted = {**found.wanted, "revision": number}
    return msgspec.convert(wanted, ControllerRevision)


def test_equal_templates_have_equal_hashes_whatever_the_daemon_set() -> None:
    one, other = cached_daemon_set("a"), cached_daemon_set("b")
    template = one.spec.template
    shuffled = dict(reversed(template.items()))
    assert revisions.template_hash(template) == revisions.template_hash(shuffled)
    assert revisions.template_hash(template) != revisions.template_hash(other.spec.template)
    assert len(revisions.template_hash(template)) == 10
    assert revisions.template_hash(template) != revisions.template_hash(template, collisions=1)


def test_a_template_that_is_new_gets_the_next_number() -> None:
    old = _revision(cached_daemon_set(image="driver:1"), 4)
    found = revisions.find_revision(cached_daemon_set(image="driver:2"), [old])
    assert isinstance(found, revisions.MissingRevision)
    assert found.wanted["revision"] == 5
    assert found.wanted["metadata"]["name"] == f"d-{found.hash}"
    assert found.wanted["data"]["spec"]["template"]["$patch"] == "replace"


def test_a_template_of_before_becomes_the_newest_again() -> None:
    first, second = cached_daemon_set(image="driver:1"), cached_daemon_set(image="driver:2")
    history = [_revision(first, 1), _revision(second, 2)]
    assert revisions.find_revision(second, history) == revisions.CurrentRevision(history[1])
    assert revisions.find_revision(first, history) == revisions.OutdatedRevision(history[0], 3)


def test_old_revisions_are_forgotten_beyond_the_limit_unless_a_pod_is_of_them() -> None:
    history = [_revision(cached_daemon_set(image=f"driver:{n}"), n) for n in range(1, 14)]
    live = pod("a", node="n1", revision=revisions.hash_of(history[0]))
    gone = revisions.forgettable(
        cached_daemon_set(image="driver:13"),
        history,
        [live],
        current=revisions.hash_of(history[-1]),
    )
    assert [each.revision for each in gone] == [2]


# A rolling update


def _replaceable(*pods: Pod, limit: int | str, nodes: int = 4) -> list[str]:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit}}
    found = rolling_update.replaceable(
        cached_daemon_set(strategy=strategy),
        {f"n{number}": node(f"n{number}") for number in range(nodes)},
        by_node(pods),
        revision="new",
        now=NOW,
    )
    return [each.metadata.name for each in found]


def _old(number: int, **more: Any) -> Pod:
    return pod(f"old{number}", node=f"n{number}", revision="old", **more)


def test_a_rolling_update_takes_as_many_as_may_be_unavailable() -> None:
    olds = [_old(number) for number in range(4)]
    assert _replaceable(*olds, limit=1) == ["old0"]
    assert _replaceable(*olds, limit="50%") == ["old0", "old1"]
    assert _replaceable(*olds, limit="10%") == ["old0"]


def test_what_is_unavailable_for_any_reason_counts() -> None:
    olds = [_old(number) for number in range(1, 4)]
    assert _replaceable(*olds, limit=1) == []
    assert _replaceable(_old(0, deleting=True), *olds, limit=1) == []
    new = pod("new0", node="n0", revision="new", ready=False)
    assert _replaceable(new, *olds, limit=1) == []
    assert _replaceable(new, *olds, limit=2) == ["old1"]


def test_an_old_pod_that_does_not_work_goes_whatever_the_limit() -> None:
    olds = [_old(0), _old(1, ready=False), _old(2), _old(3)]
    assert _replaceable(*olds, limit=1) == ["old1", "old0"]
    new = pod("new0", node="n0", revision="new", ready=False)
    assert _replaceable(new, *olds[1:], limit=1) == ["old1"]


def test_a_pod_is_available_when_it_was_ready_for_long_enough() -> None:
    one = pod("a", since=EPOCH)
    assert rolling_update.available(one, min_ready=10, now=parse_time(EPOCH) + 10)
    assert not rolling_update.available(one, min_ready=10, now=parse_time(EPOCH) + 9)
    assert not rolling_update.available(pod("b", ready=False), min_ready=0, now=NOW)


# Status


def test_the_status_counts_nodes_not_pods() -> None:
    nodes = {
        "n1": node("n1", labels=GPU),
        "n2": node("n2", labels=GPU),
        "n3": node("n3", labels=GPU),
        "n4": node("n4"),
    }
    pods = [
        pod("a", node="n1", revision="new"),
        pod("b", node="n2", revision="old", ready=False),
        pod("c", node="n4", revision="old"),
    ]
    found = status(cached_daemon_set(selector=GPU), nodes, by_node(pods), revision="new", now=NOW)
    assert as_patch(found) == {
        "observedGeneration": 1,
        "desiredNumberScheduled": 3,
        "currentNumberScheduled": 2,
        "numberMisscheduled": 1,
        "numberReady": 1,
        "updatedNumberScheduled": 1,
        "numberAvailable": 1,
        "numberUnavailable": 2,
        "collisionCount": None,
    }


def test_a_revision_of_another_template_under_the_wanted_name_is_a_collision() -> None:
    one = cached_daemon_set(image="driver:1")
    other = _revision(cached_daemon_set(image="driver:2"), 1)
    assert revisions.collides(one, other)
    assert not revisions.collides(one, _revision(one, 1))
