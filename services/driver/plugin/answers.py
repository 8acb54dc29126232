"""Answer the kubelet by what is offered now. Pure but for the id of a CDI annotation."""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import uuid4

import msgspec

from libs.host.deviceplugin.port import Allocation, Allocator
from libs.policy.plugin_config.config import PluginConfig
from services.driver.plugin.allocation import allocate
from services.driver.plugin.inventory import Inventory
from services.driver.plugin.places import Place, nearness
from services.driver.plugin.preferred import preferred_gpus, preferred_shares
from services.driver.plugin.replicas import is_replica, shared_name, uuid_of
from services.driver.plugin.resources import CapabilityFiles, Device, device_files


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """What is offered, and what the answers depend on."""

    config: PluginConfig = PluginConfig()
    inventory: Inventory = Inventory()
    reasons: Mapping[str, str] = {}
    """Why devices cannot be used, by UUID."""
    places: Mapping[str, Place] = {}
    control_files: tuple[str, ...] = ()
    capabilities: CapabilityFiles = {}
    extras: frozenset[str] = frozenset()
    """The CDI devices beside GPUs."""

    def unshared_name(self, offered: str) -> str:
        """Return the name of a resource before it was renamed; empty if there is none."""
        slicing = self.config.time_slicing
        names = self.inventory.resources
        return next((name for name in names if shared_name(name, slicing) == offered), "")


class Answers:
    """Answers by what is offered, which its owner sets."""

    def __init__(self) -> None:
        self.offered = Offered()

    def allocator_for(self, resource: str) -> Allocator:
        return _ResourceAllocator(resource, self)


class _ResourceAllocator:
    """Answers for one resource."""

    def __init__(self, resource: str, answers: Answers) -> None:
        self._resource = resource
        self._answers = answers

    def allocate(self, ids: Sequence[str]) -> Allocation:
        """Return what a container gets, or refuse a device that has failed since it was offered."""
        offered = self._answers.offered
        devices = self._devices(offered)
        return allocate(
            ids,
            devices={uuid: each for uuid, each in devices.items() if uuid not in offered.reasons},
            config=offered.config,
            extras=offered.extras,
            shared=any(map(is_replica, ids)),
            new_id=lambda: str(uuid4()),
            files=lambda device: (
                *offered.control_files,
                *device_files(device, offered.capabilities),
            ),
        )

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Return the devices that a container should get, of those that the kubelet could give."""
        offered = self._answers.offered
        devices = self._devices(offered)
        if any(map(is_replica, available)) or any(each.is_mig for each in devices.values()):
            return self._prefer_shares(offered, available, required, size)

        def near(one: str, other: str) -> int:
            return nearness(*(offered.places.get(each, Place()) for each in (one, other)))

        return preferred_gpus(available, required, size, nearness=near)

    def _prefer_shares(
        self, offered: Offered, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        devices = self._devices(offered)
        replicas = offered.config.time_slicing.replicas
        each_has = replicas.get(offered.unshared_name(self._resource), 1)
        totals = Counter[str]()
        for device in devices.values():
            totals[device.gpu] += each_has

        def gpu_of(share: str) -> str:
            device = devices.get(uuid_of(share))
            return uuid_of(share) if device is None else device.gpu

        return preferred_shares(
            available,
            required,
            size,
            policy=offered.config.sharing_policy,
            totals=totals,
            gpu_of=gpu_of,
        )

    def _devices(self, offered: Offered) -> dict[str, Device]:
        """Return the devices of the resource by UUID."""
        name = offered.unshared_name(self._resource)
        return {each.uuid: each for each in offered.inventory.resources.get(name, ())}
