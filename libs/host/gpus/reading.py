"""Read GPUs through NVML. Only the NVML process imports this: every call may hang for ever.

A value that the driver does not have, or may not tell, is None or absent. Other errors of NVML
leave as `NVMLError`, because they concern the whole GPU.
"""

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pynvml

from libs.host.gpus.protocol import MAX_MIGS, RawFabric, RawGpu, RawMig

nvml: Final = cast(Any, pynvml)
"""The module has no types."""

NvmlError: Final[type[Exception]] = nvml.NVMLError

_OF_THE_GPU: Final = frozenset(
    (
        nvml.NVML_ERROR_UNINITIALIZED,
        nvml.NVML_ERROR_INSUFFICIENT_POWER,
        nvml.NVML_ERROR_DRIVER_NOT_LOADED,
        nvml.NVML_ERROR_GPU_IS_LOST,
        nvml.NVML_ERROR_RESET_REQUIRED,
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    )
)
"""Errors that concern the GPU or the driver as a whole, whatever was asked."""
_ALL_LINKS: Final = 0xFFFFFFFF
_FIELDS: Final[dict[str, int | tuple[int, int]]] = {
    "memory_temperature": nvml.NVML_FI_DEV_MEMORY_TEMP,
    "energy": nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    "ecc_volatile_corrected": nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    "ecc_volatile_uncorrected": nvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
    "ecc_aggregate_corrected": nvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
    "ecc_aggregate_uncorrected": nvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
    "retired_corrected": nvml.NVML_FI_DEV_RETIRED_SBE,
    "retired_uncorrected": nvml.NVML_FI_DEV_RETIRED_DBE,
    "retired_pending": nvml.NVML_FI_DEV_RETIRED_PENDING,
    "remapped_correctable": nvml.NVML_FI_DEV_REMAPPED_COR,
    "remapped_uncorrectable": nvml.NVML_FI_DEV_REMAPPED_UNC,
    "remap_pending": nvml.NVML_FI_DEV_REMAPPED_PENDING,
    "remap_failure": nvml.NVML_FI_DEV_REMAPPED_FAILURE,
    "power_violation": nvml.NVML_FI_DEV_PERF_POLICY_POWER,
    "thermal_violation": nvml.NVML_FI_DEV_PERF_POLICY_THERMAL,
    "sync_boost_violation": nvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,
    "board_limit_violation": nvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT,
    "low_utilization_violation": nvml.NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION,
    "reliability_violation": nvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY,
    "nvlink_flit_errors": nvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    "nvlink_data_errors": nvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    "nvlink_replay_errors": nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    "nvlink_recovery_errors": nvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
    "nvlink_tx_kib": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    "nvlink_rx_kib": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
}
_FIELD_VALUES: Final = {
    nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    nvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}
_PROFILING: Final[dict[str, int]] = {
    "graphics_active": nvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm_active": nvml.NVML_GPM_METRIC_SM_UTIL,
    "sm_occupancy": nvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_active": nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active": nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "fp64_active": nvml.NVML_GPM_METRIC_FP64_UTIL,
    "fp32_active": nvml.NVML_GPM_METRIC_FP32_UTIL,
    "fp16_active": nvml.NVML_GPM_METRIC_FP16_UTIL,
    "pcie_tx_mib": nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "pcie_rx_mib": nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
}


def ask(function: Callable[..., Any], *args: Any) -> Any:
    """Call NVML; return None for a value that the driver does not have."""
    try:
        return function(*args)
    except NvmlError as error:
        if code_of(error) in _OF_THE_GPU:
            raise
        return None


def code_of(error: Exception) -> int:
    return int(cast(Any, error).value)


def undecoded(function: Callable[..., Any]) -> Callable[..., bytes]:
    """Return a function of pynvml that returns bytes: pynvml fails on a text that is not UTF-8."""
    return cast(Any, function).__wrapped__


def text(function: Callable[..., Any], gpu: Any) -> bytes | None:
    return ask(undecoded(function), gpu)


def describe(gpu: Any) -> RawGpu:
    """Describe one GPU; its UUID is required, so that an error of it concerns the whole GPU."""
    pci = ask(nvml.nvmlDeviceGetPciInfo, gpu)
    memory = ask(nvml.nvmlDeviceGetMemoryInfo, gpu)
    mode = ask(nvml.nvmlDeviceGetMigMode, gpu)
    return RawGpu(
        uuid=undecoded(nvml.nvmlDeviceGetUUID)(gpu),
        pci=None if pci is None else _bytes(nvml.nvmlPciInfo_t.busId, pci),
        name=text(nvml.nvmlDeviceGetName, gpu),
        serial=text(nvml.nvmlDeviceGetSerial, gpu),
        minor=ask(nvml.nvmlDeviceGetMinorNumber, gpu),
        memory=None if memory is None else memory.total,
        compute_capability=ask(nvml.nvmlDeviceGetCudaComputeCapability, gpu),
        mig=None if mode is None else (mode[0], mode[1]),
        migs=list(_migs(gpu)) if mode is not None and mode[0] else [],
        fabric=_fabric(gpu),
        nvlinks=_nvlinks(gpu),
        recovery=_fields(gpu, {"recovery": nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION}).get(
            "recovery"
        ),
    )


