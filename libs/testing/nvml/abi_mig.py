"""The structures of NVML's calls about MIG."""

import ctypes
from typing import Annotated

from libs.testing.nvml.structures import U32, U64, Pointer, Text96, structure


@structure
class DeviceAttributes(ctypes.Structure):
    __slots__ = ()
    multiprocessors: U32
    copy_engines: U32
    decoders: U32
    encoders: U32
    jpeg_engines: U32
    ofa_engines: U32
    gpu_slices: U32
    compute_slices: U32
    memory_mib: U64


@structure
class Placement(ctypes.Structure):
    __slots__ = ()
    start: U32
    size: U32


@structure
class GpuInstanceInfo(ctypes.Structure):
    __slots__ = ()
    device: Pointer
    id: U32
    profile: U32
    placement: Annotated[Placement, Placement]


@structure
class GpuInstanceProfile(ctypes.Structure):
    __slots__ = ()
    id: U32
    p2p: U32
    slices: U32
    instances: U32
    multiprocessors: U32
    copy_engines: U32
    decoders: U32
    encoders: U32
    jpeg_engines: U32
    ofa_engines: U32
    memory_mib: U64


@structure
class GpuInstanceProfileV2(ctypes.Structure):
    __slots__ = ()
    version: U32
    id: U32
    p2p: U32
    slices: U32
    instances: U32
    multiprocessors: U32
    copy_engines: U32
    decoders: U32
    encoders: U32
    jpeg_engines: U32
    ofa_engines: U32
    memory_mib: U64
    name: Text96


@structure
class ComputeInstanceInfo(ctypes.Structure):
    __slots__ = ()
    device: Pointer
    gpu_instance: Pointer
    id: U32
    profile: U32
    placement: Annotated[Placement, Placement]


@structure
class ComputeInstanceProfile(ctypes.Structure):
    __slots__ = ()
    id: U32
    slices: U32
    instances: U32
    multiprocessors: U32
    copy_engines: U32
    decoders: U32
    encoders: U32
    jpeg_engines: U32
    ofa_engines: U32


@structure
class ComputeInstanceProfileV2(ctypes.Structure):
    __slots__ = ()
    version: U32
    id: U32
    slices: U32
    instances: U32
    multiprocessors: U32
    copy_engines: U32
    decoders: U32
    encoders: U32
    jpeg_engines: U32
    ofa_engines: U32
    name: Text96


STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    DeviceAttributes,
    Placement,
    GpuInstanceInfo,
    GpuInstanceProfile,
    GpuInstanceProfileV2,
    ComputeInstanceInfo,
    ComputeInstanceProfile,
    ComputeInstanceProfileV2,
)
