"""Render a sweep as dcgm-exporter does: its default metrics, label order and number format.

A value that was not measured has no sample, and a metric without samples has no header. A GPU that
MIG divides has a sample for each GPU instance instead of its own, in which values that instances do
not have are the GPU's. There are no pod labels.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample, InstanceSample
from services.telemetry.node.sampler import Sweep
from services.telemetry.node.xids import xid_name

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
    _gauge("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "vGPU License status", lambda gpu: gpu.vgpu_licensed),
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


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def exporter_page(
    sweep: Sweep, *, node: str, hostname_label: Literal["Hostname", "hostname"]
) -> bytes:
    gpus = {gpu.uuid: gpu for gpu in sweep.gpus}
    common = {hostname_label: node, DRIVER_VERSION: sweep.driver_version}
    rows = [
        (row, _labels(row, gpus.get(sample.uuid), instance, common))
        for sample in sweep.samples
        for row, instance in _entities(sample)
    ]
    page: list[str] = []
    for field in FIELDS:
        lines: list[str] = []
        for sample, labels in rows:
            if value := _format_value(field.of(sample)):
                error = _error_labels(sample) if field.name == XID_ERRORS else ""
                lines.append(f"{field.name}{{{labels}{error}}} {value}\n")
        if lines:
            page.append(f"# HELP {field.name} {field.help}\n# TYPE {field.name} {field.type}\n")
            page += lines
    return "".join(page).encode()


def bus_id(pci: str) -> str:
    """Return a PCI address as NVML writes it: `00000000:1B:00.0`."""
    domain, colon, rest = pci.partition(":")
    return f"{domain.rjust(8, '0')}{colon}{rest}".upper()


_OF_INSTANCES: Final = tuple(
    name for name in InstanceSample.__struct_fields__ if name in GpuSample.__struct_fields__
)


def _entities(sample: GpuSample) -> Iterator[tuple[GpuSample, InstanceSample | None]]:
    """Yield the GPU, or each of its instances with the GPU's values where it has none."""
    if not sample.instances:
        yield sample, None
    for instance in sample.instances:
        own = {name: getattr(instance, name) for name in _OF_INSTANCES}
        yield msgspec.structs.replace(sample, **own), instance


def _labels(
    sample: GpuSample, gpu: Gpu | None, instance: InstanceSample | None, common: dict[str, str]
) -> str:
    of_instance = (
        {}
        if instance is None
        else {"GPU_I_PROFILE": instance.profile, "GPU_I_ID": str(instance.gpu_instance)}
    )
    return _format_labels(
        {
            "gpu": str(sample.index),
            "UUID": sample.uuid,
            "pci_bus_id": bus_id(sample.pci),
            "device": f"nvidia{sample.index if gpu is None else gpu.minor}",
            "modelName": "" if gpu is None else gpu.name,
            **of_instance,
            **common,
        }
    )


def _error_labels(sample: GpuSample) -> str:
    code = sample.xid or 0
    return "," + _format_labels({"err_code": str(code), "err_msg": xid_name(code)})


def _format_labels(labels: dict[str, str]) -> str:
    return ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items())


def _format_value(value: Value) -> str:
    if value is None or not math.isfinite(value) or value < 0:
        return ""
    return f"{value:f}" if isinstance(value, float) else f"{value:d}"
