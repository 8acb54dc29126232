"""Faults of server and bus, and a standby: the labels are the same in the end."""

import pytest

from libs.contracts.identities import Identity
from libs.kube.client import MERGE_PATCH
from libs.policy.installation import RBAC_RULES, RbacScope
from libs.testing.apiserver.faults import Cut, Delay, Fault, FaultEffect, Hang, RefuseRequest
from services.discovery.cluster import resources
from tests.component.discovery.world import USER, World, in_world
from tests.unit.discovery.cluster.builders import ALL_OPERANDS, DEPLOY, PRESENT, SYSTEM


@pytest.mark.parametrize(
    ("effect", "times", "attempts"),
    [
        (RefuseRequest(409), 3, 4),
        (RefuseRequest(429, retry_after=2), 2, 3),
        (RefuseRequest(500), 3, 4),
        (RefuseRequest(503), 1, 2),
        (Cut("before"), 2, 3),
        (Cut("after"), 1, 1),
        (Hang(), 1, 2),
    ],
)
@in_world
async def test_a_node_is_labelled_although_the_first_writes_fail(
    world: World, effect: FaultEffect, times: int, attempts: int
) -> None:
    await world.node("a")
    role = await world.lead()
    world.server.faults.add(Fault(effect=effect, kind="Node", verbs=("apply",), times=times))
    await world.report_facts("a", SYSTEM)
    await world.sleep(30)
    assert await world.operands("a") == ALL_OPERANDS
    assert len(world.written) == 1
    assert role.transport.writes == attempts


@in_world
async def test_a_refused_write_is_retried_later_and_delays_no_other_node(world: World) -> None:
    for name in ("a", "b"):
        await world.node(name)
    await world.lead()
    world.server.faults.add(Fault(effect=RefuseRequest(403), name="a", verbs=("apply",), times=2))
    for name in ("a", "b"):
        await world.report_facts(name, SYSTEM)
    await world.sleep(5)
    assert (await world.labels("b"))[PRESENT] == "true"
    assert PRESENT not in await world.labels("a")
    await world.sleep(130)
    assert (await world.labels("a"))[PRESENT] == "true"
    assert [each.code for each in world.revisions() if each.name == "a"] == [403, 403, 200]


@in_world
async def test_a_node_that_changes_during_a_write_is_reconciled_again(world: World) -> None:
    await world.node("a")
    role = await world.lead()
    delay = Delay(2.0, where="way")
    world.server.faults.add(Fault(effect=delay, kind="Node", verbs=("apply",), times=1))
    await world.report_facts("a", SYSTEM)
    await world.sleep(1)
    await world.label("a", {f"{DEPLOY}dcgm": "false"})
    await world.sleep(5)
    assert await world.operands("a") == {**ALL_OPERANDS, "dcgm": "false"}
    assert role.value("sluice_discovery_api_writes_total", outcome="conflict") == 1


@in_world
async def test_a_conflict_refreshes_the_node_before_a_slow_watch_does(world: World) -> None:
    await world.node("a")
    role = await world.lead()
    world.server.faults.add(Fault(effect=Delay(30.0), kind="Node", verbs=("watch",), user=USER))
    assert world.server.faults.drop_watches(kind="Node", user=USER) == 1
    await world.sleep(2)
    await world.label("a", {f"{DEPLOY}dcgm": "false"})
    await world.report_facts("a", SYSTEM)
    await world.sleep(5)
    assert await world.operands("a") == {**ALL_OPERANDS, "dcgm": "false"}
    assert role.value("sluice_discovery_api_writes_total", outcome="conflict") == 1


