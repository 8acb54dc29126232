"""Driver DaemonSets: each target has its own; an old one is deleted when nothing refers to it."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from libs.contracts.node import DRIVER_LABEL
from libs.kube.errors import Conflict
from libs.policy.render.rendered import TARGET_ANNOTATION
from libs.testing.apiserver.faults import Fault, Hang, RefuseRequest
from services.driver.cluster import decide, resources
from services.driver.cluster.decide import delete_operand
from services.driver.cluster.plan import ObjectKey
from services.driver.cluster.resources import Informers
from services.driver.cluster.writes import DriverMetrics, Writes
from tests.component.driver.cluster.world import CLUSTER_POLICIES, POLICY, World, in_world
from tests.component.processes import NAMESPACE
from tests.unit.policy.situations import cluster_policy

RETENTION = decide.HOUR
HOUR = 600.0
"""The retention of an unused DaemonSet in seconds, in these tests."""
ROLLOUT = f"clusterpolicy-{POLICY}"


@pytest.fixture
def short_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "HOUR", HOUR)


async def install_first_driver(world: World) -> str:
    """Set up a node that runs the driver of its policy; return the name of the DaemonSet."""
    await world.install()
    world.add_kubelet("a")
    await world.apply(cluster_policy())
    await world.sleep(5)
    await world.lead()
    old = await world.driver()
    await world.set_driver_label("a", old)
    await world.sleep(10)
    return old


async def change_version(world: World, version: str = "590.10") -> None:
    await world.change_policy(driver={"version": version})
    await world.sleep(5)


async def target_of(world: World, name: str) -> str:
    return (await world.daemon_sets())[name].metadata.annotations[TARGET_ANNOTATION]


@in_world
async def test_another_version_creates_a_second_daemon_set_beside_the_first(world: World) -> None:
    old = await install_first_driver(world)
    before = (await world.daemon_sets())[old]
    await change_version(world)
    new = await world.driver(but=[old])
    found = await world.daemon_sets()
    assert found[old].metadata.generation == before.metadata.generation == 1
    assert found[old].status.desired_number_scheduled == 1
    assert found[new].status.desired_number_scheduled == 0
    assert await target_of(world, new) != await target_of(world, old)


@pytest.mark.usefixtures(short_retention.__name__)
@in_world
async def test_the_old_daemon_set_is_deleted_an_hour_after_the_last_node_left_it(
    world: World,
) -> None:
    assert RETENTION == 3600.0
    old = await install_first_driver(world)
    await change_version(world)
    new = await world.driver(but=[old])
    await world.sleep(decide.HOUR + 300)
    assert await world.exists(resources.DAEMON_SETS, old)
    await world.set_driver_label("a", new)
    await world.sleep(decide.HOUR - 60)
    assert await world.exists(resources.DAEMON_SETS, old)
    await world.sleep(120)
    assert await world.drivers() == [new]
    assert [each[1:] for each in world.written if each[0] == "delete"] == [("DaemonSet", old)]
    assert (await world.daemon_sets())[new].status.number_available == 1


@pytest.mark.usefixtures(short_retention.__name__)
@in_world
async def test_the_hour_starts_again_when_a_node_goes_back(world: World) -> None:
    old = await install_first_driver(world)
    await change_version(world)
    new = await world.driver(but=[old])
    await world.set_driver_label("a", new)
    await world.sleep(HOUR - 60)
    await world.set_driver_label("a", old)
    await world.sleep(60)
    await world.set_driver_label("a", new)
    await world.sleep(HOUR - 60)
    assert await world.exists(resources.DAEMON_SETS, old)
    await world.sleep(120)
    assert not await world.exists(resources.DAEMON_SETS, old)


async def refer_by_rollout(world: World, old: str) -> None:
    about = {"apiVersion": resources.ROLLOUTS.api_version, "kind": resources.ROLLOUTS.kind}
    created = {**about, "metadata": {"name": ROLLOUT}, "spec": {}}
    await world.kube.create(resources.ROLLOUTS, created)
    status = {"status": {"lastGood": await target_of(world, old)}}
    await world.patch(resources.ROLLOUTS, ROLLOUT, status, subresource="status")


async def refer_by_unknown_commands(world: World, old: str) -> None:
    world.commanded = None


async def refer_by_command(world: World, old: str) -> None:
    label = (await world.daemon_sets())[old].metadata.labels[DRIVER_LABEL]
    world.commanded = {label: {(await world.kube.get(resources.NODES, "a")).metadata.uid}}


@pytest.mark.usefixtures(short_retention.__name__)
@pytest.mark.parametrize("refer", [refer_by_rollout, refer_by_command, refer_by_unknown_commands])
@in_world
async def test_a_referenced_driver_stays(
    world: World, refer: Callable[[World, str], Coroutine[Any, Any, None]]
) -> None:
    old = await install_first_driver(world)
    await change_version(world)
    await refer(world, old)
    await world.set_driver_label("a", await world.driver(but=[old]))
    await world.sleep(HOUR + 300)
    assert await world.exists(resources.DAEMON_SETS, old)


@pytest.mark.usefixtures(short_retention.__name__)
@in_world
async def test_a_version_restored_before_the_nodes_moved_writes_only_the_status(
    world: World,
) -> None:
    old = await install_first_driver(world)
    await change_version(world)
    before = len(world.revisions())
    await change_version(world, "580.95.05")
    await world.sleep(60)
    assert {kind for _, kind, _ in world.written[before:]} == {"ClusterPolicy"}
    new = await world.driver(but=[old])
    await world.sleep(HOUR + 60)
    assert await world.drivers() == [old]
    assert not await world.exists(resources.DAEMON_SETS, new)


@pytest.mark.usefixtures(short_retention.__name__)
@pytest.mark.parametrize(
    ("kind", "effect"),
    [("Node", RefuseRequest(500)), ("Rollout", Hang()), ("ClusterPolicy", RefuseRequest(500))],
)
@in_world
async def test_nothing_is_deleted_while_a_kind_cannot_be_read(
    world: World, kind: str, effect: RefuseRequest | Hang
) -> None:
    old = await install_first_driver(world)
    await change_version(world)
    await world.set_driver_label("a", await world.driver(but=[old]))
    await world.sleep(HOUR - 60)
    faults = [
        world.server.faults.add(Fault(effect=effect, kind=kind, verbs=(verb,)))
        for verb in ("get", "list", "watch")
    ]
    world.server.faults.drop_watches(kind=kind, clean=False)
    await world.sleep(HOUR)
    assert await world.exists(resources.DAEMON_SETS, old)
    for fault in faults:
        world.server.faults.remove(fault)
    await world.sleep(900)
    assert not await world.exists(resources.DAEMON_SETS, old)


@pytest.mark.usefixtures(short_retention.__name__)
@in_world
async def test_the_driver_of_a_node_with_unknown_system_stays(world: World) -> None:
    """Without the system its driver is not rendered, but the policy still has its target."""
    old = await install_first_driver(world)
    label = {"feature.node.kubernetes.io/system-os_release.ID": None, "sluice.dev/driver": None}
    await world.label("a", label)
    await world.sleep(HOUR + 300)
    assert await world.drivers() == [old]


@pytest.mark.usefixtures(short_retention.__name__)
@in_world
async def test_the_drivers_of_a_deleted_policy_stay_and_keep_running(world: World) -> None:
    old = await install_first_driver(world)
    await change_version(world)
    new = await world.driver(but=[old])
    others = set(await world.daemon_sets()) - {old, new}
    await world.remove(CLUSTER_POLICIES, POLICY)
    await world.sleep(HOUR + 300)
    found = await world.daemon_sets()
    assert set(found) == {old, new, *others}
    assert all(each.metadata.owner_references == () for each in found.values())
    assert found[old].status.number_available == 1
    assert [each for each in world.written if each[0] == "delete"] == []


@pytest.mark.usefixtures(short_retention.__name__)
@in_world
async def test_deleting_and_recreating_a_policy_writes_no_operand(world: World) -> None:
    daemon_sets = {
        "tolerations": [{"key": "team", "operator": "Exists"}],
        "labels": {"helm.sh/chart": "gpu-operator-v26.7.0"},
    }
    exporter = {"imagePullSecrets": ["registry"]}
    await world.install_policy(daemonsets=daemon_sets, dcgmExporter=exporter)
    await world.lead()
    await world.set_driver_label("a", await world.driver())
    await world.sleep(10)
    before, written = await world.daemon_sets(), len(world.written)
    await world.remove(CLUSTER_POLICIES, POLICY)
    await world.sleep(HOUR + 300)
    assert world.written[written:] == []
    daemon_sets["labels"] = {"helm.sh/chart": "gpu-operator-v26.9.0"}
    await world.apply(cluster_policy(daemonsets=daemon_sets, dcgmExporter=exporter))
    await world.sleep(HOUR + 300)
    assert {kind for _, kind, _ in world.written[written:]} == {"ClusterPolicy"}
    after = await world.daemon_sets()
    assert {name: each.metadata.uid for name, each in after.items()} == {
        name: each.metadata.uid for name, each in before.items()
    }
    assert {each.metadata.generation for each in after.values()} == {1}


@pytest.mark.usefixtures(short_retention.__name__)
@in_world
async def test_a_refused_delete_is_retried(world: World) -> None:
    old = await install_first_driver(world)
    await change_version(world)
    await world.set_driver_label("a", await world.driver(but=[old]))
    await world.sleep(HOUR - 60)
    fault = Fault(effect=RefuseRequest(409), kind="DaemonSet", verbs=("delete",), times=2)
    world.server.faults.add(fault)
    await world.sleep(600)
    assert not await world.exists(resources.DAEMON_SETS, old)
    assert [each.code for each in world.revisions() if each.verb == "delete"] == [409, 409, 200]


@in_world
async def test_an_object_that_changed_since_the_decision_is_not_deleted(world: World) -> None:
    old = await install_first_driver(world)
    env, namespace = world.sim.env(), NAMESPACE
    metrics = DriverMetrics(env)
    sources = Informers(world.kube, namespace=namespace, env=env)
    actions = Writes(world.kube, informers=sources, namespace=namespace, metrics=metrics)
    stored = (await world.daemon_sets())[old]
    await world.patch(resources.DAEMON_SETS, old, {"metadata": {"labels": {"new": "1"}}})
    key = ObjectKey("DaemonSet", old)
    with pytest.raises(Conflict):
        await actions.delete_operand(key, delete_operand(stored, because="nothing refers to it"))
    stored = (await world.daemon_sets())[old]
    await actions.delete_operand(key, delete_operand(stored, because="nothing refers to it"))
    await actions.delete_operand(key, delete_operand(stored, because="it is gone already"))
