"""Nodes change from claims to the device plugin and back, while pods have GPUs of either kind."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from libs.kube import views
from libs.kube.cache import Cache
from libs.kube.client import Kube
from libs.kube.connect import open_transport
from libs.kube.resources import Resource
from libs.policy.render.agents import DRA_DAEMON_SET
from libs.policy.render.rendered import DEVICE_PLUGIN_APP, DRA_APP
from libs.runtime.clock import SystemClock
from libs.testing.simulation import make_env
from services.driver.cluster.remaining_claims import CLAIMS_REMAIN
from tests.system.nodes.installation import NAMESPACE, POLICY
from tests.system.upgrade import claims
from tests.system.upgrade.claims import claimed_service, claiming_pod, published
from tests.system.upgrade.kills import SOAK_ONLY
from tests.system.upgrade.prepared import prepared_claims
from tests.system.upgrade.workload import RESOURCE, SERVICE, container
from tests.system.upgrade.world import NEW, OLD, World

pytestmark = SOAK_ONLY

WITHIN: Final = 240.0
BY_PLUGIN: Final[dict[str, Any]] = {"devicePlugin": {"enabled": True}, "dra": {"enabled": False}}


async def test_nodes_change_from_claims_to_the_device_plugin_and_back(world: World) -> None:
    first, second = world.machines
    await world.apply_policy(OLD, **claims.POLICY)
    async with never_both(world), prepared_claims(world) as prepared:
        await world.until_all_run(OLD, within=WITHIN)
        await until_claimable(world, all_gpus(world))
        await world.kubectl.apply(*claiming_pod("claims", first.node.name))
        await world.kubectl.wait("condition=Ready", "pod/claims")

        await world.apply_policy(OLD, **BY_PLUGIN)
        some = all_gpus(world) | {first.node.name: len(first.gpus.gpus) - 1}
        await until_offered(world, some)
        assert await claims.gpus_and_drivers(world.kubectl, "claims") == (1, {OLD})
        await until_named(world, first.node.name)
        await first.node.restart_kubelet()
        await until_offered(world, some)
        await world.kubectl.run("delete", "--wait", "--timeout=60s", "pod/claims")
        assert prepared.now[first.node.name] <= {"claims"}
        await world.kubectl.run("delete", "--wait", "--timeout=60s", "resourceclaim/claims")
        await until_offered(world, all_gpus(world))
        await until_gone(world)

        await world.kubectl.apply(asking_pod("asks", first.node.name, len(first.gpus.gpus)))
        await world.kubectl.wait("condition=Ready", "pod/asks")
        await world.apply_policy(OLD, **claims.POLICY)
        await until_claimable(world, all_gpus(world) | {first.node.name: 0})
        await world.kubectl.apply(*claiming_pod("again", second.node.name))
        await world.kubectl.wait("condition=Ready", "pod/again")
        await world.kubectl.run("exec", "asks", "--", "true")
        await world.kubectl.run("delete", "--wait", "--timeout=60s", "pod/asks")
        await until_claimable(world, all_gpus(world))


async def test_claims_are_switched_off_together_with_an_upgrade(world: World) -> None:
    await world.apply_policy(OLD, **claims.POLICY)
    async with never_both(world), prepared_claims(world):
        await world.until_all_run(OLD, within=WITHIN)
        await until_claimable(world, all_gpus(world))
        await world.kubectl.apply(*claimed_service(len(world.machines)))
        await world.kubectl.run("delete", f"pdb/{SERVICE}")
        await world.kubectl.wait("condition=Available", f"deployment/{SERVICE}")

        await world.apply_policy(NEW, **BY_PLUGIN)
        await world.until_all_run(NEW, within=2 * WITHIN)
        await until_offered(world, all_gpus(world))
        await until_gone(world)
        assert await world.cordoned() == []


def all_gpus(world: World) -> dict[str, int]:
    return {each.node.name: len(each.gpus.gpus) for each in world.machines}


def asking_pod(name: str, node: str, gpus: int) -> dict[str, Any]:
    """Return a pod with GPUs of the device plugin."""
    spec = {
        "containers": [container({"limits": {RESOURCE: gpus}})],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def until_claimable(world: World, wanted: dict[str, int]) -> None:
    """Wait until so many GPUs of each node can be claimed, and the device plugin offers none."""

    async def are_claimable() -> bool:
        found = {node: len(devices) for node, devices in (await published(world.kubectl)).items()}
        return found == wanted and set((await offered(world)).values()) == {0}

    await world.until(are_claimable, within=WITHIN)


async def until_offered(world: World, wanted: dict[str, int]) -> None:
    """Wait until the device plugin offers so many GPUs of each node, and none can be claimed."""

    async def are_offered() -> bool:
        claimable = any((await published(world.kubectl)).values())
        return await offered(world) == wanted and not claimable

    await world.until(are_offered, within=WITHIN)


async def offered(world: World) -> dict[str, int]:
    """Return how many GPUs pods can have from the device plugin, by node."""
    return {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(RESOURCE, "0"))
        for node in (await world.kubectl.get("nodes"))["items"]
    }


async def until_gone(world: World) -> None:
    """Wait until the plugin for claims is nowhere any more, and no condition names it."""

    async def is_gone() -> bool:
        listed = (await world.kubectl.get("--namespace", NAMESPACE, "daemonsets"))["items"]
        there = DRA_DAEMON_SET in {each["metadata"]["name"] for each in listed}
        return not there and await condition(world, CLAIMS_REMAIN) == {}

    await world.until(is_gone, within=WITHIN)


async def until_named(world: World, node: str) -> None:
    """Wait until the policy says that claims remain on this node."""

    async def is_named() -> bool:
        return f"by claims on {node}:" in (await condition(world, CLAIMS_REMAIN)).get("message", "")

    await world.until(is_named, within=WITHIN)


async def condition(world: World, type_: str) -> dict[str, Any]:
    """Return a condition of the policy; empty: it does not have it."""
    status = (await world.kubectl.get(f"clusterpolicy/{POLICY}"))["status"]
    return next((each for each in status["conditions"] if each["type"] == type_), {})


class PluginPod(views.Object, frozen=True, kw_only=True):
    spec: Any = None
    status: Any = None

    @property
    def runs(self) -> bool:
        """Whether something of it may run: afterwards the kubelet only has to delete it."""
        return self.status["phase"] not in ("Succeeded", "Failed")


PLUGIN_PODS: Final = Resource(plural="pods", kind="Pod", view=PluginPod)


class _Plugins:
    """The pods of plugins that give GPUs, by node, from their binding until they are gone."""

    def __init__(self) -> None:
        self._pods: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.kinds = set[str]()
        self.wrong: list[str] = []

    def changed(self, before: PluginPod | None, after: PluginPod | None) -> None:
        pod = after or before
        if pod is None or not (node := pod.spec.get("nodeName")):
            return
        app, uid = pod.metadata.labels.get("app", ""), pod.metadata.uid
        if after is None or not after.runs:
            self._pods[node].pop(uid, None)
        elif app == DEVICE_PLUGIN_APP or (app == DRA_APP and not _ends(after)):
            self._pods[node][uid] = app
            self.kinds.add(app)
        if len({*self._pods[node].values()}) > 1:
            self.wrong.append(f"{node}: {self._pods[node]}")


def _ends(pod: PluginPod) -> bool:
    (container_,) = pod.spec["containers"]
    return any(each["name"] == "SLUICE_ENDS" for each in container_["env"])


@asynccontextmanager
async def never_both(world: World) -> AsyncGenerator[None]:
    """Fail if a node ever has pods of both plugins that give GPUs, be they ending."""
    clock, found = SystemClock(), _Plugins()
    kubeconfig = world.ground.kube.kubeconfig()
    async with await open_transport(clock=clock, kubeconfig=kubeconfig) as transport:
        kube = Kube(transport, manager="test", clock=clock)
        cache = Cache(kube, PLUGIN_PODS, env=make_env(), namespace=NAMESPACE)
        cache.on_change(found.changed)
        task = asyncio.create_task(cache.run())
        try:
            await cache.wait_synced()
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
    assert found.kinds == {DEVICE_PLUGIN_APP, DRA_APP}
    assert found.wrong == []
