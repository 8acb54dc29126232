"""Namespaces of the simulated cluster: default objects and deletion."""

from libs.kube.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from libs.testing.simulation import Sim
from tests.component.testing.cluster.world import ClusterWorld, cluster_world, run_world


async def create_namespace(world: ClusterWorld, name: str = "other") -> None:
    """Create a namespace; wait for its default objects."""
    await world.kube.create(NAMESPACES, {"metadata": {"name": name}})

    async def has_default_objects() -> bool:
        return await default_objects(world, name) == {"default", "kube-root-ca.crt"}

    await world.until(has_default_objects, within=1.0)


async def default_objects(world: ClusterWorld, name: str) -> set[str]:
    """Return the names of its ConfigMaps and ServiceAccounts."""
    found = set[str]()
    for resource in (CONFIG_MAPS, SERVICE_ACCOUNTS):
        page = await world.kube.list_page(resource, namespace=name)
        found |= {each.metadata.name for each in page.items}
    return found


def test_default_objects_of_a_namespace_are_restored() -> None:
    async def main(sim: Sim) -> None:
        async with cluster_world(sim, nodes=0) as world:
            await create_namespace(world)
            for name in ("default", "kube-system"):
                assert await default_objects(world, name) == {"default", "kube-root-ca.crt"}
            for resource, name in (
                (CONFIG_MAPS, "kube-root-ca.crt"),
                (SERVICE_ACCOUNTS, "default"),
            ):
                deleted = await world.kube.get(resource, name, namespace="other")
                uid = deleted.metadata.uid
                await world.kube.delete(resource, name, uid=uid, namespace="other")
                await world.sleep(1.0)
                restored = await world.kube.get(resource, name, namespace="other")
                assert restored.metadata.uid != uid

    run_world(main)
