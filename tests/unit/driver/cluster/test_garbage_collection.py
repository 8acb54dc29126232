"""How long the DaemonSet of an old driver is kept."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from libs.contracts.node import DRIVER_LABEL
from libs.policy.render.rendered import TARGET_ANNOTATION
from services.driver.cluster import resources
from services.driver.cluster.decide import (
    HOUR,
    UnreferencedDrivers,
    is_driver_daemon_set,
    keep_reason,
)
from tests.builders import objects
from tests.builders.objects import seen
from tests.unit.driver.cluster.builders import driver_of, live_object, node, plan
from tests.unit.policy.situations import DRIVER, cluster_policy, crd_mode_policy

OLD = driver_of(plan()).object
NEW_PLAN = plan(cluster_policy(driver={**DRIVER, "version": "590.10"}))
LABEL = OLD["metadata"]["labels"][DRIVER_LABEL]
TARGET = OLD["metadata"]["annotations"][TARGET_ANNOTATION]
POOL = "clusterpolicy-cluster-policy"


def reason_to_keep(
    *,
    driver: Any = OLD,
    plan: Any = NEW_PLAN,
    nodes: tuple[resources.Node, ...] = (node(),),
    rollouts: tuple[resources.Rollout, ...] = (),
    commanded: Mapping[str, Collection[str]] | None = MappingProxyType({}),
    status: dict[str, int] | None = None,
    **metadata: Any,
) -> str:
    status = {"observedGeneration": 1, **(status or {})}
    live = live_object({**driver, "status": status}, generation=1, **metadata)
    return keep_reason(live, plan, nodes=nodes, rollouts=rollouts, commanded=commanded)


def rollout(name: str, **status: Any) -> resources.Rollout:
    return seen(resources.Rollout, {"metadata": {"name": name}, "status": status})


def test_the_daemon_set_of_a_driver_is_known_by_its_label() -> None:
    assert is_driver_daemon_set(live_object(OLD))


MISSING = f"its pool {POOL} is missing or invalid"
NO_SYSTEM = objects.node("n", labels={"nvidia.com/gpu.present": "true"})
PRECOMPILED = cluster_policy(driver={**DRIVER, "usePrecompiled": True})
KERNEL = {"feature.node.kubernetes.io/kernel-version.full": "6.8.0-60-generic"}


@pytest.mark.parametrize(
    ("references", "reason"),
    [
        ({}, ""),
        ({"nodes": (node("n", **{DRIVER_LABEL: LABEL}),)}, "node n names it"),
        ({"nodes": (node("n", record=f'{{"label_before":"{LABEL}"}}'),)}, "node n names it"),
        ({"nodes": (node("n", record=f"garbled {TARGET}"),)}, "node n names it"),
        ({"commanded": {LABEL: {"uid-n"}}, "nodes": (node("n"),)}, "a command names it"),
        ({"commanded": {LABEL: {"uid-n"}}, "nodes": (node("other"),)}, ""),
        ({"commanded": None}, "the commands on the bus are unknown, and one may name it"),
        ({"rollouts": (rollout(POOL, lastGood=TARGET),)}, f"Rollout {POOL} names it"),
        ({"rollouts": (rollout(POOL, targets={TARGET: {}}),)}, f"Rollout {POOL} names it"),
        ({"rollouts": (rollout("other", lastGood=TARGET),)}, ""),
        ({"rollouts": (rollout("other", note=LABEL),)}, "Rollout other names it"),
        ({"status": {"desiredNumberScheduled": 1}}, "it has pods"),
        ({"status": {"currentNumberScheduled": 1}}, "it has pods"),
        ({"status": {"numberMisscheduled": 1}}, "it has pods"),
        (
            {"status": {"observedGeneration": 0}},
            "its controller has not observed its latest generation",
        ),
        ({"annotations": {}}, "it has no annotation for its pool or its target"),
        ({"plan": plan()}, "its pool wants it"),
        ({"plan": plan(crd_mode_policy())}, MISSING),
        ({"plan": plan(cluster_policy(driver={"version": "590.10"}))}, MISSING),
        (
            {"plan": plan(nodes=(seen(resources.Node, NO_SYSTEM),))},
            f"pool {POOL} still wants its target",
        ),
    ],
)
def test_a_kept_driver_names_its_reference(references: dict[str, Any], reason: str) -> None:
    assert reason_to_keep(**references) == reason


def test_the_driver_of_a_kernel_that_no_node_has_may_be_deleted() -> None:
    driver = driver_of(plan(PRECOMPILED)).object
    other_kernel = (node("n", **KERNEL),)
    assert reason_to_keep(driver=driver, plan=plan(PRECOMPILED)) == "its pool wants it"
    newer = plan(PRECOMPILED, nodes=other_kernel)
    assert reason_to_keep(driver=driver, plan=newer, nodes=other_kernel) == ""


def test_the_hour_starts_when_the_last_reference_is_gone() -> None:
    drivers = UnreferencedDrivers()
    drivers.update({"a": "", "b": "node n names it"}, now=100.0)
    assert drivers.seconds_left("a", now=100.0) == HOUR
    assert drivers.seconds_left("b", now=100.0) is None
    drivers.update({"a": "", "b": ""}, now=1000.0)
    assert drivers.seconds_left("a", now=HOUR + 99) == drivers.next_due(now=HOUR + 99) == 1.0
    assert drivers.seconds_left("a", now=HOUR + 100) == 0.0
    drivers.update({"a": "a command names it", "b": ""}, now=HOUR + 100)
    assert drivers.seconds_left("a", now=2 * HOUR) is None
    drivers.update({}, now=HOUR + 100)
    assert drivers.next_due(now=HOUR + 100) is None
