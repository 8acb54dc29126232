"""The plugin for claims on a fake machine, with a simulated API server and a kubelet that asks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from libs.contracts.identities import Writer
from libs.host.dra.port import Claim, Claims, PreparedDevice
from libs.host.podresources.assignments import DeviceList, DeviceUse, PodContainer
from libs.kube.client import Kube
from libs.kube.errors import NotFound
from libs.kube.resources import NAMESPACES, Resource
from libs.kube.views import Object
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim
from services.agent_frame import Given
from services.driver.dra import agent
from services.driver.dra.resources import DRIVER, claims
from services.driver.dra.settings import DraSettings
from tests.builders.agent_world import NODE, UID, in_world_of
from tests.unit.driver.plugin.builders import OfferingWorld

NAMESPACE: Final = "ml"


class Slice(Object, frozen=True, kw_only=True):
    spec: Any = None


SLICES: Final = Resource(
    group="resource.k8s.io",
    plural="resourceslices",
    kind="ResourceSlice",
    namespaced=False,
    view=Slice,
)


class FakeKubelet:
    def __init__(self, list_uses: Callable[[], DeviceList]) -> None:
        self.list_uses = list_uses
        self.is_registered = True
        self.problem = ""
        self.driver: Claims

    async def connect(self, driver: Claims) -> "FakeKubelet":
        self.driver = driver
        return self


class World(OfferingWorld):
    WRITER = Writer.DRA

    def __init__(self, sim: Sim, root: Path) -> None:
        super().__init__(sim, root)
        (root / "state").mkdir()
        self.kubelet = FakeKubelet(self.list_uses)
        self.api = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random)
        self.person = Kube(self.api.transport(user="person"), manager="kubectl", clock=sim.clock)
        self.ends = False
        """Whether the policy gives GPUs by claims no more."""

    async def run_agent(self, given: Given) -> None:
        await agent.run(
            DraSettings(node=NODE, node_uid=UID, state_dir=self.root / "state", ends=self.ends),
            given,
            kube=self.api.transport(user="dra"),
            connect_kubelet=self.kubelet.connect,
        )

    def give(self, device: str) -> None:
        """Give a device of the device plugin to a pod."""
        self.uses = DeviceList(uses=(DeviceUse(device, PodContainer("ml", "old", "main")),))

    async def slice(self) -> Slice | None:
        try:
            return await self.person.get(SLICES, f"{NODE}-{DRIVER}")
        except NotFound:
            return None

    async def published(self) -> list[str] | None:
        """Return the devices in the node's slice; None: there is no slice."""
        found = await self.slice()
        return None if found is None else [each["name"] for each in found.spec["devices"]]

    async def until_published(self, *names: str) -> None:
        end = self.clock.monotonic() + 60.0
        while (found := await self.published()) != list(names):
            assert self.clock.monotonic() < end, found
            await self.clock.sleep(0.25)

    async def allocate(self, name: str, *devices: str, **more: Any) -> Claim:
        """Create a claim to which the scheduler has allocated these devices."""
        body = {"metadata": {"name": name}, "spec": {}}
        if not [each for each in await self._namespaces() if each == NAMESPACE]:
            await self.person.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        made = await self.person.create(claims("v1"), body, namespace=NAMESPACE)
        results = [
            {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device, **more}
            for device in devices
        ]
        status = {"status": {"allocation": {"devices": {"results": results}}}}
        await self.person.merge(
            claims("v1"),
            name,
            status,
            resource_version=made.metadata.resource_version,
            namespace=NAMESPACE,
            subresource="status",
        )
        return Claim(namespace=NAMESPACE, name=name, uid=made.metadata.uid)

    async def _namespaces(self) -> list[str]:
        page = await self.person.list_all(NAMESPACES)
        return [each.metadata.name for each in page.items]

    async def delete(self, claim: Claim) -> None:
        await self.person.delete(claims("v1"), claim.name, uid=claim.uid, namespace=claim.namespace)

    async def prepare(self, claim: Claim) -> list[str]:
        """Return the CDI devices of a claim."""
        devices: list[PreparedDevice] = list(await self.kubelet.driver.prepare(claim))
        assert all((each.request, each.pool) == ("gpu", NODE) for each in devices)
        return [name for each in devices for name in each.cdi_devices]


in_world = in_world_of(World)
