"""The structures that NVML's calls exchange with their callers: those of pynvml.

The library sees them in C by names of ours, and their fields by NVIDIA's names in snake case. They
are made of what pynvml says, which agents use: a copy of it could differ.
"""

import ctypes
from collections.abc import Mapping
from typing import Any, Final

from libs.host.gpus.reading import nvml
from libs.testing.nvml.structures import I32, U32, Pointer, structure


@structure
class GridLicensableFeatures(ctypes.Structure):
    """Followed by as many features as `count` says."""

    supported: I32
    count: U32


@structure
class GpmMetricsGet(ctypes.Structure):
    """Followed by as many `GpmMetric` as `count` says; how many fit differs between releases."""

    version: U32
    count: U32
    first: Pointer
    second: Pointer


STRUCTURES: Final[Mapping[str, Any]] = {
    "pci_info": nvml.nvmlPciInfo_t,
    "memory_info": nvml.c_nvmlMemory_t,
    "memory_info_v2": nvml.c_nvmlMemory_v2_t,
    "utilization_rates": nvml.c_nvmlUtilization_t,
    "temperature_v1": nvml.c_nvmlTemperature_v1_t,
    "field_value": nvml.c_nvmlFieldValue_t,
    "event_data": nvml.c_nvmlEventData_t,
    "ecc_error_counts": nvml.c_nvmlEccErrorCounts_t,
    "sram_ecc_status_v1": nvml.c_nvmlEccSramErrorStatus_v1_t,
    "row_remapper_histogram": nvml.c_nvmlRowRemapperHistogramValues,
    "process_info": nvml.c_nvmlProcessInfo_v3_t,
    "fabric_info": nvml.c_nvmlGpuFabricInfo_t,
    "fabric_info_v2": nvml.c_nvmlGpuFabricInfo_v2_t,
    "fabric_info_v3": nvml.c_nvmlGpuFabricInfo_v3_t,
    "gpm_support": nvml.c_nvmlGpmSupport_t,
    "gpm_metric_info": nvml.c_metricInfo_t,
    "gpm_metric": nvml.c_nvmlGpmMetric_t,
    "device_attributes": nvml.c_nvmlDeviceAttributes,
    "placement": nvml.c_nvmlGpuInstancePlacement_t,
    "compute_placement": nvml.c_nvmlComputeInstancePlacement_t,
    "gpu_instance_info": nvml.c_nvmlGpuInstanceInfo_t,
    "gpu_instance_profile": nvml.c_nvmlGpuInstanceProfileInfo_t,
    "gpu_instance_profile_v2": nvml.c_nvmlGpuInstanceProfileInfo_v2_t,
    "compute_instance_info": nvml.c_nvmlComputeInstanceInfo_t,
    "compute_instance_profile": nvml.c_nvmlComputeInstanceProfileInfo_t,
    "compute_instance_profile_v2": nvml.c_nvmlComputeInstanceProfileInfo_v2_t,
    "grid_licensable_features": GridLicensableFeatures,
    "gpm_metrics_get": GpmMetricsGet,
}
"""By name in C."""
