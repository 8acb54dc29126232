"""How a GPU is divided by MIG, and why the driver refuses to change that."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec


class InstanceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of GPU instance that a GPU can have."""

    name: str
    """The name of the profile, such as `3g.40gb`."""
    id: int
    """The number by which this GPU's driver creates it."""
    slices: int
    """Its share of the GPU's computing, in slices."""
    size: int
    """Its share of the GPU's memory, in slices: there is one more of these."""
    starts: tuple[int, ...]
    """The slices of memory at which it may begin."""
    most: int = 0
    """How many of it the GPU has at most."""


class GpuInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a GPU with memory of its own."""

    id: int
    profile: str
    start: int
    size: int
    compute: tuple[int, ...] = ()
    """The slices of each of its compute instances, which are the MIG devices, largest first."""


class GpuDivision(msgspec.Struct, frozen=True, kw_only=True):
    """How one GPU is divided."""

    uuid: str
    mig: bool
    """Whether MIG mode is on."""
    pending: bool
    """Whether MIG mode is on after the next reset of the GPU."""
    instances: tuple[GpuInstance, ...] = ()
    """The GPU instances by place; some may have no compute instance, so that no fact shows them."""
    profiles: tuple[InstanceProfile, ...] = ()
    """What the GPU could be divided into; some drivers name none while MIG mode is off."""


class Activation(StrEnum):
    """What became of a change of the MIG mode that the driver has accepted."""

    DONE = "done"
    IN_USE = "in-use"
    """It is pending, because processes use the GPU."""
    RESET_REQUIRED = "reset-required"
    """It is pending until the GPU is reset, which the driver could not do."""


class RefusalReason(StrEnum):
    """Why the driver did not do something. Nothing has changed."""

    UNKNOWN_GPU = "unknown-gpu"
    NOT_CAPABLE = "not-capable"
    IN_USE = "in-use"
    NO_PERMISSION = "no-permission"
    NO_ROOM = "no-room"
    REFUSED = "refused"


_TEXTS: Final[Mapping[RefusalReason, str]] = {
    RefusalReason.UNKNOWN_GPU: "the machine has no GPU with this UUID that can be used",
    RefusalReason.NOT_CAPABLE: "the GPU, or its driver, does not support this",
    RefusalReason.IN_USE: "processes use the GPU",
    RefusalReason.NO_PERMISSION: "this process may not change MIG: run the agent privileged",
    RefusalReason.NO_ROOM: "the GPU has no room for the instance",
    RefusalReason.REFUSED: "the driver refused",
}


class DivisionRefused(Exception):
    """The driver did not do something; the text is the reason, for people."""

    def __init__(self, reason: RefusalReason, detail: str = "") -> None:
        super().__init__(f"{_TEXTS[reason]} ({detail})" if detail else _TEXTS[reason])
        self.reason = reason
