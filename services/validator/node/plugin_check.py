"""The step `plugin`: the kubelet can give to pods what the machine has. Pure.

The kubelet says which devices it can give: those that the device plugin lists, and as healthy.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.reports import Resource
from libs.contracts.words import first_few
from libs.host.podresources.allocatable import Allocatable
from libs.policy.kinds.mig import MigStrategy
from libs.policy.mig.profiles import is_offered
from services.validator.node.probe import PLUGIN_STEP, Probe

SHARE: Final = "::"
"""What follows the UUID in the name of a share of a device."""
MAX_RESOURCES: Final = 32
"""The most resources that evidence names."""


def offerable(gpus: Iterable[Gpu], strategy: MigStrategy) -> tuple[str, ...]:
    """Return what a device plugin is to offer, by UUID: of a divided GPU its instances, if any."""
    offers_migs = strategy is not MigStrategy.NONE
    return tuple(
        uuid
        for gpu in gpus
        for uuid in (
            [mig.uuid for mig in gpu.migs if offers_migs and is_offered(mig.profile)]
            if gpu.mig_mode
            else [gpu.uuid]
        )
    )


def check_plugin(probe: Probe, found: Allocatable, strategy: MigStrategy) -> Probe:
    """Compare the devices that the kubelet can give with those that work."""
    wanted = frozenset(offerable(probe.sound, strategy))
    offered = {name: frozenset(map(_uuid, devices)) for name, devices in found.items()}
    missing = wanted.difference(*offered.values())
    listed = tuple(
        Resource(name=name, count=len(found[name]))
        for name in sorted(found)
        if wanted & offered[name]
    )[:MAX_RESOURCES]
    text = ", ".join(f"{each.count} {each.name}" for each in listed) or "no GPU"
    if not missing:
        proven = probe.at_step(PLUGIN_STEP, found=f"pods can have {text}")
        return replace(proven, allocatable=listed)
    return unproven(
        probe,
        f"pods cannot have {first_few(sorted(missing), 1)}: the device plugin"
        f" has offered {text} to the kubelet; its log says why",
    )


def _uuid(device: str) -> str:
    """Return the UUID of a device, or of the one whose share it is."""
    return device.partition(SHARE)[0]


def unproven(probe: Probe, reason: str) -> Probe:
    """Return the outcome while the device plugin is not proven."""
    return probe.at_step(PLUGIN_STEP, problem=reason)
