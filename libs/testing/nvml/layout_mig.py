"""The state of a GPU that is partitioned, as the library and Python share it."""

import ctypes
from typing import Annotated

from libs.testing.nvml.structures import U32, U64, Text32, structure

MAX_INSTANCES = 8
"""GPU instances of a GPU, and compute instances of all of them."""

MAX_PROFILES = 12
COMPUTE_SLICES = 7


@structure
class MigProfile(ctypes.Structure):
    """A kind of GPU instance, and where on the GPU it may lie: slices of memory."""

    constant: U32
    """The number by which NVML's callers ask for it."""
    id: U32
    name: Text32
    slices: U32
    instances: U32
    multiprocessors: U32
    copy_engines: U32
    decoders: U32
    encoders: U32
    jpeg_engines: U32
    ofa_engines: U32
    memory_mib: U64
    size: U32
    start_count: U32
    starts: Annotated[ctypes.Array[ctypes.c_uint32], ctypes.c_uint32 * MAX_INSTANCES]


@structure
class GpuInstance(ctypes.Structure):
    serial: U32
    """Never given twice while the machine exists; 0 is an empty place."""
    id: U32
    profile: U32
    """Index of its profile."""
    start: U32
    memory_used: U64


@structure
class ComputeInstance(ctypes.Structure):
    serial: U32
    id: U32
    gpu_instance: U32
    """Serial of the GPU instance that it is part of."""
    profile: U32
    slices: U32
    start: U32


@structure
class Mig(ctypes.Structure):
    mode: U32
    pending_mode: U32
    activation: U32
    """What prevents a change of the mode from taking effect: SUCCESS, IN_USE, RESET_REQUIRED."""
    mode_persists: U32
    """Whether the mode outlives the driver."""
    serials: U32
    """How many instances there ever were."""
    profile_count: U32
    profiles: Annotated[ctypes.Array[MigProfile], MigProfile * MAX_PROFILES]
    gpu_instances: Annotated[ctypes.Array[GpuInstance], GpuInstance * MAX_INSTANCES]
    compute_instances: Annotated[ctypes.Array[ComputeInstance], ComputeInstance * MAX_INSTANCES]


STRUCTURES: tuple[type[ctypes.Structure], ...] = (MigProfile, GpuInstance, ComputeInstance, Mig)
