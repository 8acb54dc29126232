"""The structures that NVML's calls exchange with their callers; those about MIG: `abi_mig`."""

import ctypes
from typing import Annotated

from libs.testing.nvml.structures import (
    I32,
    I64,
    U32,
    U64,
    Double,
    Pointer,
    String,
    Text16,
    Text32,
    Uuid,
    structure,
)


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
class GridLicensableFeatures(ctypes.Structure):
    """Followed by as many features as `count` says."""

    __slots__ = ()
    supported: I32
    count: U32


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
    GridLicensableFeatures,
    GpmSupport,
    GpmMetric,
    GpmMetricsGet,
)