@in_world
async def test_a_node_heartbeat_causes_no_reconcile(world: World) -> None:
    await world.node("a", SYSTEM)
    role = await world.lead()

    def reconciles() -> float | None:
        return role.value("sluice_reconciles_total", controller="labels", outcome="done")

    before = reconciles()
    assert before
    for number in range(20):
        condition = {"type": "Ready", "status": "True", "reason": f"{number}"}
        status = {"status": {"conditions": [condition]}}
        path = resources.NODES.path(name="a", subresource="status")
        await world.kube.request("PATCH", path, body=status, content_type=MERGE_PATCH)
        await world.sleep(1)
    assert reconciles() == before
    await world.label("a", {"team": "ml"})
    await world.sleep(1)
    assert reconciles() == before + 1


@in_world
async def test_only_the_leader_writes_and_the_standby_takes_over(world: World) -> None:
    for name in ("a", "b"):
        await world.node(name)
    await world.report_facts("a", SYSTEM)
    first = await world.lead()
    second = await world.lead()
    assert (first.transport.writes, second.transport.writes) == (1, 0)
    assert (first.service.unready_reasons(), second.service.unready_reasons()) == ([], [])
    await first.kill()
    await world.report_facts("b", SYSTEM)
    await world.sleep(10)
    assert await world.operands("b") == {}
    await world.sleep(20)
    assert await world.operands("b") == ALL_OPERANDS
    assert world.written == [("apply", "Node", "a"), ("apply", "Node", "b")]


@in_world
async def test_a_restart_writes_nothing(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.node(name, SYSTEM)
    role = await world.lead()
    assert len(world.revisions()) == 3
    for _ in range(3):
        await role.kill()
        role = world.start()
        await world.sleep(60)
    assert len(world.revisions()) == 3


@in_world
async def test_a_leader_leads_again_after_an_outage_and_writes_pending_labels(
    world: World,
) -> None:
    await world.node("a")
    role = await world.lead()
    await world.server.stop()
    await world.sleep(60)
    await world.server.start()
    await world.report_facts("a", SYSTEM)
    await world.sleep(60)
    assert await world.operands("a") == ALL_OPERANDS
    assert len(world.written) == 1
    assert role.service.unready_reasons() == []


@in_world
async def test_without_a_bus_labels_stay_and_pauses_are_kept(world: World) -> None:
    await world.node("a", SYSTEM)
    await (await world.lead()).kill()
    world.bus.cut(Identity(writer=World.WRITER))
    await world.lead()
    await world.label("a", {f"{DEPLOY}client": "paused-for-driver-upgrade"})
    await world.sleep(20)
    assert await world.operands("a") == ALL_OPERANDS
    assert len(world.written) == 2
    world.bus.restore(Identity(writer=World.WRITER))
    await world.sleep(60)
    assert len(world.written) == 2


@in_world
async def test_the_rights_of_the_role_suffice(world: World) -> None:
    await world.node("a", **{PRESENT: "true", f"{DEPLOY}dcgm": "true"})
    await world.report_facts("a", SYSTEM)
    await world.lead()
    await world.label("a", {f"{DEPLOY}operands": "false"})
    await world.sleep(5)
    requests = [each for each in world.server.journal.revisions if each.user == USER]
    # To RBAC, an apply is a patch.
    assert {(each.kind, each.verb) for each in requests} == {
        ("Node", "apply"),
        ("Node", "patch"),
        ("Lease", "patch"),
    }
    rights = {
        (rule.group, resource, verb, rule.scope)
        for rule in RBAC_RULES[World.WRITER]
        for resource in rule.resources
        for verb in rule.verbs
        if rule.scope is RbacScope.NAMESPACE or not rule.names
    }
    for kind in (resources.GPU_CLUSTERS, *resources.POLICIES.values()):
        for verb in ("list", "watch"):
            assert (kind.group, kind.plural, verb, RbacScope.CLUSTER) in rights
    for verb in ("get", "list", "watch", "patch"):
        assert ("", "nodes", verb, RbacScope.CLUSTER) in rights
    for verb in ("get", "create", "patch"):
        assert ("coordination.k8s.io", "leases", verb, RbacScope.NAMESPACE) in rights
