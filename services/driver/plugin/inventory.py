"""What a node offers the kubelet, from all that is known of its GPUs. Pure.

A device that cannot be used stays in the list and is unhealthy there: the kubelet then subtracts it
from what is allocatable, and leaves the pods that have it alone.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.host.deviceplugin.port import OfferedDevice
from libs.policy.plugin_config.config import PluginConfig
from services.driver.plugin.places import Place
from services.driver.plugin.replicas import offered_ids, shared_name
from services.driver.plugin.resources import Device, Inconsistent, Resources, resources_of

NO_SPEC: Final = "no container can get it: it is not in the machine's CDI specs"
RELEASED: Final = "the GPUs are released while the driver changes"


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a node, as it showed them last."""

    resources: Resources = {}
    problem: str = ""
    """Why the GPUs cannot be offered as they are now; empty if they can."""
    lost: frozenset[str] = frozenset()
    """UUIDs of GPUs that the driver does not list any more."""

    def after(self, gpus: Sequence[Gpu], config: PluginConfig) -> "Inventory":
        """Return the inventory after a look at the GPUs; what the driver lost remains."""
        try:
            found = resources_of(gpus, config.mig_strategy)
        except Inconsistent as error:
            return replace(self, problem=str(error))
        listed = {gpu.uuid for gpu in gpus}
        merged = {name: list(devices) for name, devices in found.items()}
        lost = set[str]()
        for name, devices in self.resources.items():
            for device in devices:
                if device.gpu not in listed:
                    merged.setdefault(name, []).append(device)
                    lost.add(device.gpu)
        return Inventory(resources=merged, lost=frozenset(lost))

    @property
    def devices(self) -> dict[str, Device]:
        """The devices by UUID."""
        return {each.uuid: each for devices in self.resources.values() for each in devices}


def unusable(
    inventory: Inventory,
    gpus: Sequence[Gpu],
    sick: Mapping[str, str],
    in_specs: Collection[str] | None,
    *,
    withheld: str = "",
) -> dict[str, str]:
    """Return why devices cannot be used, by UUID of the device.

    `sick` has reasons by UUID of the GPU or of the MIG device; `in_specs` are the names in the CDI
    specs, or None where they do not matter; `withheld` is a reason for all.
    """
    problems = {gpu.uuid: _problem(gpu) for gpu in gpus}
    # One that could not be described has no UUID, and is one of those that are not listed.
    unlisted = problems.get("") or REMEDIES[GpuProblem.LOST]
    found: dict[str, str] = {}
    for uuid, device in inventory.devices.items():
        reason = (
            withheld
            or inventory.problem
            or problems.get(device.gpu, unlisted)
            or sick.get(device.gpu, "")
            or sick.get(uuid, "")
        )
        if not reason and in_specs is not None and uuid not in in_specs:
            reason = NO_SPEC
        if reason:
            found[uuid] = reason
    return found


def _problem(gpu: Gpu) -> str:
    return "" if gpu.trouble is None else REMEDIES.get(gpu.trouble, gpu.trouble.value)


def offers(
    inventory: Inventory,
    reasons: Mapping[str, str],
    config: PluginConfig,
    places: Mapping[str, Place],
) -> dict[str, tuple[OfferedDevice, ...]]:
    """Return the list of each resource; `places` are of GPUs, by UUID."""
    slicing = config.time_slicing
    return {
        shared_name(name, slicing): tuple(
            OfferedDevice(
                id=offered,
                healthy=device.uuid not in reasons,
                numa_node=places.get(device.gpu, Place()).numa_node,
            )
            for device in devices
            for offered in offered_ids(device.uuid, slicing.replicas.get(name, 1))
        )
        for name, devices in inventory.resources.items()
    }
