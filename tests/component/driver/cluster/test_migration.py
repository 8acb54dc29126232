"""docs/migrate.md: from the GPU Operator to Sluice and back, its driver pods stay as they are.

Played by the driver service on the simulated API server. Nodes are changed by the scheduler, which
is not here.
"""

from services.driver.cluster import resources
from tests.component.driver.cluster.test_foreign_operator import (
    install_with_gpu_operator,
    keep_lease,
    operator_daemon_set,
    operator_pods,
    renew,
)
from tests.component.driver.cluster.world import (
    AGENTS,
    CLUSTER_POLICIES,
    POLICY,
    World,
    in_world,
)
from tests.component.processes import NAMESPACE

DRIVER = "nvidia-driver-daemonset"
PLUGIN = "nvidia-device-plugin-daemonset"


async def add_operand(world: World, name: str) -> list[str]:
    """Create a DaemonSet of the operator, and return its pods once they are there."""
    policy = await world.kube.get(CLUSTER_POLICIES, POLICY)
    manifest = operator_daemon_set(name, uid=policy.metadata.uid)
    await world.kube.create(resources.DAEMON_SETS, manifest, namespace=NAMESPACE)
    await world.sleep(10)
    return await operator_pods(world, name)


async def condition(world: World, name: str) -> str:
    found = await world.conditions()
    return found[name]["message"] if name in found else ""


@in_world
async def test_forth_and_back_without_touching_a_driver(world: World) -> None:
    await install_with_gpu_operator(world)
    drivers = await add_operand(world, DRIVER)
    await add_operand(world, PLUGIN)
    assert len(drivers) == 2

    # Beside the operator: nothing but a condition is written.
    world.start()
    await keep_lease(world, seconds=60)
    assert {kind for _, kind, _ in world.written} == {"ClusterPolicy"}
    assert await condition(world, "ForeignOperator")

    # The operator is scaled to 0: agents come, and what it left is named.
    await world.sleep(75)
    assert set(AGENTS) <= set(await world.daemon_sets())
    assert not await condition(world, "ForeignOperator")
    assert PLUGIN in await condition(world, "ForeignOperands")
    for name in (PLUGIN, "nvidia-operator-validator"):
        await world.remove(resources.DAEMON_SETS, name)

    # Its driver DaemonSet goes without its pods.
    path = resources.DAEMON_SETS.path(namespace=NAMESPACE, name=DRIVER)
    await world.kube.request("DELETE", path, body={"propagationPolicy": "Orphan"})
    await world.sleep(60)
    assert not await condition(world, "ForeignOperands")
    assert await operator_pods(world, DRIVER) == drivers

    # Back: the operator leads again, and Sluice writes nothing from then on.
    await renew(world)
    await world.sleep(5)
    written = len([kind for _, kind, _ in world.written if kind != "ClusterPolicy"])
    await keep_lease(world, seconds=120)
    assert await condition(world, "ForeignOperator")
    assert len([kind for _, kind, _ in world.written if kind != "ClusterPolicy"]) == written
    assert await operator_pods(world, DRIVER) == drivers
