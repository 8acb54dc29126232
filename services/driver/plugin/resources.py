"""The devices of a node by resource, as NVIDIA's device plugin names them. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts.facts import Gpu
from libs.policy.mig.profiles import is_offered
from libs.policy.plugin_config.config import GPU, PREFIX, MigStrategy

MAX_DEVICES: Final = 1024
"""The most devices of a node, without replicas: 128 GPUs with 8 MIG devices each."""
CONTROL_FILES: Final = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)
"""The device files that each container has which uses a GPU; a machine need not have all."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or a MIG device."""

    uuid: str
    index: str
    """`<gpu>`, or `<gpu>:<MIG device>`."""
    gpu: str
    """The UUID of the GPU."""
    pci: str = ""
    minor: int = -1
    """The number of the GPU's device file."""
    instance: tuple[int, int] | None = None
    """Of a MIG device: the ids of its GPU instance and of its compute instance."""

    @property
    def is_mig(self) -> bool:
        return self.instance is not None


Resources = Mapping[str, Sequence[Device]]
"""The devices by name of their resource."""


class Inconsistent(Exception):
    """The GPUs cannot be offered under the strategy. The text says why, and what to do."""


def resources_of(gpus: Iterable[Gpu], strategy: MigStrategy) -> Resources:
    """Return the resources of a node; GPUs whose UUID is not known have none."""
    known = [gpu for gpu in gpus if gpu.uuid]
    if strategy is MigStrategy.SINGLE:
        found = _single(known)
    elif strategy is MigStrategy.MIXED:
        found = _mixed(known)
    else:
        found = {GPU: [_whole(gpu) for gpu in known]}
    return {name: devices[:MAX_DEVICES] for name, devices in found.items() if devices}


def _single(gpus: Sequence[Gpu]) -> dict[str, list[Device]]:
    """Return all devices as the one resource, which they can only be if they are alike."""
    divided = [gpu for gpu in gpus if gpu.mig_mode]
    if not divided:
        return {GPU: [_whole(gpu) for gpu in gpus]}
    remedy = "divide them alike, or use the strategy mixed"
    if len(divided) < len(gpus):
        raise Inconsistent(f"MIG is on in some GPUs of this node and off in others: {remedy}")
    if empty := next((gpu for gpu in divided if not gpu.migs), None):
        raise Inconsistent(f"GPU {empty.index} has MIG on and no MIG device: {remedy}")
    if len({mig.profile for gpu in divided for mig in gpu.migs}) > 1:
        raise Inconsistent(f"the GPUs of this node have MIG devices of several profiles: {remedy}")
    return {GPU: [device for gpu in divided for device in _parts(gpu)]}


def _mixed(gpus: Sequence[Gpu]) -> dict[str, list[Device]]:
    """Return whole GPUs, and MIG devices under the name of their profile."""
    found: dict[str, list[Device]] = {}
    for gpu in gpus:
        if not gpu.mig_mode:
            found.setdefault(GPU, []).append(_whole(gpu))
            continue
        for mig, device in zip(gpu.migs, _parts(gpu), strict=True):
            if is_offered(mig.profile):
                found.setdefault(mig_resource(mig.profile), []).append(device)
    return found


def mig_resource(profile: str) -> str:
    """Return the name of a resource: `+` of a profile cannot be in one."""
    return f"{PREFIX}mig-{profile.replace('+', '.')}"


def _whole(gpu: Gpu) -> Device:
    return Device(uuid=gpu.uuid, index=str(gpu.index), gpu=gpu.uuid, pci=gpu.pci, minor=gpu.minor)


def _parts(gpu: Gpu) -> list[Device]:
    return [
        Device(
            uuid=mig.uuid,
            index=name,
            gpu=gpu.uuid,
            pci=gpu.pci,
            minor=gpu.minor,
            instance=(mig.gpu_instance, mig.compute_instance),
        )
        for name, mig in gpu.named_migs
    ]


_CAPABILITY: Final = re.compile(r"gpu(\d+)/gi(\d+)(?:/ci(\d+))?/access (\d+)")

CapabilityFiles = Mapping[tuple[int, int, int | None], int]
"""The numbers of the driver's capability files by minor number of the GPU, GPU instance and compute
instance; None for the GPU instance itself."""


def capability_files(text: str) -> CapabilityFiles:
    """Read the driver's list `/proc/driver/nvidia-caps/mig-minors`."""
    found: dict[tuple[int, int, int | None], int] = {}
    for line in text.splitlines():
        if match := _CAPABILITY.fullmatch(line.strip()):
            gpu, instance, compute, number = match.groups()
            found[int(gpu), int(instance), None if compute is None else int(compute)] = int(number)
    return found


def device_files(device: Device, capabilities: CapabilityFiles) -> tuple[str, ...]:
    """Return the device files of a device, without those that all share."""
    files = [f"/dev/nvidia{device.minor}"] if device.minor >= 0 else []
    if device.instance is not None:
        gpu_instance, compute = device.instance
        keys = ((device.minor, gpu_instance, None), (device.minor, gpu_instance, compute))
        files += [
            f"/dev/nvidia-caps/nvidia-cap{capabilities[key]}" for key in keys if key in capabilities
        ]
    return tuple(files)
