"""`helm uninstall` on a real node: cluster and host are as before."""

import pytest

from libs.contracts.node import LEASE_ANNOTATION
from libs.policy.crds import crd_manifests
from libs.testing.image.driver_settings import DriverSettings
from tests.component.driver.uninstall.snapshot import snapshot, until_as
from tests.support import eventually
from tests.system.install.test_install import AGENTS
from tests.system.install.world import NAMESPACE, VERSION, World


async def has_lease(world: World) -> bool:
    nodes = (await world.kubectl.get("nodes"))["items"]
    return any(LEASE_ANNOTATION in each["metadata"]["annotations"] for each in nodes)


@pytest.mark.timeout(1800)
async def test_helm_uninstall_leaves_nothing(world: World) -> None:
    """A driver was loaded, and the container runtime knew our handlers; a first attempt is refused,
    because the driver is just being installed.
    """
    await world.create_namespace()
    await world.kubectl.apply(*crd_manifests().values())
    (machine,) = world.machines
    cluster, host = await snapshot(world.kubectl), await world.host()
    machine.set_driver(VERSION, DriverSettings(hangs=True))
    await world.helm("install")
    await world.forward_nats()
    await eventually(lambda: has_lease(world), within=300)
    (node,) = world.ground.nodes
    assert f"Sluice is changing these nodes: {node.name}." in await world.refused_uninstall()
    machine.set_driver(VERSION, DriverSettings())
    await world.until_agents_are_ready(AGENTS, within=400)
    await world.kubectl.succeeds("get", "runtimeclass", "nvidia", within=120)
    assert "zz-sluice.toml" in await world.host()

    said = await world.uninstall()
    assert 'release "sluice" uninstalled' in said
    await until_as(cluster, world.kubectl, within=120)
    after = await world.host()
    assert sorted({*after.splitlines()} ^ {*host.splitlines()}) == []
    assert (await world.in_namespace("get", "pods")).startswith("No resources found")
    assert NAMESPACE in await world.kubectl.run("get", "namespaces")
