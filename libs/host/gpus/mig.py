"""The name of a MIG profile, such as `1g.10gb` or `1c.3g.40gb`. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

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


def profile_name(device: Mapping[str, Any], *, gpu_memory: int | None) -> str:
    """Return the profile of a MIG device, or an empty text if it cannot be told.

    The profile's number may be asked by root alone. Without it, the driver's name of the device
    says which profile it is.
    """
    number, named = device.get("profile"), _IN_NAME.fullmatch(device.get("name") or b"")
    in_name = "" if named is None else named[1].decode()
    if number is None and in_name:
        return in_name
    slices, compute = device.get("gpu_slices"), device.get("compute_slices")
    memory = device.get("memory_mib")
    if not slices or not compute or not memory or not gpu_memory:
        return in_name
    part = "" if compute == slices else f"{compute}c."
    return part + instance_profile_name(number, slices, memory, gpu_memory=gpu_memory)


def instance_profile_name(
    number: int | None, slices: int, memory_mib: int, *, gpu_memory: int
) -> str:
    """Return the name of a kind of GPU instance; `number` is its profile in NVML's enum."""
    suffix = "" if number is None else _SUFFIXES.get(number, "")
    return f"{slices}g.{gigabytes(memory_mib, gpu_memory)}gb{suffix}"


def gigabytes(memory_mib: int, gpu_memory: int) -> int:
    """Return the memory in a profile's name: its eighths of the GPU's whole GiB, rounded half up.

    With the rounding of Python's `round`, 70.5 would become 70.
    """
    eighths = -(-memory_mib * _MIB * _EIGHTHS // gpu_memory)
    return (eighths * -(-gpu_memory // _GIB) + _EIGHTHS // 2) // _EIGHTHS
