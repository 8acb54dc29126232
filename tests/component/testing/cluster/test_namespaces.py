"""Namespaces of the simulated cluster: default objects and deletion."""

from libs.kube.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from libs.testing.simulation import Sim
from tests.component.testing.cluster.world import ClusterWorld, cluster_world, run_world


async def place(world: ClusterWorld, name: str = "place") -> None:
    """A new namespace, with what stands in it."""
    await world.kube.create(NAMESPACES, {"metadata": {"name": name}})

    async def furnished() -> bool:
        return await things(world, name) == {"default", "kube-root-ca.crt"}

    await world.until(furnished, within=1.0)


async def things(world: ClusterWorld, name: str) -> set[str]:
    """Names of config maps and accounts."""
    found = set[str]()
    for resource in (CONFIG_MAPS, SERVICE_ACCOUNTS):
        page = await world.kube.list_page(resource, namespace=name)
        found |= {each.metadata.name for each in page.items}
    return found


def test_default_objects_of_a_namespace_are_restored() -> None:
    async def main(sim: Sim) -> None:
        async with cluster_world(sim, nodes=0) as world:
            await place(world)
            for name in ("default", "kube-system"):
                assert await things(world, name) == {"default", "kube-root-ca.crt"}
            for resource, name in (
                (CONFIG_MAPS, "kube-root-ca.crt"),
                (SERVICE_ACCOUNTS, "default"),
            ):
                taken = await world.kube.get(resource, name, namespace="place")
                uid = taken.metadata.uid
                await world.kube.delete(resource, name, uid=uid, namespace="place")
                await world.sleep(1.0)
                back = await world.kube.get(resource, name, namespace="place")
                assert back.metadata.uid != uid

    run_world(main)
