"""`helm uninstall` on a real node: cluster and host are as before."""

from tests.system.install.release import Release
from tests.system.install.world import NAMESPACE


async def test_helm_uninstall_leaves_nothing(release: Release) -> None:
    """A driver was loaded, and the container runtime knew our handlers; a first attempt is refused,
    because the driver is just being installed.
    """
    world = release.world
    (node,) = world.ground.nodes
    assert f"Sluice is changing these nodes: {node.name}." in release.refused_said
    await release.until_ready()
    await world.kubectl.succeeds("get", "runtimeclass", "nvidia", within=120)
    assert "zz-sluice.toml" in await world.host()

    said = await world.uninstall()
    assert 'release "sluice" uninstalled' in said
    assert "Sluice is removed, but for the objects of its chart" in said
    await world.until_as(release.cluster)
    after = await world.host()
    assert sorted({*after.splitlines()} ^ {*release.host.splitlines()}) == []
    assert (await world.in_namespace("get", "pods")).startswith("No resources found")
    assert NAMESPACE in await world.kubectl.run("get", "namespaces")
