"""Who keeps a driver's DaemonSet, and for how long."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from libs.contracts.node import DRIVER_LABEL
from libs.policy.render.rendered import TARGET_ANNOTATION
from services.driver.cluster import resources
from services.driver.cluster.decide import (
    HOUR,
    UnreferencedDrivers,
    is_driver_daemon_set,
    kept_because,
)
from tests.unit.driver.cluster.builders import driver_of, live_object, node, plan, policy
from tests.unit.policy.situations import DRIVER, cluster_policy, crd_mode_policy

OLD = driver_of(plan()).object
NOW = plan(cluster_policy(driver={**DRIVER, "version": "590.10"}))
LABEL = OLD["metadata"]["labels"][DRIVER_LABEL]
TARGET = OLD["metadata"]["annotations"][TARGET_ANNOTATION]
POOL = "clusterpolicy-cluster-policy"


def because(
    *,
    plan: Any = NOW,
    nodes: tuple[resources.Node, ...] = (node(),),
    rollouts: tuple[resources.Rollout, ...] = (),
    commanded: Mapping[str, Collection[str]] | None = MappingProxyType({}),
    status: dict[str, int] | None = None,
    **metadata: Any,
) -> str:
    there = live_object({**OLD, "status": {"observedGeneration": 1, **(status or {})}}, **metadata)
    there = msgspec.structs.replace(
        there, metadata=msgspec.structs.replace(there.metadata, generation=1)
    )
    return kept_because(there, plan, nodes=nodes, rollouts=rollouts, commanded=commanded)


def rollout(name: str, **status: Any) -> resources.Rollout:
    text = msgspec.json.encode({"metadata": {"name": name}, "status": status})
    return msgspec.json.decode(text, type=resources.Rollout)


def test_an_unreferenced_driver_of_an_old_target_may_be_deleted() -> None:
    assert is_driver_daemon_set(live_object(OLD))
    assert because() == ""


@pytest.mark.parametrize(
    ("kept_by", "words"),
    [
        ({"nodes": (node("n", **{DRIVER_LABEL: LABEL}),)}, "node n names it"),
        ({"nodes": (node("n", record=f'{{"label_before":"{LABEL}"}}'),)}, "node n names it"),
        ({"nodes": (node("n", record=f"garbled {TARGET}"),)}, "node n names it"),
        ({"commanded": {LABEL: {"uid-n"}}, "nodes": (node("n"),)}, "a command names it"),
        ({"commanded": None}, "it is not known which drivers are named by commands"),
        ({"rollouts": (rollout(POOL, lastGood=TARGET),)}, f"Rollout {POOL} names it"),
        ({"rollouts": (rollout(POOL, targets={TARGET: {}}),)}, f"Rollout {POOL} names it"),
        ({"status": {"desiredNumberScheduled": 1}}, "it has pods"),
        ({"status": {"currentNumberScheduled": 1}}, "it has pods"),
        ({"status": {"numberMisscheduled": 1}}, "it has pods"),
        ({"status": {"observedGeneration": 0}}, "its controller has not seen it as it is"),
        ({"annotations": {}}, "it does not say for which pool and target it is"),
        ({"plan": plan()}, "its pool wants it"),
    ],
)
def test_a_kept_driver_names_its_reference(kept_by: dict[str, Any], words: str) -> None:
    assert because(**kept_by) == words


def test_a_command_for_a_node_that_is_gone_names_nothing() -> None:
    assert because(commanded={LABEL: {"uid-n"}}, nodes=(node("other"),)) == ""


def test_the_rollout_of_another_pool_names_only_labels() -> None:
    assert because(rollouts=(rollout("other", lastGood=TARGET),)) == ""
    assert because(rollouts=(rollout("other", note=LABEL),)) == "Rollout other names it"


def test_a_driver_of_a_missing_or_invalid_policy_stays() -> None:
    words = f"its pool {POOL} is not there, or wants what cannot be done"
    gone = plan(crd_mode_policy())
    assert because(plan=gone) == words
    wrong = plan(cluster_policy(driver={"version": "590.10"}))
    assert because(plan=wrong) == words


def test_one_of_the_present_target_stays_though_no_node_seems_to_need_it() -> None:
    unknown = msgspec.convert(
        {"metadata": {"name": "n", "labels": {"nvidia.com/gpu.present": "true"}}}, resources.Node
    )
    none = plan(nodes=(unknown,))
    assert because(plan=none) == f"its target is what pool {POOL} wants"


def test_one_of_a_policy_that_was_made_anew_is_succeeded() -> None:
    anew = cluster_policy()
    anew["metadata"]["uid"] = "another"
    assert because(plan=plan(anew)) == ""
    assert policy("ClusterPolicy", anew).metadata.uid == "another"


def test_an_hour_is_counted_from_the_first_look_at_which_nothing_named_it() -> None:
    unnamed = UnreferencedDrivers()
    unnamed.update({"a": "", "b": "node n names it"}, now=100.0)
    assert unnamed.seconds_left("a", now=100.0) == HOUR
    assert unnamed.seconds_left("b", now=100.0) is None
    unnamed.update({"a": "", "b": ""}, now=1000.0)
    assert unnamed.seconds_left("a", now=HOUR + 99) == 1.0
    assert unnamed.next_due(now=HOUR + 99) == 1.0
    assert unnamed.seconds_left("a", now=HOUR + 100) == 0.0
    unnamed.update({"a": "a command names it", "b": ""}, now=HOUR + 100)
    assert unnamed.seconds_left("a", now=2 * HOUR) is None
    unnamed.update({}, now=HOUR + 100)
    assert unnamed.next_due(now=HOUR + 100) is None
