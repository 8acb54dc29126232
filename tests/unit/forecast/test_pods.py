"""What is said of pods: those that leave, what is lost with them, and who keeps them."""

import pytest
from msgspec.structs import replace

from libs.contracts.reports import PodUse, Usage
from libs.forecast.pods import Pods
from libs.rollout.views.machine import Leaving, Shelter, WorkPod
from libs.rollout.views.node import NodeView
from tests.unit.forecast.plays import old, places, work
from tests.unit.rollout.building import NOW, fleet


def pods(*nodes: NodeView) -> Pods:
    return Pods(fleet(places(), *nodes))


def leaving(uid: str, refused: str = "") -> Leaving:
    return Leaving(uid=uid, since=NOW, refused=refused, by_force=False)


def test_pods_are_named_by_what_is_known_of_them() -> None:
    seen = replace(old("node-1", work("a")), usage=None)
    told = replace(
        old("node-2"),
        pods=None,
        usage=Usage(
            pods=(
                PodUse(pod_uid="uid-b", gpus=1, processes=1),
                PodUse(pod_uid="uid-c", gpus=0, processes=1),
            )
        ),
    )
    known = pods(seen, told)
    assert known.evicted(("uid-d", "uid-c", "uid-b", "uid-a")) == (
        "ml/a",
        "the pod with uid uid-b",
    )


def test_nodes_at_whose_pods_nobody_has_looked_are_counted() -> None:
    unseen = [replace(old(name), pods=None) for name in ("node-1", "node-2")]
    assert pods(*unseen, old("node-3", work("a"))).unseen == 2
    assert pods(old("node-3", work("a"))).unseen == 0


def test_with_a_pod_goes_what_nobody_makes_anew() -> None:
    lone, gang = work("a", bare=True, empty_dir=True), work("b", gang="ring")
    known = pods(old("node-1", lone, gang), old("node-2", work("c", gang="ring"), work("d")))
    assert known.lost(("uid-a", "uid-b", "uid-d", "uid-else")) == (
        "ml/a (bare: nobody makes it anew; emptyDir: its files go with it)",
        "ml/b (of gang ring, which stops as a whole: 1 more pods are known)",
    )


@pytest.mark.parametrize(
    ("pod", "kept"),
    [
        (work("a", budget="ml/a"), True),
        (work("a"), False),
        (work("a", budget="ml/a", shelter=Shelter.DAEMON_SET), False),
        (work("a", budget="ml/a", gpu=False), False),
        (work("a", budget="ml/a", gpu=False, drained=True), True),
    ],
)
def test_a_budget_is_in_the_way_of_a_pod_that_has_to_leave(pod: WorkPod, kept: bool) -> None:
    node = old("node-1", pod)
    assert pods(node).blocked_by(node) == (("ml/a (keeps ml/a)",) if kept else ())


def test_what_is_refused_is_told_once() -> None:
    node = replace(
        old("node-1", work("a", budget="ml/a"), work("b"), work("c")),
        leaving=(
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
