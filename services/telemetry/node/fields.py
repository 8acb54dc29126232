"""dcgm-exporter's default list: names, types and help lines as dashboards and alerts know them.

Not in the list: the state of a vGPU licence, which is not measured.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from libs.contracts.telemetry import GpuSample

Value: TypeAlias = int | float | None

XID_ERRORS: Final = "DCGM_FI_DEV_XID_ERRORS"
DRIVER_VERSION: Final = "DCGM_FI_DRIVER_VERSION"
"""Not a metric of its own: a label of every sample."""


class MetricField(msgspec.Struct, frozen=True):
    """One metric, and where a sample has it."""

    name: str
    type: Literal["gauge", "counter"]
    help: str
    of: Callable[[GpuSample], Value]


def _rate(way: str) -> str:
    both = "including both protocol headers and data payloads"
    return f"The rate of data {way} over the PCIe bus - {both} - in bytes per second."


FIELDS: Final = (
    MetricField(
        "DCGM_FI_DEV_SM_CLOCK",
        "gauge",
        "SM clock frequency (in MHz).",
        lambda gpu: gpu.sm_clock_mhz,
    ),
    MetricField(
        "DCGM_FI_DEV_MEM_CLOCK",
        "gauge",
        "Memory clock frequency (in MHz).",
        lambda gpu: gpu.memory_clock_mhz,
    ),
    MetricField(
        "DCGM_FI_DEV_MEMORY_TEMP",
        "gauge",
        "Memory temperature (in C).",
        lambda gpu: gpu.memory_temperature_c,
    ),
    MetricField(
        "DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", lambda gpu: gpu.temperature_c
    ),
    MetricField("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", lambda gpu: gpu.power_w),
    MetricField(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
        lambda gpu: gpu.energy_mj,
    ),
    MetricField(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "counter",
        "Total number of PCIe retries.",
        lambda gpu: gpu.pcie_replays,
    ),
    MetricField(
        "DCGM_FI_DEV_GPU_UTIL",
        "gauge",
        "GPU utilization (in %).",
        lambda gpu: gpu.gpu_utilization,
    ),
    MetricField(
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "gauge",
        "Memory utilization (in %).",
        lambda gpu: gpu.memory_utilization,
    ),
    MetricField(
        "DCGM_FI_DEV_ENC_UTIL",
        "gauge",
        "Encoder utilization (in %).",
        lambda gpu: gpu.encoder_utilization,
    ),
    MetricField(
        "DCGM_FI_DEV_DEC_UTIL",
        "gauge",
        "Decoder utilization (in %).",
        lambda gpu: gpu.decoder_utilization,
    ),
    MetricField(
        XID_ERRORS, "gauge", "Value of the last XID error encountered.", lambda gpu: gpu.xid
    ),
    MetricField(
        "DCGM_FI_DEV_FB_FREE",
        "gauge",
        "Framebuffer memory free (in MiB).",
        lambda gpu: gpu.framebuffer_free_mib,
    ),
    MetricField(
        "DCGM_FI_DEV_FB_USED",
        "gauge",
        "Framebuffer memory used (in MiB).",
        lambda gpu: gpu.framebuffer_used_mib,
    ),
    MetricField(
        "DCGM_FI_DEV_FB_RESERVED",
        "gauge",
        "Framebuffer memory reserved (in MiB).",
        lambda gpu: gpu.framebuffer_reserved_mib,
    ),
    MetricField(
        # In truth a rate; dashboards know it as it is declared.
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "counter",
        "Total number of NVLink bandwidth counters for all lanes.",
        lambda gpu: gpu.nvlink_mb_per_s,
    ),
    MetricField(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for uncorrectable errors",
        lambda gpu: gpu.remapped_uncorrectable,
    ),
    MetricField(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for correctable errors",
        lambda gpu: gpu.remapped_correctable,
    ),
    MetricField(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "gauge",
        "Whether remapping of rows has failed",
        lambda gpu: gpu.remap_failure,
    ),
    MetricField(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "gauge",
        "Ratio of time the graphics engine is active.",
        lambda gpu: gpu.graphics_active,
    ),
    MetricField(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        lambda gpu: gpu.tensor_active,
    ),
    MetricField(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "gauge",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        lambda gpu: gpu.dram_active,
    ),
    MetricField(
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "gauge",
        _rate("transmitted"),
        lambda gpu: gpu.pcie_tx_bytes_per_s,
    ),
    MetricField(
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        "gauge",
        _rate("received"),
        lambda gpu: gpu.pcie_rx_bytes_per_s,
    ),
)
"""In the order of dcgm-exporter's list."""
