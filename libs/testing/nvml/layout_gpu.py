"""The state of one GPU, as the library and Python share it."""

import ctypes
from typing import Annotated

from libs.testing.nvml.layout_mig import Mig
from libs.testing.nvml.structures import (
    I32,
    U32,
    U64,
    Double,
    Text32,
    Text64,
    Text96,
    Uuid,
    structure,
)

MAX_LINKS = 18
MAX_PROCESSES = 16
MAX_VIOLATIONS = 6


@structure
class Identity(ctypes.Structure):
    """What the product is, and its place in the machine."""

    name: Text96
    uuid: Text64
    serial: Text32
    board_part: Text32
    vbios: Text32
    minor: U32
    pci_domain: U32
    pci_bus: U32
    pci_device: U32
    pci_device_id: U32
    pci_subsystem_id: U32
    architecture: U32
    brand: U32
    compute_major: U32
    compute_minor: U32
    cores: U32
    memory_total: U64
    memory_reserved: U64


@structure
class Limits(ctypes.Structure):
    graphics_clock_mhz: U32
    sm_clock_mhz: U32
    memory_clock_mhz: U32
    video_clock_mhz: U32
    power_minimum_mw: U32
    power_maximum_mw: U32
    power_default_mw: U32
    temperature_shutdown_c: U32
    temperature_slowdown_c: U32
    temperature_maximum_c: U32
    pcie_generation: U32
    pcie_width: U32


@structure
class Features(ctypes.Structure):
    """Which of these the product has: 0 or 1."""

    ecc: U32
    row_remapping: U32
    page_retirement: U32
    memory_temperature: U32
    profiling: U32
    fabric: U32
    mig: U32


@structure
class Readings(ctypes.Structure):
    temperature_c: I32
    memory_temperature_c: I32
    power_mw: U32
    power_limit_mw: U32
    energy_mj: U64
    graphics_clock_mhz: U32
    sm_clock_mhz: U32
    memory_clock_mhz: U32
    video_clock_mhz: U32
    gpu_utilization: U32
    memory_utilization: U32
    encoder_utilization: U32
    decoder_utilization: U32
    jpeg_utilization: U32
    ofa_utilization: U32
    memory_used: U64
    """In bytes, without what is reserved."""
    clock_reasons: U64
    performance_state: U32
    persistence_mode: U32
    pcie_generation: U32
    pcie_width: U32
    pcie_tx_kb_per_s: U32
    pcie_rx_kb_per_s: U32
    pcie_replays: U32
    violations_ns: Annotated[ctypes.Array[ctypes.c_uint64], ctypes.c_uint64 * MAX_VIOLATIONS]
    """How long each of NVML's performance policies reduced the clocks, in its order."""


@structure
class Profiling(ctypes.Structure):
    """What the GPU's performance monitors measure: percent, and MiB per second."""

    graphics: Double
    sm: Double
    sm_occupancy: Double
    integer: Double
    tensor: Double
    tensor_dfma: Double
    tensor_hmma: Double
    tensor_dmma: Double
    tensor_imma: Double
    dram: Double
    fp64: Double
    fp32: Double
    fp16: Double
    pcie_tx: Double
    pcie_rx: Double
    nvlink_tx: Double
    nvlink_rx: Double


@structure
class EccCounts(ctypes.Structure):
    corrected_dram: U64
    corrected_sram: U64
    uncorrected_dram: U64
    uncorrected_sram: U64


@structure
class Health(ctypes.Structure):
    condition: U32
    """`Return.SUCCESS`, or what calls for this GPU return, such as `GPU_IS_LOST`."""
    recovery_action: U32
    hang_until: U64
    """A monotonic time in nanoseconds until which calls for this GPU block, or `FOREVER`."""
    hung_calls: U64
    """How many calls have begun to block."""
    ecc_mode: U32
    ecc_mode_pending: U32
    ecc_volatile: Annotated[EccCounts, EccCounts]
    ecc_aggregate: Annotated[EccCounts, EccCounts]
    sram_threshold_exceeded: U32
    remapped_corrected: U32
    remapped_uncorrected: U32
    remap_pending: U32
    remap_failure: U32
    retired_single_bit: U32
    retired_double_bit: U32
    retirement_pending: U32


@structure
class Link(ctypes.Structure):
    active: U32
    peer: U32
    """The GPU at the other end, by its index plus one; 0: an NVSwitch."""
    replays: U64
    recoveries: U64
    crc_flit_errors: U64
    crc_data_errors: U64
    ecc_data_errors: U64
    receive_errors: U64
    tx_kib: U64
    rx_kib: U64


@structure
class Links(ctypes.Structure):
    """The NVLinks of a GPU."""

    count: U32
    version: U32
    speed_mbps: U32
    link: Annotated[ctypes.Array[Link], Link * MAX_LINKS]


@structure
class Fabric(ctypes.Structure):
    state: U32
    status: U32
    clique: U32
    health_mask: U32
    health_summary: U32
    cluster_uuid: Uuid


@structure
class Process(ctypes.Structure):
    """A process that computes on a GPU."""

    pid: U32
    gpu_instance: U32
    compute_instance: U32
    memory: U64


@structure
class Gpu(ctypes.Structure):
    identity: Annotated[Identity, Identity]
    limits: Annotated[Limits, Limits]
    features: Annotated[Features, Features]
    readings: Annotated[Readings, Readings]
    profiling: Annotated[Profiling, Profiling]
    health: Annotated[Health, Health]
    links: Annotated[Links, Links]
    fabric: Annotated[Fabric, Fabric]
    mig: Annotated[Mig, Mig]
    process_count: U32
    processes: Annotated[ctypes.Array[Process], Process * MAX_PROCESSES]


STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    Identity,
    Limits,
    Features,
    Readings,
    Profiling,
    EccCounts,
    Health,
    Link,
    Links,
    Fabric,
    Process,
    Gpu,
)
