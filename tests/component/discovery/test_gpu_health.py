"""Devices, the condition GPUHealthy and Events: one story, and no write that changes nothing."""

import json
from typing import Any

import msgspec
import pytest

from libs.contracts.facts import Facts
from libs.contracts.health import Health
from libs.contracts.identities import Writer
from libs.contracts.journal import Revision
from libs.contracts.reports import BEAT_PERIOD, SILENT_AFTER
from libs.kube.client import MERGE_PATCH, STRATEGIC_PATCH
from libs.kube.resources import LEASES, NODES
from libs.policy.installation import RBAC_RULES
from libs.testing.apiserver.faults import Fault, FaultEffect, RefuseRequest
from services.discovery.cluster.devices import DEVICES, FULL_DEVICES, FullDevice
from services.discovery.cluster.pace import BURST, PERIOD
from tests.component.discovery.world import BOOT, USER, World, in_world
from tests.unit.discovery.cluster.builders import NIC
from tests.unit.discovery.cluster.gpu_builders import XID, facts, gpu, health, judged

EIGHT = facts(*(gpu(index) for index in range(8)))
HEALTHY = health(*(judged(index) for index in range(8)))
THIRD_FAILED = health(*(judged(index, *([XID] if index == 3 else [])) for index in range(8)))


async def report_health(world: World, node: str, reported: Health, *, boot: str = BOOT) -> None:
    await world.report(node, reported, writer=Writer.TELEMETRY, boot=boot, kind="health")


async def add(world: World, name: str = "a") -> None:
    """Add a node with eight healthy GPUs."""
    await world.node(name, EIGHT)
    await report_health(world, name, HEALTHY)


async def devices(world: World) -> dict[str, FullDevice]:
    page = await world.kube.list_all(FULL_DEVICES)
    return {each.metadata.name: each for each in page.items}


async def states(world: World, node: str = "a") -> dict[int, str]:
    """Return the health of each Device of a node by index."""
    found = (await devices(world)).values()
    return {
        each.spec.index: "" if each.status.health is None else each.status.health.state
        for each in found
        if each.spec.node == node
    }


async def condition(world: World, name: str = "a") -> tuple[str, str]:
    body = await world.kube.request("GET", NODES.path(name=name))
    conditions = json.loads(body)["status"].get("conditions", [])
    found = [each for each in conditions if each["type"] == "GPUHealthy"]
    return (found[0]["status"], found[0]["message"]) if found else ("", "")


async def events(world: World) -> list[Any]:
    body = await world.kube.request("GET", "/api/v1/namespaces/default/events")
    found = json.loads(body)["items"]
    return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))


def health_writes(world: World, *kinds: str) -> list[Revision]:
    """Return the writes of Devices and conditions, or those of these kinds."""
    return [
        each
        for each in world.revisions(*(kinds or ("Device", "Node")))
        if each.kind == "Device" or any("conditions" in field for field in each.changed)
    ]


@in_world
async def test_a_gpu_fails_and_returns_in_one_story(world: World) -> None:
    await add(world)
    role = await world.lead()
    assert await states(world) == dict.fromkeys(range(8), "ok")
    assert await condition(world) == ("True", "all 8 GPUs are healthy")
    assert len(health_writes(world)) == 9
    assert await events(world) == []

    await report_health(world, "a", THIRD_FAILED)
    await world.sleep(5)
    assert await states(world) == {index: "failed" if index == 3 else "ok" for index in range(8)}
    failed, message = await condition(world)
    assert failed == "False"
    (event,) = await events(world)
    assert event["message"] == message
    assert XID.message in message
    assert XID.remedy in message
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "GPUFailed", 1)
    assert event["involvedObject"]["kind"] == "Node"
    third = (await devices(world))["gpu-3-node-a"].status.health
    assert third is not None
    assert (third.message, third.remedy) == (XID.message, XID.remedy)
    assert len(health_writes(world)) == 11

    await report_health(world, "a", HEALTHY)
    await world.sleep(5)
    assert await states(world) == dict.fromkeys(range(8), "ok")
    assert await condition(world) == ("True", "all 8 GPUs are healthy")
    assert [each["reason"] for each in await events(world)] == ["GPUFailed", "GPUHealthy"]
    assert len(health_writes(world)) == 13
    assert role.value("sluice_discovery_device_writes_total", outcome="written") == 10


