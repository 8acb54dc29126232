"""dcgm-exporter's default metrics with their names, types and help, as dashboards expect them.

The state of a vGPU licence is missing: it is not measured.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from libs.contracts.telemetry import GpuSample

Value: TypeAlias = int | float | None

XID_ERRORS: Final = "DCGM_FI_DEV_XID_ERRORS"
DRIVER_VERSION: Final = "DCGM_FI_DRIVER_VERSION"
"""A label of every sample, not a metric."""


class MetricField(msgspec.Struct, frozen=True):
    name: str
    type: Literal["gauge", "counter"]
    help: str
    of: Callable[[GpuSample], Value]


def _gauge(name: str, help: str, of: Callable[[GpuSample], Value]) -> MetricField:
    return MetricField(name, "gauge", help, of)


def _counter(name: str, help: str, of: Callable[[GpuSample], Value]) -> MetricField:
    return MetricField(name, "counter", help, of)


_PCIE_RATE: Final = (
    "The rate of data {} over the PCIe bus - including both protocol headers and data payloads -"
    " in bytes per second."
)


FIELDS: Final = (
    _gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", lambda gpu: gpu.sm_clock_mhz),
    _gauge(
        "DCGM_FI_DEV_MEM_CLOCK",
        "Memory clock frequency (in MHz).",
        lambda gpu: gpu.memory_clock_mhz,
    ),
    _gauge(
        "DCGM_FI_DEV_MEMORY_TEMP",
        "Memory temperature (in C).",
        lambda gpu: gpu.memory_temperature_c,
    ),
    _gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", lambda gpu: gpu.temperature_c),
    _gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda gpu: gpu.power_w),
    _counter(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption since boot (in mJ).",
        lambda gpu: gpu.energy_mj,
    ),
    _counter(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "Total number of PCIe retries.",
        lambda gpu: gpu.pcie_replays,
    ),
    _gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda gpu: gpu.gpu_utilization),
    _gauge(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "Memory utilization (in %).",
        lambda gpu: gpu.memory_utilization,
    ),
    _gauge(
        "DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", lambda gpu: gpu.encoder_utilization
    ),
    _gauge(
        "DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", lambda gpu: gpu.decoder_utilization
    ),
    _gauge(XID_ERRORS, "Value of the last XID error encountered.", lambda gpu: gpu.xid),
    _gauge(
        "DCGM_FI_DEV_FB_FREE",
        "Framebuffer memory free (in MiB).",
        lambda gpu: gpu.framebuffer_free_mib,
    ),
    _gauge(
        "DCGM_FI_DEV_FB_USED",
        "Framebuffer memory used (in MiB).",
        lambda gpu: gpu.framebuffer_used_mib,
    ),
    _gauge(
        "DCGM_FI_DEV_FB_RESERVED",
        "Framebuffer memory reserved (in MiB).",
        lambda gpu: gpu.framebuffer_reserved_mib,
    ),
    _counter(
        # A rate, declared as a counter by dcgm-exporter.
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "Total number of NVLink bandwidth counters for all lanes.",
        lambda gpu: gpu.nvlink_mb_per_s,
    ),
    _counter(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors",
        lambda gpu: gpu.remapped_uncorrectable,
    ),
    _counter(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for correctable errors",
        lambda gpu: gpu.remapped_correctable,
    ),
    _gauge(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "Whether remapping of rows has failed",
        lambda gpu: gpu.remap_failure,
    ),
    _gauge(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "Ratio of time the graphics engine is active.",
        lambda gpu: gpu.graphics_active,
    ),
    _gauge(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        lambda gpu: gpu.tensor_active,
    ),
    _gauge(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        lambda gpu: gpu.dram_active,
    ),
    _gauge(
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        _PCIE_RATE.format("transmitted"),
        lambda gpu: gpu.pcie_tx_bytes_per_s,
    ),
    _gauge(
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        _PCIE_RATE.format("received"),
        lambda gpu: gpu.pcie_rx_bytes_per_s,
    ),
)
"""In the order of dcgm-exporter's list."""
