"""Measure one GPU through NVML. Only the NVML process imports this, as it does `reading`."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from libs.host.gpus.protocol import MAX_MIGS, SampledInstance
from libs.host.gpus.reading import NvmlError, ask, attempt, attribute, fields, nvml

_ALL_LINKS: Final = 0xFFFFFFFF
_NUMBERS: Final[dict[str, int]] = {
    "memory_temperature_c": nvml.NVML_FI_DEV_MEMORY_TEMP,
    "energy_mj": nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
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
    "power_violation_ns": nvml.NVML_FI_DEV_PERF_POLICY_POWER,
    "thermal_violation_ns": nvml.NVML_FI_DEV_PERF_POLICY_THERMAL,
    "sync_boost_violation_ns": nvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,
    "board_limit_violation_ns": nvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT,
    "low_utilization_violation_ns": nvml.NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION,
    "reliability_violation_ns": nvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY,
    "nvlink_flit_errors": nvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    "nvlink_data_errors": nvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    "nvlink_replay_errors": nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    "nvlink_recovery_errors": nvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
}
_FIELDS: Final[dict[str, tuple[int, int]]] = {
    **{name: (number, 0) for name, number in _NUMBERS.items()},
    "nvlink_tx_kib": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    "nvlink_rx_kib": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
    "nvlink_first_tx_kib": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0),
    "nvlink_first_rx_kib": (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 0),
}
_SHARES: Final[dict[str, int]] = {
    "graphics_active": nvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm_active": nvml.NVML_GPM_METRIC_SM_UTIL,
    "sm_occupancy": nvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_active": nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active": nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "fp64_active": nvml.NVML_GPM_METRIC_FP64_UTIL,
    "fp32_active": nvml.NVML_GPM_METRIC_FP32_UTIL,
    "fp16_active": nvml.NVML_GPM_METRIC_FP16_UTIL,
    "integer_active": nvml.NVML_GPM_METRIC_INTEGER_UTIL,
    "tensor_dfma_active": nvml.NVML_GPM_METRIC_DFMA_TENSOR_UTIL,
    "tensor_hmma_active": nvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL,
    "tensor_imma_active": nvml.NVML_GPM_METRIC_IMMA_TENSOR_UTIL,
}
"""What GPU instances have, too."""
_PROFILING: Final[dict[str, int]] = {
    **_SHARES,
    "pcie_tx_mib": nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "pcie_rx_mib": nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    "nvlink_tx_mib": nvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
    "nvlink_rx_mib": nvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
}


class Profiling:
    """What the performance monitors counted between two samples of a GPU or of an instance."""

    def __init__(self, get: Callable[[Any], Any], *, metrics: Mapping[str, int]) -> None:
        self._get = get
        self._metrics = metrics
        self._request: Any = None
        self._before: Any = None
        self._spare: Any = None

    def measure(self) -> dict[str, float]:
        """Take a sample, and compare it with the one before; the first has none."""
        if self._spare is None:
            self._spare = attempt(nvml.nvmlGpmSampleAlloc)
        if self._spare is None or attempt(self._get, self._spare) is None:
            return {}
        before, self._before, self._spare = self._before, self._spare, self._before
        return {} if before is None else self._compare(before, self._before)

    def free(self) -> None:
        for sample in (self._before, self._spare):
            if sample is not None:
                attempt(nvml.nvmlGpmSampleFree, sample)

    def _compare(self, before: Any, after: Any) -> dict[str, float]:
        if self._request is None:
            self._request = _request(self._metrics.values())
        self._request.sample1, self._request.sample2 = before, after
        if attempt(nvml.nvmlGpmMetricsGet, self._request) is None:
            return {}
        return {
            name: attribute(metric, "value")
            for name, metric in zip(self._metrics, self._request.metrics, strict=False)
            if attribute(metric, "nvmlReturn") == nvml.NVML_SUCCESS
        }


def _request(metrics: Collection[int]) -> Any:
    """Return a comparison of two samples by these metrics."""
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    for place, metric in zip(request.metrics, metrics, strict=False):
        place.metricId = metric
    return request


class Measuring:
    """Measures one GPU, and its instances while MIG divides it."""

    def __init__(self, gpu: Any) -> None:
        self._gpu = gpu
        self._devices: dict[int, Any] = {}
        """The first MIG device of each GPU instance, by the instance's number."""
        self._supports: bool | None = None
        """Whether the GPU has performance monitors; None: not known yet."""
        self._profiling = Profiling(partial(nvml.nvmlGpmSampleGet, gpu), metrics=_PROFILING)
        self._instances: dict[int, Profiling] = {}

    @property
    def _profiles(self) -> bool:
        if self._supports is None:
            try:
                support = ask(nvml.nvmlGpmQueryDeviceSupport, self._gpu)
            except NvmlError:
                return False  # the next sample asks again
            self._supports = support is not None and bool(support.isSupportedDevice)
        return self._supports

    def sample(self) -> dict[str, int | float]:
        gpu = self._gpu
        found: dict[str, Any] = {
            "sm_clock_mhz": attempt(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": attempt(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_MEM),
            "video_clock_mhz": attempt(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_VIDEO),
            "temperature_c": attempt(nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
            "power_mw": attempt(nvml.nvmlDeviceGetPowerUsage, gpu),
            "power_limit_mw": attempt(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu),
            "power_management_limit_mw": attempt(nvml.nvmlDeviceGetPowerManagementLimit, gpu),
            "performance_state": attempt(nvml.nvmlDeviceGetPerformanceState, gpu),
            "pcie_replays": attempt(nvml.nvmlDeviceGetPcieReplayCounter, gpu),
            "pcie_link_generation": attempt(nvml.nvmlDeviceGetCurrPcieLinkGeneration, gpu),
            "pcie_link_width": attempt(nvml.nvmlDeviceGetCurrPcieLinkWidth, gpu),
            "clock_reasons": _clock_reasons(gpu),
            "vgpu_licensed": _vgpu_licensed(gpu),
            **_utilization(gpu),
            **_memory(gpu),
            **fields(gpu, _FIELDS),
            **(self._profiling.measure() if self._profiles else _pcie(gpu)),
        }
        return {name: value for name, value in found.items() if value is not None}

    def sample_instances(self) -> list[SampledInstance]:
        """Measure the GPU instances; several MIG devices of one share what is measured."""
        try:
            devices = self._devices = _devices_by_instance(self._gpu)
        except NvmlError:
            devices = self._devices  # how the GPU is divided could not be read now
        for gone in self._instances.keys() - devices.keys():
            self._instances.pop(gone).free()
        return [
            SampledInstance(number, {**_memory(device), **self._profile_instance(number)})
            for number, device in devices.items()
        ]

    def _profile_instance(self, number: int) -> dict[str, float]:
        if not self._profiles:
            return {}
        if number not in self._instances:
            get = partial(nvml.nvmlGpmMigSampleGet, self._gpu, number)
            self._instances[number] = Profiling(get, metrics=_SHARES)
        return self._instances[number].measure()


def _devices_by_instance(gpu: Any) -> dict[int, Any]:
    """Return the first MIG device of each GPU instance, by the instance's number; raise NVML's
    errors, because one that is not found is not measured.
    """
    mode = ask(nvml.nvmlDeviceGetMigMode, gpu)
    devices: dict[int, Any] = {}
    if mode is None or not mode[0]:
        return devices
    count: int = ask(nvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
    for index in range(min(count, MAX_MIGS)):
        device = ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index)
        number = None if device is None else ask(nvml.nvmlDeviceGetGpuInstanceId, device)
        if number is not None:
            devices.setdefault(number, device)
    return devices


def _clock_reasons(gpu: Any) -> int | None:
    found = attempt(nvml.nvmlDeviceGetCurrentClocksEventReasons, gpu)
    # Drivers before 535 have the function under its old name alone.
    return attempt(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu) if found is None else found


def _utilization(gpu: Any) -> dict[str, int]:
    rates = attempt(nvml.nvmlDeviceGetUtilizationRates, gpu)
    encoder = attempt(nvml.nvmlDeviceGetEncoderUtilization, gpu)
    decoder = attempt(nvml.nvmlDeviceGetDecoderUtilization, gpu)
    return {
        **({} if rates is None else {"gpu_utilization": rates.gpu}),
        **({} if rates is None else {"memory_utilization": rates.memory}),
        **({} if encoder is None else {"encoder_utilization": encoder[0]}),
        **({} if decoder is None else {"decoder_utilization": decoder[0]}),
    }


def _memory(gpu: Any) -> dict[str, int]:
    found = attempt(nvml.nvmlDeviceGetMemoryInfo, gpu, nvml.nvmlMemory_v2)
    if found is None:  # drivers before 510
        found = attempt(nvml.nvmlDeviceGetMemoryInfo, gpu)
        return {} if found is None else {"memory_free": found.free, "memory_used": found.used}
    return {
        "memory_free": found.free,
        "memory_used": found.used,
        "memory_reserved": found.reserved,
    }


def _pcie(gpu: Any) -> dict[str, int | None]:
    return {
        "pcie_tx_kb": attempt(nvml.nvmlDeviceGetPcieThroughput, gpu, nvml.NVML_PCIE_UTIL_TX_BYTES),
        "pcie_rx_kb": attempt(nvml.nvmlDeviceGetPcieThroughput, gpu, nvml.NVML_PCIE_UTIL_RX_BYTES),
    }


def _vgpu_licensed(gpu: Any) -> int | None:
    found = attempt(nvml.nvmlDeviceGetGridLicensableFeatures, gpu)
    if found is None or not found.isGridLicenseSupported:
        return None if found is None else 0
    count = min(found.licensableFeaturesCount, len(found.gridLicensableFeatures))
    features = (found.gridLicensableFeatures[place] for place in range(count))
    vgpu = nvml.NVML_GRID_LICENSE_FEATURE_CODE_VGPU
    return int(any(each.featureCode == vgpu and each.featureState > 0 for each in features))
