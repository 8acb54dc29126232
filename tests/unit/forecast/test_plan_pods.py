"""What a plan says of pods: which are lost, and which are kept."""

from msgspec.structs import replace

from libs.contracts.waits import WaitCode
from libs.forecast import Likely
from libs.rollout.views.machine import Leaving
from tests.unit.forecast.plays import foreseen, of, old, places, said, work
from tests.unit.rollout.building import NOW


def test_pods_that_are_lost_are_named_with_what_is_lost() -> None:
    pods = [
        work("solo", bare=True),
        work("cache", empty_dir=True),
        work("rank-0", gang="ml/train"),
        work("plain"),
    ]
    nodes = [old("node-1", *pods), old("node-2", work("rank-1", gang="ml/train"))]
    made = foreseen(places(), nodes)
    node = of(made, "node-1")
    assert node.evicted == ("ml/cache", "ml/plain", "ml/rank-0", "ml/solo")
    assert node.lost == (
        "ml/cache (emptyDir: its files go with it)",
        "ml/rank-0 (of gang ml/train, which stops as a whole: 1 more pods are known)",
        "ml/solo (bare: nobody makes it anew)",
    )
    assert of(made, "node-2").lost
    said(made, "5 pods will be evicted")
    said(made, "With 4 pods something is lost")


def test_pods_at_which_nobody_has_looked_are_known_by_uid_alone() -> None:
    seen = old("node-1", work("a"))
    made = foreseen(places(), [replace(seen, pods=None), old("node-2")])
    assert of(made, "node-1").evicted == ("the pod with uid uid-a",)
    said(made, "Nobody has looked at the pods of 1 node")


def test_a_disruption_budget_that_refuses_is_named_and_what_comes_of_it() -> None:
    kept = work("web", budget="ml/web-budget")
    made = foreseen(places(), [old("node-1", kept), old("node-2")])
    node = of(made, "node-1")
    assert node.blocked_by == ("ml/web-budget (keeps ml/web)",)
    assert node.end == Likely(None, None)
    assert node.failed == 1
    assert node.wait is not None
    assert node.wait.code is WaitCode.FAILED
    said(made, "1 disruption budget will refuse", "ml/web-budget")
    said(made, "will probably fail", "node-1")


def test_what_is_refused_now_is_told_in_the_words_of_the_api_server() -> None:
    leaving = Leaving(uid="uid-a", since=NOW - 10, refused="Cannot evict pod: budget ml/pdb")
    made = foreseen(places(), [old("node-1", work("a"), leaving=(leaving,))])
    assert made.nodes[0].blocked_by == ("ml/a: Cannot evict pod: budget ml/pdb",)
