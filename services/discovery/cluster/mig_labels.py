"""Labels of MIG devices, by the strategy of the policy, and of GPUs that are shared. Pure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from libs.contracts.facts import Gpu, Mig
from services.discovery.cluster.label_values import REFUSED, Labels, number, product
from services.discovery.cluster.sharing import (
    SHARED_PRODUCT,
    UNSHARED,
    SharedResource,
    Sharing,
    SharingStrategy,
)

GPU_RESOURCE: Final = "nvidia.com/gpu"
MOST_MEMORY: Final = 1 << 24
"""MiB of a GPU; more cannot be true."""
_MAX_PROFILES: Final = 16
"""Profiles of a node that are labelled; a machine of one model has fewer."""
_HIGHEST_ATTRIBUTE: Final = 9_999
"""Of slices and engines of a MIG device; a higher number cannot be true."""
_PROFILE: Final = re.compile(r"(?:[0-9]c\.)?[0-9]g\.[0-9]{1,4}gb(?:[+-][a-z.]{2,10})?", re.ASCII)
_OTHER_PROFILES: Final = "nvidia.com/mig-other.product"
"""Is never written: it stands for profiles that are left out."""

ATTRIBUTES: Final[Mapping[str, str]] = {
    "multiprocessors": "multiprocessors",
    "slices.gi": "gpu_slices",
    "slices.ci": "compute_slices",
    "engines.copy": "copy_engines",
    "engines.decoder": "decoders",
    "engines.encoder": "encoders",
    "engines.jpeg": "jpeg_engines",
    "engines.ofa": "ofa_engines",
}
"""By the end of a label's key: the field of a MIG device."""


class MigDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The MIG devices of one profile. `model` is the most frequent one that has the profile."""

    model: str
    first: Mig
    count: int


def base(resource: str, sharing: Sharing, count: int, *parts: str) -> Labels:
    """Return the labels that every resource has; the parts make its product."""
    shared = sharing.resources.get(resource, SharedResource())
    is_shared = sharing.strategy is not SharingStrategy.NONE and shared.replicas > 1
    names = [product(part) for part in parts]
    end = SHARED_PRODUCT if is_shared and not shared.renamed else ""
    strategy = sharing.strategy if is_shared else SharingStrategy.NONE
    return {
        f"{resource}.product": f"{'-'.join(names)}{end}" if names[0] else REFUSED,
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(shared.replicas if is_shared else 1),
        f"{resource}.sharing-strategy": strategy.value,
    }


def single(gpus: Sequence[Gpu], sharing: Sharing) -> Labels:
    """Return what `single` changes: the MIG devices are described as the node's GPUs."""
    enabled = [gpu for gpu in gpus if gpu.mig_mode]
    if not enabled:
        return {}
    profiles = by_profile(gpus)
    is_valid = (
        len(enabled) == len(gpus)
        and all(gpu.migs for gpu in enabled)
        and len(profiles) == 1
        and "" not in profiles
    )
    if is_valid:
        return _devices(GPU_RESOURCE, next(iter(profiles.values())), sharing)
    return (
        _malformed_profiles(gpus)
        | base(GPU_RESOURCE, UNSHARED, 0, enabled[0].name, "MIG", "INVALID")
        | {
            f"{GPU_RESOURCE}.replicas": "0",
            f"{GPU_RESOURCE}.sharing-strategy": "",
            f"{GPU_RESOURCE}.memory": "0",
        }
    )


def mixed(gpus: Sequence[Gpu], sharing: Sharing) -> Labels:
    """Return the labels of `mixed`: each profile is a resource of its own."""
    labels: Labels = _malformed_profiles(gpus)
    named = [(profile, found) for profile, found in by_profile(gpus).items() if profile]
    if len(named) > _MAX_PROFILES:
        labels[_OTHER_PROFILES] = REFUSED
    for profile, found in named[:_MAX_PROFILES]:
        resource = f"nvidia.com/mig-{_name(profile)}"
        labels |= _devices(resource, found, sharing)
    return labels


def _malformed_profiles(gpus: Sequence[Gpu]) -> Labels:
    profiles = {mig.profile for gpu in gpus for mig in gpu.migs if mig.profile}
    is_malformed = any(not _PROFILE.fullmatch(profile) for profile in profiles)
    return {_OTHER_PROFILES: REFUSED} if is_malformed else {}


def by_profile(gpus: Sequence[Gpu]) -> dict[str, MigDevices]:
    """Return the MIG devices of a node by profile, in order of the names; empty: not known."""
    found: dict[str, list[tuple[str, Mig]]] = {}
    for gpu, mig in chain.from_iterable(((gpu, mig) for mig in gpu.migs) for gpu in gpus):
        profile = mig.profile if _PROFILE.fullmatch(mig.profile) else ""
        found.setdefault(profile, []).append((gpu.name, mig))
    return {profile: _most_frequent(found[profile]) for profile in sorted(found)}


def _most_frequent(devices: Sequence[tuple[str, Mig]]) -> MigDevices:
    counts = Counter(name for name, _ in devices)
    model, _ = min(counts.items(), key=lambda item: (-item[1], item[0]))
    first = next(mig for name, mig in devices if name == model)
    return MigDevices(model=model, first=first, count=len(devices))


def _devices(resource: str, devices: MigDevices, sharing: Sharing) -> Labels:
    mig = devices.first
    return (
        base(resource, sharing, devices.count, devices.model, "MIG", _name(mig.profile))
        | {f"{resource}.memory": number(mig.memory_mib, high=MOST_MEMORY)}
        | {
            f"{resource}.{end}": number(getattr(mig, field), high=_HIGHEST_ATTRIBUTE)
            for end, field in ATTRIBUTES.items()
        }
    )


def _name(profile: str) -> str:
    """Return a profile's name as it appears in labels, which cannot have a plus sign."""
    return profile.replace("+", ".")
