"""Evicted pods, what is lost with them, and the disruption budgets that keep them."""

import pytest
from msgspec.structs import replace

from libs.contracts.reports import PodUse, Usage
from libs.forecast.pods import PodEffects
from libs.rollout.views.machine import EvictionExemption, PodEviction, WorkloadPod
from libs.rollout.views.node import NodeView
from tests.unit.forecast.builders import gpu_pod, old_node, pool_with_limits
from tests.unit.rollout.builders import NOW, fleet


def pods(*nodes: NodeView) -> PodEffects:
    return PodEffects(fleet(pool_with_limits(), *nodes))


def leaving(uid: str, refused: str = "") -> PodEviction:
    return PodEviction(uid=uid, since=NOW, refused=refused, by_force=False)


def test_pods_are_named_or_given_by_uid() -> None:
    watched = replace(old_node("node-1", gpu_pod("a")), usage=None)
    reported = replace(
        old_node("node-2"),
        pods=None,
        usage=Usage(
            pods=(
                PodUse(pod_uid="uid-b", gpus=1, processes=1),
                PodUse(pod_uid="uid-c", gpus=0, processes=1),
            )
        ),
    )
    known = pods(watched, reported)
    assert known.evicted(("uid-d", "uid-c", "uid-b", "uid-a")) == (
        "ml/a",
        "the pod with uid uid-b",
    )


def test_nodes_without_watched_pods_are_counted() -> None:
    unseen = [replace(old_node(name), pods=None) for name in ("node-1", "node-2")]
    assert pods(*unseen, old_node("node-3", gpu_pod("a"))).unwatched_nodes == 2
    assert pods(old_node("node-3", gpu_pod("a"))).unwatched_nodes == 0


def test_losses_of_a_pod_are_listed() -> None:
    lone, gang = gpu_pod("a", bare=True, empty_dir=True), gpu_pod("b", gang="ring")
    known = pods(
        old_node("node-1", lone, gang), old_node("node-2", gpu_pod("c", gang="ring"), gpu_pod("d"))
    )
    assert known.lost(("uid-a", "uid-b", "uid-d", "uid-else")) == (
        "ml/a (bare: nothing recreates it; emptyDir: its files are deleted)",
        "ml/b (of gang ring, which stops as a whole: 1 more pods known)",
    )


@pytest.mark.parametrize(
    ("pod", "kept"),
    [
        (gpu_pod("a", budget="ml/a"), True),
        (gpu_pod("a"), False),
        (gpu_pod("a", budget="ml/a", exemption=EvictionExemption.DAEMON_SET), False),
        (gpu_pod("a", budget="ml/a", gpu=False), False),
        (gpu_pod("a", budget="ml/a", gpu=False, drained=True), True),
    ],
)
def test_a_disruption_budget_blocks_a_pod_to_evict(pod: WorkloadPod, kept: bool) -> None:
    node = old_node("node-1", pod)
    assert pods(node).blocked_by(node) == (("ml/a (keeps ml/a)",) if kept else ())


def test_a_refusal_is_listed_once() -> None:
    node = replace(
        old_node("node-1", gpu_pod("a", budget="ml/a"), gpu_pod("b"), gpu_pod("c")),
        evictions=(
            leaving("uid-a", "no"),
            leaving("uid-b", "not yet"),
            leaving("uid-c"),
            leaving("uid-d", "never"),
        ),
    )
    assert pods(node).blocked_by(node) == (
        "ml/a (keeps ml/a)",
        "ml/b: not yet",
        "the pod with uid uid-d: never",
    )


def test_pods_without_a_place_are_named_with_the_reason() -> None:
    known = pods(old_node("node-1", gpu_pod("a", no_place="8 GPUs: none free"), gpu_pod("b")))
    assert known.without_place(("uid-a", "uid-b", "uid-else")) == ("ml/a (8 GPUs: none free)",)
