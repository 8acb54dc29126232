"""`sluice lease`: taken and returned through Kubernetes, and told by status and why."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.contracts.node import (
    LEASE_ANNOTATION,
    LEASE_CLAIM_ANNOTATION,
    MANAGER,
)
from libs.ctl.failures import ExitCode
from libs.kube.client import MERGE_PATCH
from libs.kube.resources import NODES, PODS
from tests.component.ctl.world import POOL, World, make_world, rollout_status


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with make_world(tmp_path) as made:
        yield made


async def test_a_node_is_taken_told_and_returned(world: World) -> None:
    await world.add_rollout(**rollout_status())
    await world.add_node("node-9", state="upgrade-required")
    taken = await world.run("lease", "take", "node-9", "--reason", "swap a riser")
    assert (taken.code, taken.err) == (ExitCode.DONE, "")
    assert taken.out.startswith("node-9 is yours")
    for question in (("status",), ("why", "node-9")):
        told = await world.run(*question)
        assert "swap a riser; ends with `sluice lease return node-9`" in " ".join(told.out.split())
    row = (await world.run("status", "-o", "json")).json["nodes"][0]
    assert not row["in_flight"]
    unasked = await world.run("lease", "return", "node-9")
    assert unasked.code == ExitCode.REFUSED
    assert LEASE_ANNOTATION in await world.annotations("node-9")
    returned = await world.run("lease", "return", "node-9", "--yes")
    assert (returned.code, returned.err) == (ExitCode.DONE, "")
    assert LEASE_ANNOTATION not in await world.annotations("node-9")


async def test_whether_a_node_may_be_pulled_is_told_by_its_pods(world: World) -> None:
    await world.add_node("node-9")
    spec = {"nodeName": "node-9", "containers": [{"name": "c", "image": "train:1"}]}
    body = {"metadata": {"name": "train-0"}, "spec": spec}
    await world.kube.create(PODS, body, namespace="default")
    taken = await world.run("lease", "take", "node-9", "--reason", "swap a riser")
    assert "Do not pull it yet: 1 pod runs on it: default/train-0; `kubectl drain" in taken.out
    assert "--force` evicts it; it has no controller and does not come back" in taken.out
    path = PODS.path(name="train-0", namespace="default")
    await world.kube.request("DELETE", path, query={"gracePeriodSeconds": "0"})
    patch = {"spec": {"unschedulable": True}}
    query = {"fieldManager": "kubectl"}
    path = NODES.path(name="node-9")
    await world.kube.request("PATCH", path, query=query, body=patch, content_type=MERGE_PATCH)
    again = await world.run("lease", "take", "node-9", "--reason", "swap a riser")
    assert again.out.startswith("unchanged: ")
    assert again.out.endswith("You may pull it: no pods run on it, except those of DaemonSets\n")
    returned = await world.run("lease", "return", "node-9", "--yes")
    assert returned.out.endswith("; `kubectl uncordon node-9` ends its cordon\n")


async def test_a_node_in_flight_is_claimed(world: World) -> None:
    await world.add_node("node-9", state="pod-restart-required")
    await world.record("node-9", in_flight=True)
    lease = (await world.annotations("node-9"))[LEASE_ANNOTATION]
    ended = await world.run("lease", "take", "node-9", "--reason", "move racks")
    assert "which ends first" in ended.out
    annotations = await world.annotations("node-9")
    assert annotations[LEASE_ANNOTATION] == lease
    assert '"human"' in annotations[LEASE_CLAIM_ANNOTATION]
    assert "asked for the node" in (await world.run("why", "node-9")).out
    path, query = NODES.path(name="node-9"), {"fieldManager": MANAGER}
    patch = {"spec": {"unschedulable": True}}
    await world.kube.request("PATCH", path, query=query, body=patch, content_type=MERGE_PATCH)
    returned = await world.run("lease", "return", "node-9")
    assert returned.out == (
        "your claim on node-9 is withdrawn; its upgrade goes on, and Sluice ends its cordon\n"
    )
    annotations = await world.annotations("node-9")
    assert LEASE_CLAIM_ANNOTATION not in annotations
    assert annotations[LEASE_ANNOTATION] == lease


async def test_a_node_of_a_frozen_pool_is_not_promised_soon(world: World) -> None:
    await world.add_rollout(**rollout_status())
    await world.add_node("node-9", state="pod-restart-required")
    await world.record("node-9", in_flight=True)
    assert (await world.run("upgrade", "freeze", POOL)).code == ExitCode.DONE
    taken = await world.run("lease", "take", "node-9", "--reason", "move racks")
    assert f"but {POOL} is frozen: the operation ends only after" in taken.out


async def test_a_reason_and_a_node_are_needed(world: World) -> None:
    await world.add_node("node-9")
    assert (await world.run("lease", "take", "node-9")).code == ExitCode.WRONG_ARGUMENTS
    empty = await world.run("lease", "take", "node-9", "--reason", " ")
    assert empty.code == ExitCode.WRONG_ARGUMENTS
    unknown = await world.run("lease", "take", "node-8", "--reason", "x")
    assert unknown.code == ExitCode.NOT_FOUND


async def test_a_lease_is_not_taken_where_nothing_would_honour_it(world: World) -> None:
    await world.add_node("node-9")
    for plural in ("rollouts", "rolloutstrategies"):
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.sluice.dev"
        await world.kube.request("DELETE", path)
    for verb in (
        ("lease", "take", "node-9", "--reason", "swap a riser"),
        ("upgrade", "adopt", "node-9", "--yes"),
        ("upgrade", "forget", "node-9", "--yes"),
    ):
        refused = await world.run(*verb)
        assert (refused.code, refused.err.count("\n")) == (ExitCode.NOT_FOUND, 1), verb
        assert "Sluice is not installed in http" in refused.err
    assert await world.annotations("node-9") == {}
    returned = await world.run("lease", "return", "node-9", "--yes")
    assert (returned.code, returned.out) == (ExitCode.DONE, "no person has node-9; unchanged\n")


async def test_a_node_that_is_named_twice_is_asked_about_and_written_once(world: World) -> None:
    await world.add_node("node-9")
    taken = await world.run("lease", "take", "node-9", "node-9", "--reason", "swap a riser")
    assert taken.out.count("\n") == 1
    unasked = await world.run("lease", "return", "node-9", "node-9")
    assert unasked.err.count("is drained") == 1
    assert (await world.run("lease", "return", "node-9", "node-9", "--yes")).out.count("\n") == 1
