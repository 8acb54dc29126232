"""The operands of a policy, and the status that describes them."""

from libs.forecast.world import ProcessEnd
from libs.testing.stage.worlds import WorldOverride
from services.driver.cluster import resources
from tests.component.driver.cluster.world import (
    AGENTS,
    CLUSTER_POLICIES,
    EXPORTER,
    POLICY,
    RUNTIME_CLASSES,
    World,
    in_world,
    play,
)
from tests.component.processes import NAMESPACE
from tests.unit.policy.situations import DRIVER

UNBUILT_OFF = {name: {"enabled": False} for name in ("toolkit", "devicePlugin")}
"""A policy without the operands that this version does not have."""


@in_world
async def test_a_policy_brings_up_agents_and_a_driver_for_each_system(world: World) -> None:
    await world.install_policy()
    await world.lead()
    found = await world.daemon_sets()
    drivers = await world.drivers()
    assert sorted(found) == sorted([*AGENTS, *drivers])
    systems = [found[name].metadata.labels["nvidia.com/node.os-version"] for name in drivers]
    assert sorted(systems) == ["ubuntu22.04", "ubuntu24.04"]
    for name in drivers:
        assert found[name].spec["updateStrategy"]["type"] == "OnDelete"
        assert found[name].metadata.owner_references == ()
        assert found[name].status.desired_number_scheduled == 0
    assert found["sluice-discovery-agent"].status.number_available == 2
    classes = [await world.exists(resources.RUNTIME_CLASSES, name) for name in RUNTIME_CLASSES]
    assert classes == [True, True, False]
    assert await world.exists(resources.CONFIGS, "sluice-driver-startup-probe")


@in_world
async def test_each_object_is_written_once_and_the_status_when_it_changes(
    world: World,
) -> None:
    await world.install_policy()
    await world.lead()
    written = world.written
    assert {verb for verb, kind, _ in written if kind in resources.OPERANDS} == {"apply"}
    assert len([kind for _, kind, _ in written if kind in resources.OPERANDS]) == 11
    statuses = [name for _, kind, name in written if kind == "ClusterPolicy"]
    assert 1 <= len(statuses) <= 3
    assert len(world.revisions()) == 11 + len(statuses)


@in_world
async def test_a_restart_writes_nothing(world: World) -> None:
    await world.install_policy()
    first = await world.lead()
    for stop in (first.stop, first.kill):
        before = len(world.revisions())
        await stop()
        first = await world.lead()
        await world.sleep(1000)
        assert len(world.revisions()) == before > 0


@in_world
async def test_the_status_shows_problems_and_success(world: World) -> None:
    await world.install_policy(**UNBUILT_OFF)
    role = await world.lead()
    conditions = await world.conditions()
    assert await world.state() == "notReady"
    assert conditions["Ready"]["status"] == "False"
    message = "state-driver on a: no driver is running yet"
    assert message in conditions["Error"]["message"]
    assert {each["observedGeneration"] for each in conditions.values()} == {1}
    assert role.value("gpu_operator_reconciliation_status") == 0
    for node, system in (("a", "ubuntu22.04"), ("b", "ubuntu24.04")):
        await world.set_driver_label(node, await world.driver(system=system))
        await world.label(node, {"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"})
    await world.sleep(60)
    assert await world.state() == "ready"
    view = await world.kube.get(CLUSTER_POLICIES, POLICY)
    assert view.status["namespace"] == NAMESPACE
    assert role.value("gpu_operator_reconciliation_status") == 1
    assert role.value("gpu_operator_gpu_nodes_total") == 2
    assert role.value("gpu_operator_reconciliation_has_nfd_labels") == 1
    succeeded = role.value("gpu_operator_reconciliation_last_success_ts_seconds") or 0
    assert 0 <= world.sim.clock.now() - succeeded <= 60
    total = role.value("gpu_operator_reconciliation_total") or 0
    failed = role.value("gpu_operator_reconciliation_failed_total") or 0
    assert total > failed > 0


def test_crashing_pods_are_in_the_status_with_node_and_cause_until_they_run() -> None:
    async def story(world: World) -> None:
        await world.install_policy()
        await world.lead()
        await world.sleep(60)
        conditions = await world.conditions()
        message = "gpu-feature-discovery on a: sluice-discovery: CrashLoopBackOff: "
        assert message in conditions["Error"]["message"]
        assert "gpu-feature-discovery on b" not in conditions["Error"]["message"]
        await world.sleep(600)
        conditions = await world.conditions()
        assert "gpu-feature-discovery" not in conditions["Error"]["message"]

    crashes = WorldOverride(
        node="a",
        workload="sluice-discovery-agent",
        first_attempts=4,
        run=ProcessEnd(1.0, 1),
    )
    play(story, crashes)


