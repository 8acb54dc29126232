"""Measure one GPU through NVML. Only the NVML process imports this, as it does `reading`."""

from typing import Any, Final

from libs.host.gpus.reading import ask, fields, nvml

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
            **fields(gpu, _FIELDS),
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
