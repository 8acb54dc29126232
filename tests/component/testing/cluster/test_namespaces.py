"""Namespaces of the simulated cluster: default objects and deletion."""

from libs.kube.client import MERGE_PATCH
from libs.kube.errors import NotFound
from libs.kube.resources import CONFIG_MAPS, SERVICE_ACCOUNTS
from libs.testing.cluster.namespaces import GRACE, RETRY_AFTER
from libs.testing.cluster.views import NAMESPACES
from libs.testing.simulation import Sim
from tests.component.testing.cluster.world import ClusterWorld, cluster_world, run_world

HELD_BY = "x.dev/held"


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


async def end(world: ClusterWorld, name: str = "place") -> None:
    """Delete the namespace."""
    await world.kube.request("DELETE", NAMESPACES.path(name=name))


async def gone(world: ClusterWorld) -> bool:
    """Whether it is."""
    try:
        await world.kube.get(NAMESPACES, "place")
    except NotFound:
        return True
    return False


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


def test_an_object_with_a_finalizer_keeps_its_namespace() -> None:
    async def main(sim: Sim) -> tuple[float, float]:
        async with cluster_world(sim, nodes=0) as world:
            await place(world)
            held = {"metadata": {"name": "a", "finalizers": [HELD_BY]}}
            await world.kube.create(CONFIG_MAPS, held, namespace="place")
            await end(world)

            async def told() -> bool:
                found = await world.kube.get(CONFIG_MAPS, "a", namespace="place")
                return bool(found.metadata.deletion_timestamp)

            first = await world.until(told)
            assert await things(world, "place") == {"a"}
            await world.sleep(60.0)
            assert not await gone(world)
            path = CONFIG_MAPS.path(namespace="place", name="a")
            free = {"metadata": {"finalizers": None}}
            await world.kube.request("PATCH", path, body=free, content_type=MERGE_PATCH)
            return first, await world.until(lambda: gone(world))

    first, then = run_world(main)
    assert GRACE <= first < GRACE + 1.0
    assert then <= RETRY_AFTER / 2 + 1.0