@in_world
async def test_writes_are_counted_by_kind(world: World) -> None:
    await world.install_policy()
    role = await world.lead()
    for kind in resources.WRITTEN:
        known = {"kind": kind, "outcome": "written"}
        created = len([each for each in world.written if each[1] == kind])
        assert role.value("sluice_driver_api_writes_total", **known) == created, kind


@in_world
async def test_operands_that_do_not_exist_are_named_and_keep_the_policy_from_being_ready(
    world: World,
) -> None:
    await world.install_policy(cdi={"enabled": False})
    await world.lead()
    condition = (await world.conditions())["MissingOperands"]
    assert (condition["status"], condition["reason"]) == ("True", "NotBuilt")
    assert "spec.toolkit is switched on, but" in condition["message"]
    await world.change_policy(cdi={"enabled": True})
    await world.sleep(10)
    assert "MissingOperands" not in await world.conditions()


@in_world
async def test_runtime_classes_follow_the_handlers_of_nodes_and_stay_while_wanted(
    world: World,
) -> None:
    await world.install_policy()
    await world.add_handlers("b", "runc")
    await world.lead()

    async def classes() -> list[bool]:
        return [await world.exists(resources.RUNTIME_CLASSES, name) for name in RUNTIME_CLASSES]

    assert await classes() == [False, False, False]
    await world.add_handlers("a", "runc", "nvidia", "nvidia-cdi")
    await world.sleep(10)
    assert await classes() == [True, True, False]
    await world.add_handlers("a", "runc")
    await world.sleep(10)
    assert await classes() == [True, True, False]
    await world.change_policy(cdi={"enabled": False})
    await world.sleep(10)
    assert await classes() == [True, False, False]


@in_world
async def test_an_edit_of_our_fields_is_reverted_and_added_fields_stay(world: World) -> None:
    await world.install_policy()
    await world.lead()
    before = len(world.revisions())
    name = "sluice-discovery-agent"
    added = {"metadata": {"labels": {"team": "ml"}, "annotations": {"note": "mine"}}}
    await world.patch(resources.DAEMON_SETS, name, added)
    await world.sleep(10)
    assert len(world.revisions()) == before
    changed = {"spec": {"template": {"spec": {"priorityClassName": "low"}}}}
    await world.patch(resources.DAEMON_SETS, name, changed)
    await world.sleep(10)
    each = (await world.daemon_sets())[name]
    assert each.spec["template"]["spec"]["priorityClassName"] == "system-node-critical"
    assert each.metadata.labels["team"] == "ml"
    assert world.written[before:][:1] == [("apply", "DaemonSet", name)]


@in_world
async def test_deleted_objects_are_recreated(world: World) -> None:
    await world.install_policy()
    await world.lead()
    before = sorted(await world.daemon_sets())
    for name in before:
        await world.remove(resources.DAEMON_SETS, name)
    await world.remove(resources.RUNTIME_CLASSES, "nvidia")
    await world.sleep(10)
    assert sorted(await world.daemon_sets()) == before
    assert await world.exists(resources.RUNTIME_CLASSES, "nvidia")


@in_world
async def test_disabled_operands_are_deleted(world: World) -> None:
    await world.install_policy()
    await world.lead()
    off = {"dcgmExporter": {"enabled": False}, "cdi": {"enabled": False}}
    await world.change_policy(**off)
    await world.sleep(30)
    found = await world.daemon_sets()
    assert EXPORTER not in found
    assert len(found) == 6
    stored = [await world.exists(resources.RUNTIME_CLASSES, name) for name in RUNTIME_CLASSES]
    assert stored == [True, False, False]


@in_world
async def test_an_invalid_policy_changes_nothing_and_is_reported(world: World) -> None:
    await world.install_policy()
    await world.lead()
    before = sorted(await world.daemon_sets())
    driver = {"image": None, "version": "590.10"}
    spec = {"driver": driver, "dcgmExporter": {"enabled": False}}
    await world.change_policy(**spec)
    await world.sleep(30)
    assert sorted(await world.daemon_sets()) == before
    conditions = await world.conditions()
    assert conditions["Accepted"]["status"] == "False"
    assert conditions["Degraded"]["status"] == "True"
    ((reason, message),) = await world.events()
    assert reason == "Invalid"
    assert "spec.driver.image is missing" in message


@in_world
async def test_drivers_wait_for_a_config_map_named_by_the_policy(world: World) -> None:
    driver = {**DRIVER, "certConfig": {"name": "ca"}}
    await world.install_policy(driver=driver)
    role = await world.lead()
    assert await world.drivers() == []
    conditions = await world.conditions()
    assert "names a ConfigMap that does not exist" in conditions["Error"]["message"]
    config = {"metadata": {"name": "ca"}, "data": {"ca.crt": "x"}}
    await world.kube.create(resources.CONFIGS, config, namespace=NAMESPACE)
    await world.sleep(10)
    assert len(await world.drivers()) == 2
    assert role.value("gpu_operator_reconciliation_status") == 0
