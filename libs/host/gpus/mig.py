"""The name of a MIG profile, such as `1g.10gb` or `1c.3g.40gb`. Pure."""

import re
from typing import Final

from libs.host.gpus.protocol import RawMig, RawProfile

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_EIGHTHS: Final = 8
"""Memory is given out in eighths of a GPU."""

_SUFFIXES: Final = {
    **dict.fromkeys((0x7, 0x8), "+me"),
    **dict.fromkeys((0xA, 0xB, 0xC, 0x11), "+gfx"),
    **dict.fromkeys((0xD, 0xE), "-me"),
    **dict.fromkeys((0xF, 0x10), "+me.all"),
}
"""By the number of a GPU instance's profile in NVML's enum; other profiles have none."""

_IN_NAME: Final = re.compile(rb".* MIG ((?:[0-9]c\.)?[0-9]g\.[0-9]{1,4}gb(?:[+-][a-z.]{2,10})?)")


def profile_name(device: RawMig, *, gpu_memory: int | None) -> str:
    """Return the profile of a MIG device, or an empty text if it cannot be told.

    The profile's number may be asked by root alone. Without it, the driver's name of the device
    says which profile it is.
    """
    named = _IN_NAME.fullmatch(device.name)
    if device.profile is None and named is not None:
        return named[1].decode()
    slices, compute, memory = device.gpu_slices, device.compute_slices, device.memory_mib
    if not slices or not compute or not memory or not gpu_memory:
        return "" if named is None else named[1].decode()
    part = "" if compute == slices else f"{compute}c."
    suffix = "" if device.profile is None else _SUFFIXES.get(device.profile, "")
    return f"{part}{slices}g.{gigabytes(memory, gpu_memory)}gb{suffix}"


def instance_profile_name(profile: RawProfile, *, gpu_memory: int) -> str:
    """Return the name of a kind of GPU instance; one that fills it has the same `profile_name`."""
    suffix = _SUFFIXES.get(profile.number, "")
    return f"{profile.slices}g.{gigabytes(profile.memory_mib, gpu_memory)}gb{suffix}"


def gigabytes(memory_mib: int, gpu_memory: int) -> int:
    """Return the memory in a profile's name: its eighths of the GPU's whole GiB, rounded half up.

    With the rounding of Python's `round`, 70.5 would become 70.
    """
    eighths = -(-memory_mib * _MIB * _EIGHTHS // gpu_memory)
    return (eighths * -(-gpu_memory // _GIB) + _EIGHTHS // 2) // _EIGHTHS