@in_world
async def test_a_silent_agent_makes_the_health_unknown_until_it_is_heard_again(
    world: World,
) -> None:
    await add(world, "a")
    await add(world, "b")
    await report_health(world, "b", THIRD_FAILED)
    role = await world.lead()
    before = len(health_writes(world))
    world.silent = {"a", "b"}
    await world.sleep(SILENT_AFTER - BEAT_PERIOD)
    assert len(health_writes(world)) == before
    await world.sleep(BEAT_PERIOD + 20)
    status, message = await condition(world, "a")
    assert status == "Unknown"
    assert message.startswith("8 of 8 GPUs: the telemetry agent has stopped sending heartbeats")
    assert (await condition(world, "b"))[0] == "False"
    assert set((await states(world, "a")).values()) == {"unknown"}
    assert sorted((await states(world, "b")).values()) == ["failed", *["unknown"] * 7]
    assert [each["reason"] for each in await events(world)] == ["GPUFailed", "GPUHealthUnknown"]
    written = len(health_writes(world))
    assert written == before + 9 + 8
    await role.kill()
    await world.lead()
    await world.sleep(600)
    assert len(health_writes(world)) == written

    world.silent = set()
    await world.sleep(BEAT_PERIOD + 20)
    assert await condition(world, "a") == ("True", "all 8 GPUs are healthy")
    assert (await condition(world, "b"))[0] == "False"
    assert [each["reason"] for each in await events(world)][2:] == ["GPUHealthy"]
    assert len(health_writes(world)) == 2 * written - before


@in_world
async def test_nothing_is_written_when_nothing_changes_and_after_a_restart(world: World) -> None:
    await add(world, "a")
    await add(world, "b")
    role = await world.lead()
    await report_health(world, "b", THIRD_FAILED)
    await world.sleep(10)
    before = len(world.revisions()), len(await events(world))
    for number in range(3):
        await world.report_facts("a", msgspec.structs.replace(EIGHT, machine=f"{number}"))
        await report_health(world, "a", HEALTHY)
        status = {"conditions": [{"type": "Ready", "status": "True", "reason": f"{number}"}]}
        path = NODES.path(name="a", subresource="status")
        await world.kube.request(
            "PATCH",
            path,
            body={"status": status},
            content_type=STRATEGIC_PATCH,
        )
        await role.kill()
        role = world.start()
        await world.sleep(300)
    assert len(health_writes(world)) == 8 + 8 + 2 + 2
    assert len(await events(world)) == before[1] == 1


@in_world
async def test_reports_of_another_boot_or_node_are_ignored(world: World) -> None:
    await add(world)
    await world.lead()
    before = len(health_writes(world))
    await report_health(world, "a", THIRD_FAILED, boot="boot-0")
    await world.report_facts("a", facts(gpu(0, serial="other")), boot="boot-0")
    await world.sleep(300)
    assert len(health_writes(world)) == before


@in_world
async def test_a_gpu_that_is_gone_loses_its_device_when_that_is_confirmed(world: World) -> None:
    await add(world)
    await world.lead()
    await world.report_facts("a", facts(*(gpu(index) for index in range(7))))
    await report_health(world, "a", health(*(judged(index) for index in range(7))))
    await world.sleep(170)
    assert len(await devices(world)) == 8
    await world.sleep(20)
    assert sorted(await states(world)) == list(range(7))
    assert await condition(world) == ("True", "all 7 GPUs are healthy")

    await world.report_facts("a", Facts(pci=(NIC,)))
    await world.sleep(200)
    assert await devices(world) == {}
    assert await condition(world) == ("", "")


@in_world
async def test_a_deleted_or_edited_device_is_restored(world: World) -> None:
    await add(world)
    await world.lead()
    await world.remove(DEVICES, "gpu-0-node-a")
    await world.patch(DEVICES, "gpu-1-node-a", {"spec": {"memory": 1, "node": "b"}})
    await world.sleep(5)
    found = await devices(world)
    assert len(found) == 8
    assert (found["gpu-1-node-a"].spec.node, found["gpu-1-node-a"].spec.memory) == ("a", 81559)