def _bytes(field: Any, structure: Any) -> bytes:
    """Return the bytes of a text in a structure, up to its first NUL, undecoded."""
    start = ctypes.addressof(structure) + field.offset
    return ctypes.string_at(start, field.size).partition(b"\0")[0]


def _migs(gpu: Any) -> Iterator[RawMig]:
    numbers: dict[int, int] | None = None
    count: int = ask(nvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
    for index in range(min(count, MAX_MIGS)):
        device = ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index)
        if device is None:
            continue
        if numbers is None:
            numbers = _profile_numbers(gpu)
        yield _mig(gpu, device, numbers)


def _mig(gpu: Any, device: Any, numbers: dict[int, int]) -> RawMig:
    attributes = ask(nvml.nvmlDeviceGetAttributes, device)
    gpu_instance = ask(nvml.nvmlDeviceGetGpuInstanceId, device)
    profile = _profile_of(gpu, gpu_instance)
    return RawMig(
        uuid=text(nvml.nvmlDeviceGetUUID, device) or b"",
        name=text(nvml.nvmlDeviceGetName, device) or b"",
        gpu_instance=gpu_instance,
        compute_instance=ask(nvml.nvmlDeviceGetComputeInstanceId, device),
        profile=None if profile is None else numbers.get(profile),
        **({} if attributes is None else _attributes(attributes)),
    )


def _attributes(found: Any) -> dict[str, int]:
    return {
        "memory_mib": found.memorySizeMB,
        "multiprocessors": found.multiprocessorCount,
        "gpu_slices": found.gpuInstanceSliceCount,
        "compute_slices": found.computeInstanceSliceCount,
        "copy_engines": found.sharedCopyEngineCount,
        "decoders": found.sharedDecoderCount,
        "encoders": found.sharedEncoderCount,
        "jpeg_engines": found.sharedJpegCount,
        "ofa_engines": found.sharedOfaCount,
    }


def _profile_of(gpu: Any, gpu_instance: int | None) -> int | None:
    """Return the id of a GPU instance's profile; only root may ask."""
    if gpu_instance is None:
        return None
    handle = ask(nvml.nvmlDeviceGetGpuInstanceById, gpu, gpu_instance)
    found = None if handle is None else ask(nvml.nvmlGpuInstanceGetInfo, handle)
    return None if found is None else int(found.profileId)


def _profile_numbers(gpu: Any) -> dict[int, int]:
    """Return the numbers of the GPU's profiles in NVML's enum by the ids that this GPU uses."""
    numbers: dict[int, int] = {}
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        found = ask(nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number, 1)
        if found is not None:
            numbers.setdefault(int(found.id), number)
    return numbers


def _fabric(gpu: Any) -> RawFabric | None:
    found = nvml.c_nvmlGpuFabricInfo_v2_t()
    found.version = nvml.nvmlGpuFabricInfo_v2
    if ask(nvml.nvmlDeviceGetGpuFabricInfoV, gpu, ctypes.byref(found)) is None:
        found = nvml.c_nvmlGpuFabricInfo_t()
        if ask(nvml.nvmlDeviceGetGpuFabricInfo, gpu, ctypes.byref(found)) is None:
            return None
    return RawFabric(
        cluster=bytes(found.clusterUuid),
        clique=found.cliqueId,
        state=found.state,
        status=found.status,
    )


def _nvlinks(gpu: Any) -> list[int]:
    links: list[int] = []
    for number in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = ask(nvml.nvmlDeviceGetNvLinkState, gpu, number)
        if state is None:
            break
        links.append(state)
    return links


def _fields(gpu: Any, wanted: dict[str, int | tuple[int, int]]) -> dict[str, Any]:
    found = ask(nvml.nvmlDeviceGetFieldValues, gpu, list(wanted.values()))
    values: dict[str, Any] = {}
    for name, field in zip(wanted, found or (), strict=False):
        kind = _FIELD_VALUES.get(field.valueType)
        if field.nvmlReturn == nvml.NVML_SUCCESS and kind is not None:
            values[name] = getattr(field.value, kind)
    return values


