"""A world for tests of the driver's cluster role: policies, driver DaemonSets and conditions."""

from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

import msgspec

from libs.contracts.identities import Writer
from libs.contracts.node import DRIVER_LABEL
from libs.kube.errors import NotFound
from libs.kube.resources import Resource
from libs.policy.digest import DIGEST_LENGTH
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from services.driver.cluster import resources
from tests.component import world
from tests.component.processes import NAMESPACE
from tests.support import played_by
from tests.unit.policy.situations import cluster_policy, node

T = TypeVar("T")

POLICY = "cluster-policy"
CLUSTER_POLICIES = resources.POLICIES["ClusterPolicy"]
EXPORTER = "sluice-telemetry-agent"
VALIDATOR = "sluice-validator-agent"
AGENTS = [
    "sluice-device-plugin",
    "sluice-discovery-agent",
    "sluice-driver-agent",
    EXPORTER,
    VALIDATOR,
]
DRIVER_PREFIX = "sluice-driver-"
"""Of the names of driver DaemonSets, before the driver's label."""
RUNTIME_CLASSES = ("nvidia", "nvidia-cdi", "nvidia-legacy")
EXPORTER_OFF = {"dcgmExporter": {"enabled": False}}


def is_driver(name: str) -> bool:
    """Report whether a DaemonSet of this name runs a driver."""
    label = name.removeprefix(DRIVER_PREFIX)
    return name.startswith(DRIVER_PREFIX) and len(label) == DIGEST_LENGTH


class World(world.World):
    WRITER = Writer.DRIVER_CLUSTER
    SETTLE = 30.0

    def add_kubelet(self, name: str, **facts: Any) -> None:
        """Add a machine with GPUs and the labels of discovery."""
        self.cluster.fleet.add(name, Hardware(labels=dict(node(name, **facts).labels)))

    async def install_policy(self, **spec: Any) -> None:
        """Install two nodes of different systems, and a policy for both."""
        await self.install()
        self.add_kubelet("a")
        self.add_kubelet("b", version="24.04")
        await self.sleep(2)
        await self.add_handlers("b", "runc", *RUNTIME_CLASSES)
        await self.apply(cluster_policy(**spec))
        await self.sleep(5)

    async def add_handlers(self, name: str, *handlers: str) -> None:
        """Let the node's container runtime know these handlers."""
        status = {"runtimeHandlers": [{"name": handler} for handler in handlers]}
        await self.patch(resources.NODES, name, {"status": status}, subresource="status")

    async def change_policy(self, **spec: Any) -> None:
        await self.patch(CLUSTER_POLICIES, POLICY, {"spec": spec})

    async def set_driver_label(self, name: str, driver: str) -> None:
        """Label the node with the driver of this DaemonSet, as the scheduler does."""
        label = driver.removeprefix(DRIVER_PREFIX)
        await self.label(name, {DRIVER_LABEL: label})

    async def daemon_sets(self) -> dict[str, resources.DaemonSet]:
        page = await self.kube.list_page(resources.DAEMON_SETS, namespace=NAMESPACE)
        return {each.metadata.name: each for each in page.items}

    async def drivers(self) -> list[str]:
        """Return the names of the driver DaemonSets, the oldest first."""
        found = [each for name, each in (await self.daemon_sets()).items() if is_driver(name)]
        found.sort(key=lambda each: each.metadata.creation_timestamp)
        return [each.metadata.name for each in found]

    async def driver(self, *, system: str = "ubuntu22.04", but: Collection[str] = ()) -> str:
        """Return the name of the only driver DaemonSet for nodes of this system, except `but`."""
        (name,) = [
            name
            for name, each in (await self.daemon_sets()).items()
            if each.metadata.labels.get("nvidia.com/node.os-version") == system and name not in but
        ]
        return name

    async def exists(self, resource: Resource[Any], name: str) -> bool:
        namespace = NAMESPACE if resource.namespaced else ""
        try:
            await self.kube.get(resource, name, namespace=namespace)
        except NotFound:
            return False
        return True

    async def conditions(
        self, kind: str = "ClusterPolicy", name: str = POLICY
    ) -> dict[str, dict[str, Any]]:
        """Return the conditions of a policy by type."""
        view = await self.kube.get(resources.POLICIES[kind], name)
        return {each["type"]: each for each in (view.status or {}).get("conditions", [])}

    async def state(self, kind: str = "ClusterPolicy", name: str = POLICY) -> str:
        view = await self.kube.get(resources.POLICIES[kind], name)
        return (view.status or {}).get("state", "")

    async def observed_generation(self) -> int | None:
        """Return the generation of the policy that its status is about."""
        view = await self.kube.get(CLUSTER_POLICIES, POLICY)
        return (view.status or {}).get("observedGeneration")

    async def events(self) -> list[tuple[str, str]]:
        """Return reason and message of the Events about policies."""
        page = await self.kube.request("GET", "/api/v1/namespaces/default/events")
        return [
            (event["reason"], event["message"])
            for event in msgspec.json.decode(page)["items"]
            if event["involvedObject"]["kind"] in resources.POLICIES
        ]


def play(story: Callable[[World], Coroutine[Any, Any, T]], *overrides: WorldOverride) -> T:
    return world.run_world(
        story, lambda sim, folder: World(sim, folder, SteadyWorld(overrides=overrides))
    )


in_world = played_by(play)