@pytest.mark.parametrize("effect", [RefuseRequest(409), RefuseRequest(500), RefuseRequest(429)])
@in_world
async def test_the_story_is_complete_although_writes_fail(
    world: World, effect: FaultEffect
) -> None:
    await add(world)
    await world.lead()
    for kind in ("Device", "Node"):
        world.server.faults.add(Fault(effect=effect, kind=kind, user=USER, times=2))
    await report_health(world, "a", THIRD_FAILED)
    await world.sleep(60)
    assert (await states(world))[3] == "failed"
    assert (await condition(world))[0] == "False"
    assert [each["reason"] for each in await events(world)] == ["GPUFailed"]


@in_world
async def test_a_refused_device_delays_neither_the_others_nor_the_condition(world: World) -> None:
    await world.node("a", EIGHT)
    await report_health(world, "a", THIRD_FAILED)
    refuse = RefuseRequest(422)
    world.server.faults.add(Fault(effect=refuse, name="gpu-0-node-a", verbs=("apply",), times=4))
    await world.lead()
    assert sorted(await states(world)) == list(range(1, 8))
    assert (await condition(world))[0] == "False"
    await world.sleep(130)
    assert len(await devices(world)) == 8


@in_world
async def test_a_lying_agent_cannot_flood_the_server(world: World) -> None:
    await add(world, "a")
    await add(world, "b")
    role = await world.lead()
    before = len(world.revisions("Device", "Node", "Event"))
    for number in range(600):
        broken = THIRD_FAILED if number % 2 else HEALTHY
        all_fail = health(*(judged(index, XID) for index in range(8))) if number % 3 else broken
        await report_health(world, "a", all_fail)
        await world.sleep(1)
    rounds = BURST + 600 / PERIOD + 1
    written = len(world.revisions("Device", "Node", "Event")) - before
    assert written <= rounds * (8 + 1 + 8)
    await report_health(world, "b", THIRD_FAILED)
    await world.sleep(5)
    assert (await condition(world, "b"))[0] == "False"

    many = health(*(judged(0, XID, uuid=f"GPU-{number}", index=number) for number in range(64)))
    await report_health(world, "b", many)
    await world.report_facts("b", facts(*(gpu(0, index=n, uuid=f"GPU-{n}") for n in range(64))))
    await world.sleep(5)
    assert len(await devices(world)) == 16
    assert role.value("sluice_discovery_refused_values") == 128
    await world.remove(NODES, "b")
    await world.sleep(5)
    assert role.value("sluice_discovery_refused_values") == 0


@in_world
async def test_while_a_gpu_operator_is_active_nothing_is_written(world: World) -> None:
    lease = {
        "metadata": {"name": "53822513.nvidia.com"},
        "spec": {"holderIdentity": "operator", "leaseDurationSeconds": 60},
    }
    await world.kube.create(LEASES, lease, namespace="gpu-operator")
    await add(world)
    await world.lead()
    assert health_writes(world) == []
    path = LEASES.path(namespace="gpu-operator", name="53822513.nvidia.com")
    await world.kube.request(
        "PATCH", path, body={"spec": {"holderIdentity": ""}}, content_type=MERGE_PATCH
    )
    await world.sleep(60)
    assert len(health_writes(world)) == 9


@in_world
async def test_the_rights_suffice_for_devices_conditions_and_events(world: World) -> None:
    await add(world)
    await world.lead()
    await report_health(world, "a", THIRD_FAILED)
    await world.sleep(5)
    await world.report_facts("a", Facts(pci=(NIC,)))
    await world.sleep(200)
    verbs = {"apply": "patch"}
    used = {
        (each.kind, verbs.get(each.verb, each.verb))
        for each in world.server.journal.revisions
        if each.user == USER and each.kind != "Lease"
    }
    assert used == {
        ("Node", "patch"),
        ("Device", "patch"),
        ("Device", "delete"),
        ("Event", "create"),
    }
    rights = {
        (resource, verb)
        for rule in RBAC_RULES[World.WRITER]
        for resource in rule.resources
        for verb in rule.verbs
    }
    assert {
        ("devices", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")
    } <= (rights)
    assert ("nodes/status", "patch") in rights
    assert {("events", "create"), ("events", "patch")} <= rights
