"""Namespaces of the simulated cluster: default objects and deletion."""

import pytest

from libs.kube.client import MERGE_PATCH
from libs.kube.errors import Forbidden, NotFound
from libs.kube.resources import CONFIG_MAPS, EVENTS, SERVICE_ACCOUNTS
from libs.testing.cluster.namespaces.controller import GRACE, RETRY_AFTER
from libs.testing.cluster.views import NAMESPACES
from libs.testing.simulation import Sim
from tests.component.testing.cluster.world import ClusterWorld, cluster_world, run_world

HELD_BY = "x.dev/held"


async def place(there: ClusterWorld, name: str = "place") -> None:
    """A new namespace, with what stands in it."""
    await there.kube.create(NAMESPACES, {"metadata": {"name": name}})

    async def furnished() -> bool:
        return await things(there, name) == {"default", "kube-root-ca.crt"}

    await there.until(furnished, within=1.0)


async def things(there: ClusterWorld, name: str) -> set[str]:
    """Names of config maps and accounts."""
    found = set[str]()
    for resource in (CONFIG_MAPS, SERVICE_ACCOUNTS):
        page = await there.kube.list_page(resource, namespace=name)
        found |= {each.metadata.name for each in page.items}
    return found


async def end(there: ClusterWorld, name: str = "place") -> None:
    """Delete the namespace."""
    await there.kube.request("DELETE", NAMESPACES.path(name=name))


async def gone(there: ClusterWorld) -> bool:
    """Whether it is."""
    try:
        await there.kube.get(NAMESPACES, "place")
    except NotFound:
        return True
    return False


def test_default_objects_of_a_namespace_are_restored() -> None:
    async def main(sim: Sim) -> None:
        async with cluster_world(sim, nodes=0) as there:
            await place(there)
            for name in ("default", "kube-system"):
                assert await things(there, name) == {"default", "kube-root-ca.crt"}
            for resource, name in (
                (CONFIG_MAPS, "kube-root-ca.crt"),
                (SERVICE_ACCOUNTS, "default"),
            ):
                taken = await there.kube.get(resource, name, namespace="place")
                uid = taken.metadata.uid
                await there.kube.delete(resource, name, uid=uid, namespace="place")
                await there.sleep(1.0)
                back = await there.kube.get(resource, name, namespace="place")
                assert back.metadata.uid != uid

    run_world(main)


def test_a_terminating_namespace_deletes_its_objects_and_refuses_new_ones() -> None:
    async def main(sim: Sim) -> float:
        async with cluster_world(sim, nodes=0) as there:
            await place(there)
            map_ = {"metadata": {"name": "a"}}
            for namespace in ("place", "default"):
                await there.kube.create(CONFIG_MAPS, map_, namespace=namespace)
            about = {"kind": "Namespace", "name": "place", "namespace": "place"}
            event = {"metadata": {"name": "e"}, "involvedObject": about}
            await there.kube.create(EVENTS, event, namespace="place")
            await end(there)
            with pytest.raises(Forbidden, match="is being terminated"):
                await there.kube.create(SERVICE_ACCOUNTS, map_, namespace="place")
            took = await there.until(lambda: gone(there))
            assert await things(there, "place") == set()
            assert not (await there.kube.list_page(EVENTS, namespace="place")).items
            assert "a" in await things(there, "default")
            return took

    assert GRACE <= run_world(main) < GRACE + 1.0


def test_an_object_with_a_finalizer_keeps_its_namespace() -> None:
    async def main(sim: Sim) -> tuple[float, float]:
        async with cluster_world(sim, nodes=0) as there:
            await place(there)
            held = {"metadata": {"name": "a", "finalizers": [HELD_BY]}}
            await there.kube.create(CONFIG_MAPS, held, namespace="place")
            await end(there)

            async def told() -> bool:
                found = await there.kube.get(CONFIG_MAPS, "a", namespace="place")
                return bool(found.metadata.deletion_timestamp)

            first = await there.until(told)
            assert await things(there, "place") == {"a"}
            await there.sleep(60.0)
            assert not await gone(there)
            path = CONFIG_MAPS.path(namespace="place", name="a")
            free = {"metadata": {"finalizers": None}}
            await there.kube.request("PATCH", path, body=free, content_type=MERGE_PATCH)
            return first, await there.until(lambda: gone(there))

    first, then = run_world(main)
    assert GRACE <= first < GRACE + 1.0
    assert then <= RETRY_AFTER / 2 + 1.0


def test_a_killed_namespace_controller_continues_after_its_restart() -> None:
    async def main(sim: Sim) -> None:
        async with cluster_world(sim, nodes=0) as there:
            await place(there)
            await there.cluster.kill("namespaces")
            await end(there)
            await there.sleep(60.0)
            assert not await gone(there)
            there.cluster.start("namespaces")
            await there.until(lambda: gone(there), within=GRACE + 1.0)

    run_world(main)
