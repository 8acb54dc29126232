"""What a caller of NVML and the library exchange: codes, and the structures of its calls."""

import ctypes
from enum import IntEnum
from typing import Annotated

from libs.testing.nvml.structures import (
    I32,
    I64,
    U32,
    U64,
    Double,
    Pointer,
    String,
    Uuid,
    structure,
)

Text16 = Annotated[bytes, ctypes.c_char * 16]
Text32 = Annotated[bytes, ctypes.c_char * 32]
Text96 = Annotated[bytes, ctypes.c_char * 96]


class Return(IntEnum):
    """What a call returns."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    INSUFFICIENT_POWER = 8
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    IRQ_ISSUE = 11
    FUNCTION_NOT_FOUND = 13
    CORRUPTED_INFOROM = 14
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    INSUFFICIENT_RESOURCES = 23
    ARGUMENT_VERSION_MISMATCH = 25
    UNKNOWN = 999


class ValueType(IntEnum):
    """The member of a field's value that is set."""

    DOUBLE = 0
    UNSIGNED_INT = 1
    UNSIGNED_LONG_LONG = 3


class RecoveryAction(IntEnum):
    """What the driver says must be done about a GPU: field 230."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4


class FabricState(IntEnum):
    """How far a GPU has joined its NVLink fabric."""

    NOT_SUPPORTED = 0
    NOT_STARTED = 1
    IN_PROGRESS = 2
    COMPLETED = 3


class EventType(IntEnum):
    """Bits that name kinds of events."""

    SINGLE_BIT_ECC = 1
    DOUBLE_BIT_ECC = 2
    PSTATE = 4
    XID = 8
    CLOCK = 16


@structure
class PciInfo(ctypes.Structure):
    __slots__ = ()
    bus_id_legacy: Text16
    domain: U32
    bus: U32
    device: U32
    device_id: U32
    subsystem_id: U32
    bus_id: Text32


@structure
class MemoryInfo(ctypes.Structure):
    __slots__ = ()
    total: U64
    free: U64
    used: U64


@structure
class MemoryInfoV2(ctypes.Structure):
    __slots__ = ()
    version: U32
    total: U64
    reserved: U64
    free: U64
    used: U64


@structure
class UtilizationRates(ctypes.Structure):
    __slots__ = ()
    gpu: U32
    memory: U32


@structure
class TemperatureV1(ctypes.Structure):
    __slots__ = ()
    version: U32
    sensor: U32
    temperature: I32


@structure
class FieldValue(ctypes.Structure):
    """`value` holds a number of the type `value_type`."""

    __slots__ = ()
    field_id: U32
    scope_id: U32
    timestamp: I64
    latency: I64
    value_type: U32
    result: U32
    value: U64


@structure
class EventData(ctypes.Structure):
    __slots__ = ()
    device: Pointer
    type: U64
    data: U64
    gpu_instance: U32
    compute_instance: U32


@structure
class EccErrorCounts(ctypes.Structure):
    __slots__ = ()
    l1_cache: U64
    l2_cache: U64
    device_memory: U64
    register_file: U64


@structure
class SramEccStatusV1(ctypes.Structure):
    __slots__ = ()
    version: U32
    aggregate_parity: U64
    aggregate_sec_ded: U64
    aggregate_corrected: U64
    volatile_parity: U64
    volatile_sec_ded: U64
    volatile_corrected: U64
    bucket_l2: U64
    bucket_sm: U64
    bucket_pcie: U64
    bucket_mcu: U64
    bucket_other: U64
    threshold_exceeded: U32


@structure
class RowRemapperHistogram(ctypes.Structure):
    __slots__ = ()
    maximum: U32
    high: U32
    partial: U32
    low: U32
    none: U32


@structure
class ProcessInfo(ctypes.Structure):
    __slots__ = ()
    pid: U32
    used_memory: U64
    gpu_instance: U32
    compute_instance: U32


@structure
class FabricInfo(ctypes.Structure):
    __slots__ = ()
    cluster_uuid: Uuid
    status: U32
    clique: U32
    state: U32


@structure
class FabricInfoV2(ctypes.Structure):
    __slots__ = ()
    version: U32
    cluster_uuid: Uuid
    status: U32
    clique: U32
    state: U32
    health_mask: U32


@structure
class FabricInfoV3(ctypes.Structure):
    __slots__ = ()
    version: U32
    cluster_uuid: Uuid
    status: U32
    clique: U32
    state: U32
    health_mask: U32
    health_summary: Annotated[int, ctypes.c_uint8]


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


@structure
class GpmSupport(ctypes.Structure):
    __slots__ = ()
    version: U32
    supported: U32


@structure
class GpmMetric(ctypes.Structure):
    __slots__ = ()
    id: U32
    result: U32
    value: Double
    short_name: String
    long_name: String
    unit: String


@structure
class GpmMetricsGet(ctypes.Structure):
    """Followed by as many `GpmMetric` as `count` says; how many fit differs between releases."""

    __slots__ = ()
    version: U32
    count: U32
    first: Pointer
    second: Pointer


ENUMS: tuple[type[IntEnum], ...] = (Return, ValueType, RecoveryAction, FabricState, EventType)

STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    PciInfo,
    MemoryInfo,
    MemoryInfoV2,
    UtilizationRates,
    TemperatureV1,
    FieldValue,
    EventData,
    EccErrorCounts,
    SramEccStatusV1,
    RowRemapperHistogram,
    ProcessInfo,
    FabricInfo,
    FabricInfoV2,
    FabricInfoV3,
    DeviceAttributes,
    Placement,
    GpuInstanceInfo,
    GpuInstanceProfile,
    GpuInstanceProfileV2,
    ComputeInstanceInfo,
    ComputeInstanceProfile,
    ComputeInstanceProfileV2,
    GpmSupport,
    GpmMetric,
    GpmMetricsGet,
)
