"""Patches of each type, and writes to the status and to the spec."""

import pytest

from libs.kube.errors import Invalid
from libs.kube.resources import CONFIG_MAPS, DAEMON_SETS, NODES
from tests.builders.objects import config_map, daemon_set
from tests.component.kube.builders import condition
from tests.component.kube.raw_requests import JSON_PATCH, STRATEGIC_PATCH, patch
from tests.component.kube.sandbox import Kube, Sandbox


async def test_a_json_patch_tests_before_it_writes(sandbox: Sandbox, kube: Kube) -> None:
    await kube.create(CONFIG_MAPS, config_map("a", {"k": "1"}))
    change = [
        {"op": "test", "path": "/data/k", "value": "1"},
        {"op": "replace", "path": "/data/k", "value": "2"},
        {"op": "add", "path": "/data/new", "value": "1"},
    ]

    now = await patch(kube, CONFIG_MAPS, "a", change, kind=JSON_PATCH)
    assert now["data"] == {"k": "2", "new": "1"}
    with pytest.raises(Invalid) as refused:
        await patch(kube, CONFIG_MAPS, "a", change, kind=JSON_PATCH)
    assert refused.value.code == 422


async def test_a_strategic_merge_merges_lists_by_their_key(sandbox: Sandbox, kube: Kube) -> None:
    node = await sandbox.node(
        "n", conditions=[condition("Ready", "True"), condition("Odd", "True")]
    )
    conditions = [condition("Odd", "False"), condition("New", "True")]

    now = await patch(
        kube,
        NODES,
        node,
        {"status": {"conditions": conditions}},
        subresource="status",
        kind=STRATEGIC_PATCH,
    )

    by_type = {entry["type"]: entry["status"] for entry in now["status"]["conditions"]}
    assert by_type == {"Ready": "True", "Odd": "False", "New": "True"}
    conditions = [{"type": "Odd", "$patch": "delete"}]
    now = await patch(
        kube,
        NODES,
        node,
        {"status": {"conditions": conditions}},
        subresource="status",
        kind=STRATEGIC_PATCH,
    )
    assert {entry["type"] for entry in now["status"]["conditions"]} == {"Ready", "New"}


async def test_a_strategic_merge_adds_finalizers_and_replaces_taints(
    sandbox: Sandbox, kube: Kube
) -> None:
    """The schema of each list decides."""
    node = await sandbox.node("n")
    first = {
        "metadata": {"finalizers": ["sluice.dev/a"]},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    }
    second = {
        "metadata": {"finalizers": ["sluice.dev/b"]},
        "spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]},
    }
    await patch(kube, NODES, node, first, kind=STRATEGIC_PATCH)

    now = await patch(kube, NODES, node, second, kind=STRATEGIC_PATCH)

    assert sorted(now["metadata"]["finalizers"]) == ["sluice.dev/a", "sluice.dev/b"]
    assert "a" not in {taint["key"] for taint in now["spec"]["taints"]}


async def test_a_patch_of_an_unknown_content_type_is_refused(sandbox: Sandbox, kube: Kube) -> None:
    await kube.create(CONFIG_MAPS, config_map("a"))
    with pytest.raises(Invalid) as refused:
        await patch(kube, CONFIG_MAPS, "a", {}, kind="application/json")
    assert refused.value.code == 415
    assert refused.value.reason == "UnsupportedMediaType"


# Status and spec


async def test_a_status_write_leaves_the_spec(sandbox: Sandbox, kube: Kube) -> None:
    node = await sandbox.node("n")
    change = {
        "metadata": {"labels": {"new": "1"}},
        "spec": {"unschedulable": True},
        "status": {"nodeInfo": {"bootID": "b1"}},
    }
    now = await patch(kube, NODES, node, change, subresource="status")
    assert now["status"]["nodeInfo"]["bootID"] == "b1"
    assert "unschedulable" not in now["spec"]


async def test_the_generation_counts_only_changes_of_the_spec(sandbox: Sandbox, kube: Kube) -> None:
    wanted = daemon_set("d", selector={"on": "no-node"})
    made = await kube.create(DAEMON_SETS, wanted)
    assert made.metadata.generation == 1

    labelled = await patch(kube, DAEMON_SETS, "d", {"metadata": {"labels": {"new": "1"}}})
    assert labelled["metadata"]["generation"] == 1
    status = {"status": {"observedGeneration": 0}}
    reported = await patch(kube, DAEMON_SETS, "d", status, subresource="status")
    assert reported["metadata"]["generation"] == 1
    changed = await patch(kube, DAEMON_SETS, "d", {"spec": {"minReadySeconds": 1}})
    assert changed["metadata"]["generation"] == 2
