"""From the kubelet's list of devices to the containers of each GPU. Pure.

A device is named by its UUID, by the number of its device file, or by a dynamic resource claim. The
kubelet repeats what device plugins and people chose, so nothing of it is used unchecked.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from libs.contracts.facts import Gpu

if TYPE_CHECKING:
    from libs.host.podresources.api_pb2 import (
        ClaimResource,
        ContainerResources,
        ListPodResourcesResponse,
    )

MAX_USES: Final = 10_000
"""Devices of one list; a node with 16 GPUs, each given to 48 containers, has 768."""
_PREFIX: Final = "nvidia.com/"
_CLAIM_DRIVER: Final = "gpu.nvidia.com"
"""NVIDIA's driver for dynamic resource allocation."""

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_REPLICA: Final = re.compile(r"(?:::|/vgpu)([0-9]{1,4})")
_UUID: Final = re.compile(r"((?:GPU|MIG)-[0-9A-Za-z-]{1,80})(.*)")
_OLD_MIG: Final = re.compile(r"MIG-(GPU-[0-9A-Za-z-]{1,80})/([0-9]{1,4})/[0-9]{1,4}(.*)")
_NUMBERED: Final = re.compile(r"(?:nvidia|gpu-?)([0-9]{1,4})(?:/gi([0-9]{1,4}))?(.*)")


class PodContainer(msgspec.Struct, frozen=True, order=True):
    """A container that has a GPU, or a share of one."""

    namespace: str
    pod: str
    container: str
    replica: str = ""
    """The number of its share of a GPU that several containers have; empty without sharing."""


class DeviceUse(msgspec.Struct, frozen=True):
    """A device of a container."""

    device: str
    """The device plugin's name for it; of a claim the UUID, or else the name in the claim."""
    container: PodContainer
    claimed: bool = False
    """Whether the container has it by a claim."""


class DeviceList(msgspec.Struct, frozen=True):
    """The devices of the node's containers."""

    uses: tuple[DeviceUse, ...] = ()
    refused: int = 0
    """Containers with devices whose names cannot be those of a pod; devices beyond `MAX_USES`."""


Entity = tuple[str, int | None]
"""A GPU's UUID and the number of a GPU instance; None: the whole GPU."""

PodsByGpu = Mapping[Entity, tuple[PodContainer, ...]]
"""The containers of a GPU, sorted; a GPU without one has no entry."""


def device_list(response: "ListPodResourcesResponse") -> DeviceList:
    """Return the devices in a response that may be GPUs."""
    uses: list[DeviceUse] = []
    refused = 0
    for pod in response.pod_resources:
        for container in pod.containers:
            devices = list(_devices(container))
            if not devices:
                continue
            names = PodContainer(pod.namespace, pod.name, container.name)
            if not _is_proper(names) or len(uses) + len(devices) > MAX_USES:
                refused += 1
                continue
            uses += [DeviceUse(device, names, claimed) for device, claimed in devices]
    return DeviceList(tuple(uses), refused)


def pods_by_gpu(uses: Iterable[DeviceUse], gpus: Sequence[Gpu]) -> PodsByGpu:
    """Return the containers of each GPU and GPU instance."""
    found: dict[Entity, set[PodContainer]] = {}
    names = _Names(gpus)
    for use in uses:
        if (resolved := names.resolve(use.device)) is not None:
            entity, replica = resolved
            container = msgspec.structs.replace(use.container, replica=replica)
            found.setdefault(entity, set()).add(container)
    return {entity: tuple(sorted(containers)) for entity, containers in found.items()}


def _devices(container: "ContainerResources") -> Iterator[tuple[str, bool]]:
    """Yield the names of devices, and whether the container has them by a claim."""
    for each in container.devices:
        for device in each.device_ids:
            # A UUID is unmistakable; a number is a GPU's only from NVIDIA's plugin.
            if _UUID.match(device) or each.resource_name.startswith(_PREFIX):
                yield device, False
    for claim in container.dynamic_resources:
        for resource in claim.claim_resources:
            if resource.driver_name == _CLAIM_DRIVER:
                yield from ((device, True) for device in _claimed(resource))


def _claimed(resource: "ClaimResource") -> list[str]:
    """Return the UUIDs of what a claim gives, where its CDI devices are named by them."""
    names = [each.name.rpartition("=")[2] for each in resource.cdi_devices]
    return [name for name in names if _UUID.match(name)] or [resource.device_name]


def _is_proper(names: PodContainer) -> bool:
    return bool(
        _LABEL.fullmatch(names.namespace)
        and _SUBDOMAIN.fullmatch(names.pod)
        and _LABEL.fullmatch(names.container)
    )


class _Names:
    """The names of the GPUs of a machine and of their MIG devices."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._entities: dict[str, Entity] = {gpu.uuid: (gpu.uuid, None) for gpu in gpus if gpu.uuid}
        self._entities |= {
            mig.uuid: (gpu.uuid, mig.gpu_instance)
            for gpu in gpus
            for mig in gpu.migs
            if gpu.uuid and mig.uuid
        }
        self._minors = {gpu.minor: gpu.uuid for gpu in gpus if gpu.uuid and gpu.minor >= 0}

    def resolve(self, device: str) -> tuple[Entity, str] | None:
        """Return the device and the number of the share; None if it is no known GPU."""
        entity, rest = self._entity(device)
        shared = _REPLICA.fullmatch(rest)
        if entity is None or (rest and shared is None):
            return None
        return entity, shared[1] if shared else ""

    def _entity(self, device: str) -> tuple[Entity | None, str]:
        if old := _OLD_MIG.fullmatch(device):
            parent, instance, rest = old.groups()
            return ((parent, int(instance)) if parent in self._entities else None), rest
        if named := _UUID.fullmatch(device):
            return self._entities.get(named[1]), named[2]
        if numbered := _NUMBERED.fullmatch(device):
            uuid = self._minors.get(int(numbered[1]))
            instance = None if numbered[2] is None else int(numbered[2])
            return (None if uuid is None else (uuid, instance)), numbered[3]
        return None, ""
