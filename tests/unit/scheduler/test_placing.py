"""Policies, DaemonSets and Nodes as pools and places."""

from typing import Any

import msgspec

from libs.contracts.node import DRIVER_LABEL
from libs.policy.reading import read
from libs.policy.wanted import Method
from libs.rollout.views.pool import Readiness
from services.scheduler.placing import Member, Placement, placed
from services.scheduler.things import DaemonSet
from tests.unit.policy.situations import SETTINGS, Situation, cluster_policy, drivers, node

POOL = "clusterpolicy-cluster-policy"


def policy(version: str = "580.95.05", **driver: Any) -> dict[str, Any]:
    """One for the whole cluster."""
    image = {"repository": "r.example/nvidia", "image": "driver", "version": version}
    return cluster_policy(driver={**image, **driver})


def member(name: str, **told: Any) -> Member:
    """A node with GPUs."""
    more = {key: told.pop(key) for key in ("label", "record_pool", "record_label") if key in told}
    return Member(name=name, labels=node(name, **told).labels, **more)


def made(*policies: dict[str, Any], **status: int) -> list[DaemonSet]:
    """The DaemonSets that follow, as their controller has seen them."""
    found: list[DaemonSet] = []
    for one in policies:
        for wanted in drivers(
            Situation([one], [node("a"), node("b", version="24.04")]).rendering(SETTINGS)
        ):
            metadata = {**wanted["metadata"], "uid": wanted["metadata"]["name"], "generation": 1}
            told = {"metadata": metadata, "status": {"observedGeneration": 1, **status}}
            found.append(msgspec.json.decode(msgspec.json.encode(told), type=DaemonSet))
    return found


def place(
    wanted: list[dict[str, Any]], members: list[Member], sets: list[DaemonSet], **rollouts: str
) -> Placement:
    """Of these."""
    reads = [read(one["kind"], one) for one in wanted]
    return placed(reads, members, sets, rollouts=rollouts)


def test_a_node_gets_what_its_system_needs() -> None:
    members = [member("a"), member("b", version="24.04")]
    found = place([policy()], members, made(policy()))
    view = found.pools[POOL]
    assert view.method is Method.CONTAINER
    labels = set[str]()
    for name in ("a", "b"):
        at = found.nodes[name]
        assert at.pool == POOL
        build = view.build(view.target, at.variant)
        assert build is not None
        assert build.readiness is Readiness.SETTLED
        labels.add(build.label)
    assert len(labels) == 2


def test_without_a_daemon_set_it_is_missing_and_behind_its_controller_unsettled() -> None:
    members = [member("a")]
    none = place([policy()], members, [])
    at = none.nodes["a"].variant
    build = none.pools[POOL].build(none.pools[POOL].target, at)
    assert build is not None
    assert build.readiness is Readiness.MISSING
    late = place([policy()], members, made(policy(), observedGeneration=0))
    build = late.pools[POOL].build(late.pools[POOL].target, at)
    assert build is not None
    assert build.readiness is Readiness.UNSETTLED


def test_an_earlier_target_is_known_as_long_as_its_daemon_set_is_there() -> None:
    old, new = policy("570.86.15"), policy()
    members = [member("a")]
    before = place([old], members, made(old)).pools[POOL]
    found = place([new], members, made(old, new))
    view, at = found.pools[POOL], found.nodes["a"].variant
    assert view.target != before.target
    assert view.build(before.target, at) == before.build(before.target, at)
    assert place([new], members, made(new)).pools[POOL].build(before.target, at) is None


def test_precompiled_drivers_keep_the_variant_of_the_node() -> None:
    members = [member("a")]
    plain = place([policy()], members, [])
    compiled = place([policy(usePrecompiled=True, version="580")], members, [])
    assert plain.nodes["a"] == compiled.nodes["a"]


def test_a_node_of_unknown_system_has_no_variant() -> None:
    bare = Member(name="a", labels={"nvidia.com/gpu.present": "true"})
    assert place([policy()], [bare], []).nodes["a"].variant == ""


def test_a_policy_that_is_gone_leaves_its_nodes_in_a_pool_that_is_gone() -> None:
    (one, *_) = made(policy())
    label = one.metadata.labels[DRIVER_LABEL]
    members = [member("a", label=label, record_pool=POOL, record_label=label)]
    found = place([], members, [one], **{POOL: "t"})
    at, view = found.nodes["a"], found.pools[POOL]
    assert at.pool == POOL
    assert view.gone
    target = one.metadata.annotations["sluice.dev/target"]
    build = view.build(target, at.variant)
    assert build is not None
    assert build.label == label


def test_a_pool_that_is_gone_is_kept_while_a_record_names_it_wherever_its_node_is_now() -> None:
    (one, *_) = made(policy())
    label = one.metadata.labels[DRIVER_LABEL]
    other = policy()
    other["metadata"]["name"] = "another-policy"
    begun = member("a", label=label, record_pool=POOL, record_label=label)
    found = place([other], [begun, member("b")], [one])
    assert {name: at.pool for name, at in found.nodes.items()} == {
        "a": "clusterpolicy-another-policy",
        "b": "clusterpolicy-another-policy",
    }
    view = found.pools[POOL]
    assert view.gone
    build = view.build(one.metadata.annotations["sluice.dev/target"], found.nodes["a"].variant)
    assert build is not None
    assert build.label == label
    assert POOL not in place([other], [member("a"), member("b")], [one]).pools


def test_a_pool_that_is_gone_is_kept_while_there_is_a_rollout_of_it() -> None:
    found = place([], [member("a")], [], **{POOL: "t"})
    view = found.pools[POOL]
    assert (view.gone, view.target) == (True, "t")
    assert found.nodes["a"].pool == ""


def test_a_node_that_no_policy_selects_is_in_no_pool() -> None:
    labels = {"nvidia.com/gpu.present": "false"}
    other = Member(name="a", labels=labels, record_pool=POOL)
    found = place([policy()], [other], [])
    assert found.nodes["a"].pool == ""


def test_a_policy_with_errors_wants_what_it_wanted() -> None:
    wrong = policy(image=None)
    found = place([wrong], [member("a")], [], **{POOL: "before"})
    view = found.pools[POOL]
    assert view.held
    assert view.target == "before"