class Measuring:
    """Measures one GPU; profiling compares two samples, so that the first has none of it."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        support = ask(nvml.nvmlGpmQueryDeviceSupport, gpu)
        self._profiles = support is not None and bool(support.isSupportedDevice)
        self._metrics: Any = nvml.c_nvmlGpmMetricsGet_t() if self._profiles else None
        self._before: Any = None
        self._spare: Any = None

    def sample(self) -> dict[str, int | float]:
        gpu = self._gpu
        found: dict[str, Any] = {
            "sm_clock": ask(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
            "memory_clock": ask(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_MEM),
            "temperature": ask(nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
            "power_mw": ask(nvml.nvmlDeviceGetPowerUsage, gpu),
            "power_limit_mw": ask(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu),
            "performance_state": ask(nvml.nvmlDeviceGetPerformanceState, gpu),
            "pcie_replays": ask(nvml.nvmlDeviceGetPcieReplayCounter, gpu),
            "clock_reasons": _clock_reasons(gpu),
            "vgpu_licensed": _vgpu_licensed(gpu),
            **_utilization(gpu),
            **_memory(gpu),
            **_fields(gpu, _FIELDS),
            **(self._profile() if self._profiles else _pcie(gpu)),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _profile(self) -> dict[str, float]:
        if self._spare is None:
            self._spare = ask(nvml.nvmlGpmSampleAlloc)
        if self._spare is None or ask(nvml.nvmlGpmSampleGet, self._gpu, self._spare) is None:
            return {}
        before, self._before, self._spare = self._before, self._spare, self._before
        return {} if before is None else self._compare(before, self._before)

    def _compare(self, before: Any, after: Any) -> dict[str, float]:
        request = self._metrics
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_PROFILING)
        request.sample1, request.sample2 = before, after
        for place, metric in enumerate(_PROFILING.values()):
            request.metrics[place].metricId = metric
        if ask(nvml.nvmlGpmMetricsGet, request) is None:
            return {}
        return {
            name: request.metrics[place].value
            for place, name in enumerate(_PROFILING)
            if request.metrics[place].nvmlReturn == nvml.NVML_SUCCESS
        }


def _clock_reasons(gpu: Any) -> int | None:
    found = ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, gpu)
    # Drivers before 535 have the function under its old name alone.
    return ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu) if found is None else found


def _utilization(gpu: Any) -> dict[str, int]:
    rates = ask(nvml.nvmlDeviceGetUtilizationRates, gpu)
    encoder = ask(nvml.nvmlDeviceGetEncoderUtilization, gpu)
    decoder = ask(nvml.nvmlDeviceGetDecoderUtilization, gpu)
    return {
        **({} if rates is None else {"gpu_utilization": rates.gpu}),
        **({} if rates is None else {"memory_utilization": rates.memory}),
        **({} if encoder is None else {"encoder_utilization": encoder[0]}),
        **({} if decoder is None else {"decoder_utilization": decoder[0]}),
    }


def _memory(gpu: Any) -> dict[str, int]:
    found = ask(nvml.nvmlDeviceGetMemoryInfo, gpu, nvml.nvmlMemory_v2)
    if found is None:  # drivers before 510
        found = ask(nvml.nvmlDeviceGetMemoryInfo, gpu)
        return {} if found is None else {"memory_free": found.free, "memory_used": found.used}
    return {
        "memory_free": found.free,
        "memory_used": found.used,
        "memory_reserved": found.reserved,
    }


def _pcie(gpu: Any) -> dict[str, int | None]:
    return {
        "pcie_tx_kb": ask(nvml.nvmlDeviceGetPcieThroughput, gpu, nvml.NVML_PCIE_UTIL_TX_BYTES),
        "pcie_rx_kb": ask(nvml.nvmlDeviceGetPcieThroughput, gpu, nvml.NVML_PCIE_UTIL_RX_BYTES),
    }


def _vgpu_licensed(gpu: Any) -> int | None:
    found = ask(nvml.nvmlDeviceGetGridLicensableFeatures, gpu)
    if found is None or not found.isGridLicenseSupported:
        return None if found is None else 0
    count = min(found.licensableFeaturesCount, len(found.gridLicensableFeatures))
    features = (found.gridLicensableFeatures[place] for place in range(count))
    vgpu = nvml.NVML_GRID_LICENSE_FEATURE_CODE_VGPU
    return int(any(each.featureCode == vgpu and each.featureState > 0 for each in features))


def monotonic() -> float:
    """Return the clock of samples and events. Like that of the kernel log, no one adjusts it."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
