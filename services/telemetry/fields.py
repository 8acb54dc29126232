"""The fields of dcgm-exporter's lists, by name: one table, of which docs/metrics.md is made.

The names, and the types and help texts of the default list, are those of dcgm-exporter. A field
that NVML cannot give is in `UNAVAILABLE`, with the reason.
"""

from typing import Final

from services.telemetry.field import (
    COUNTER,
    GAUGE,
    Field,
    Row,
    TextField,
    bus_id,
    memory_mib,
    number,
    used_share,
)

DRIVER_VERSION: Final = "DCGM_FI_DRIVER_VERSION"
XID_ERRORS: Final = "DCGM_FI_DEV_XID_ERRORS"

_GPM: Final = "Hopper and later; absent before"
_OF_INSTANCES: Final = "of a MIG instance: its own"
_REMAPS: Final = "Ampere and later"
_PAGES: Final = "before Ampere"
_LINKS: Final = "only with NVLink"
_DIVIDED: Final = "absent while MIG divides the GPU"
_ECC: Final = "absent without ECC"
_VOLATILE: Final = "since the driver was loaded; absent without ECC"
_PCIE_RATE: Final = (
    "The rate of data {} over the PCIe bus - including both protocol headers and data payloads -"
    " in bytes per second."
)


def _share(metric: int) -> tuple[str, str]:
    """Return source and remark of a share that the performance monitors measure."""
    return f"GPM metric {metric} / 100", f"{_GPM}; {_OF_INSTANCES}"


# fmt: off
_DEFAULT: Final[tuple[Row, ...]] = (
    ("DEV_SM_CLOCK", GAUGE, "SM clock frequency (in MHz).",
     "sm_clock_mhz", "nvmlDeviceGetClockInfo(SM)"),
    ("DEV_MEM_CLOCK", GAUGE, "Memory clock frequency (in MHz).",
     "memory_clock_mhz", "nvmlDeviceGetClockInfo(MEM)"),
    ("DEV_MEMORY_TEMP", GAUGE, "Memory temperature (in C).",
     "memory_temperature_c", "field 82", "only with HBM; above 200: absent"),
    ("DEV_GPU_TEMP", GAUGE, "GPU temperature (in C).",
     "temperature_c", "nvmlDeviceGetTemperature(GPU)", "above 200: absent"),
    ("DEV_POWER_USAGE", GAUGE, "Power draw (in W).", "power_w", "nvmlDeviceGetPowerUsage / 1000"),
    ("DEV_TOTAL_ENERGY_CONSUMPTION", COUNTER, "Total energy consumption since boot (in mJ).",
     "energy_mj", "field 83", "counted by the driver since it was loaded"),
    ("DEV_PCIE_REPLAY_COUNTER", COUNTER, "Total number of PCIe retries.",
     "pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
    ("DEV_GPU_UTIL", GAUGE, "GPU utilization (in %).",
     "gpu_utilization", "nvmlDeviceGetUtilizationRates.gpu", _DIVIDED),
    ("DEV_MEM_COPY_UTIL", GAUGE, "Memory utilization (in %).",
     "memory_utilization", "nvmlDeviceGetUtilizationRates.memory", _DIVIDED),
    ("DEV_ENC_UTIL", GAUGE, "Encoder utilization (in %).",
     "encoder_utilization", "nvmlDeviceGetEncoderUtilization", _DIVIDED),
    ("DEV_DEC_UTIL", GAUGE, "Decoder utilization (in %).",
     "decoder_utilization", "nvmlDeviceGetDecoderUtilization", _DIVIDED),
    ("DEV_XID_ERRORS", GAUGE, "Value of the last XID error encountered.",
     "xid", "event set of NVML, and the kernel log",
     "absent until the first XID; with the labels `err_code` and `err_msg`"),
    ("DEV_FB_FREE", GAUGE, "Framebuffer memory free (in MiB).",
     "framebuffer_free_mib", "nvmlDeviceGetMemoryInfo_v2.free / 2^20", _OF_INSTANCES),
    ("DEV_FB_USED", GAUGE, "Framebuffer memory used (in MiB).",
     "framebuffer_used_mib", "nvmlDeviceGetMemoryInfo_v2.used / 2^20", _OF_INSTANCES),
    ("DEV_FB_RESERVED", GAUGE, "Framebuffer memory reserved (in MiB).",
     "framebuffer_reserved_mib", "nvmlDeviceGetMemoryInfo_v2.reserved / 2^20",
     f"{_OF_INSTANCES}; absent with drivers before 510"),
    ("DEV_NVLINK_BANDWIDTH_TOTAL", COUNTER,
     "Total number of NVLink bandwidth counters for all lanes.",
     "nvlink_mb_per_s", "field 138 + 139, all links",
     "a rate, in thousands of KiB per second, which dcgm-exporter declares a counter"),
    ("DEV_VGPU_LICENSE_STATUS", GAUGE, "vGPU License status",
     "vgpu_licensed", "nvmlDeviceGetGridLicensableFeatures_v4"),
    ("DEV_UNCORRECTABLE_REMAPPED_ROWS", COUNTER, "Number of remapped rows for uncorrectable errors",
     "remapped_uncorrectable", "field 143", _REMAPS),
    ("DEV_CORRECTABLE_REMAPPED_ROWS", COUNTER, "Number of remapped rows for correctable errors",
     "remapped_correctable", "field 142", _REMAPS),
    ("DEV_ROW_REMAP_FAILURE", GAUGE, "Whether remapping of rows has failed",
     "remap_failure", "field 145", _REMAPS),
    ("PROF_GR_ENGINE_ACTIVE", GAUGE, "Ratio of time the graphics engine is active.",
     "graphics_active", *_share(1)),
    ("PROF_PIPE_TENSOR_ACTIVE", GAUGE, "Ratio of cycles the tensor (HMMA) pipe is active.",
     "tensor_active", *_share(5)),
    ("PROF_DRAM_ACTIVE", GAUGE,
     "Ratio of cycles the device memory interface is active sending or receiving data.",
     "dram_active", *_share(10)),
    ("PROF_PCIE_TX_BYTES", GAUGE, _PCIE_RATE.format("transmitted"),
     "pcie_tx_bytes_per_s", "GPM metric 20 x 2^20; before Hopper nvmlDeviceGetPcieThroughput(TX)"),
    ("PROF_PCIE_RX_BYTES", GAUGE, _PCIE_RATE.format("received"),
     "pcie_rx_bytes_per_s", "GPM metric 21 x 2^20; before Hopper nvmlDeviceGetPcieThroughput(RX)"),
)
_MORE: Final[tuple[Row, ...]] = (
    ("DEV_VIDEO_CLOCK", GAUGE, "Video encoder/decoder clock frequency (in MHz).",
     "video_clock_mhz", "nvmlDeviceGetClockInfo(VIDEO)"),
    ("DEV_CLOCKS_EVENT_REASONS", GAUGE, "Reasons for reduced clocks as a bit mask.",
     "clock_reasons", "nvmlDeviceGetCurrentClocksEventReasons"),
    ("DEV_CLOCK_THROTTLE_REASONS", GAUGE, "Reasons for reduced clocks as a bit mask.",
     "clock_reasons", "nvmlDeviceGetCurrentClocksEventReasons",
     "the older name of `DCGM_FI_DEV_CLOCKS_EVENT_REASONS`"),
    ("DEV_PSTATE", GAUGE, "Performance state from 0 (fastest) to 15.",
     "performance_state", "nvmlDeviceGetPerformanceState",
     "absent while the driver does not know it"),
    ("DEV_ENFORCED_POWER_LIMIT", GAUGE, "Power limit that the driver enforces (in W).",
     "power_limit_w", "nvmlDeviceGetEnforcedPowerLimit / 1000"),
    ("DEV_POWER_MGMT_LIMIT", GAUGE, "Power limit that is set (in W).",
     "power_management_limit_w", "nvmlDeviceGetPowerManagementLimit / 1000"),
    ("DEV_PCIE_LINK_GEN", GAUGE, "Current generation of the PCIe link.",
     "pcie_link_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
    ("DEV_PCIE_LINK_WIDTH", GAUGE, "Current width of the PCIe link.",
     "pcie_link_width", "nvmlDeviceGetCurrPcieLinkWidth"),
    ("DEV_FB_TOTAL", GAUGE, "Framebuffer memory in total (in MiB).",
     memory_mib, "nvmlDeviceGetMemoryInfo_v2", _OF_INSTANCES),
    ("DEV_FB_USED_PERCENT", GAUGE, "Ratio of the framebuffer memory that is used (0 to 1).",
     used_share, "nvmlDeviceGetMemoryInfo_v2", f"used / (used + free); {_OF_INSTANCES}"),
    ("DEV_POWER_VIOLATION", COUNTER, "Throttling duration due to power constraints (in ns).",
     "power_violation_ns", "field NVML_FI_DEV_PERF_POLICY_POWER"),
    ("DEV_THERMAL_VIOLATION", COUNTER, "Throttling duration due to thermal constraints (in ns).",
     "thermal_violation_ns", "field NVML_FI_DEV_PERF_POLICY_THERMAL"),
    ("DEV_SYNC_BOOST_VIOLATION", COUNTER,
     "Throttling duration due to sync-boost constraints (in ns).",
     "sync_boost_violation_ns", "field NVML_FI_DEV_PERF_POLICY_SYNC_BOOST"),
    ("DEV_BOARD_LIMIT_VIOLATION", COUNTER,
     "Throttling duration due to board limit constraints (in ns).",
     "board_limit_violation_ns", "field NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT"),
    ("DEV_LOW_UTIL_VIOLATION", COUNTER, "Throttling duration due to low utilization (in ns).",
     "low_utilization_violation_ns", "field NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION"),
    ("DEV_RELIABILITY_VIOLATION", COUNTER,
     "Throttling duration due to reliability constraints (in ns).",
     "reliability_violation_ns", "field NVML_FI_DEV_PERF_POLICY_RELIABILITY"),
    ("DEV_ECC_SBE_VOL_TOTAL", COUNTER, "Total number of single-bit volatile ECC errors.",
     "ecc_volatile_corrected", "field NVML_FI_DEV_ECC_SBE_VOL_TOTAL", _VOLATILE),
    ("DEV_ECC_DBE_VOL_TOTAL", COUNTER, "Total number of double-bit volatile ECC errors.",
     "ecc_volatile_uncorrected", "field NVML_FI_DEV_ECC_DBE_VOL_TOTAL", _VOLATILE),
    ("DEV_ECC_SBE_AGG_TOTAL", COUNTER, "Total number of single-bit persistent ECC errors.",
     "ecc_aggregate_corrected", "field NVML_FI_DEV_ECC_SBE_AGG_TOTAL", _ECC),
    ("DEV_ECC_DBE_AGG_TOTAL", COUNTER, "Total number of double-bit persistent ECC errors.",
     "ecc_aggregate_uncorrected", "field NVML_FI_DEV_ECC_DBE_AGG_TOTAL", _ECC),
    ("DEV_RETIRED_SBE", COUNTER, "Total number of retired pages due to single-bit errors.",
     "retired_corrected", "field NVML_FI_DEV_RETIRED_SBE", _PAGES),
    ("DEV_RETIRED_DBE", COUNTER, "Total number of retired pages due to double-bit errors.",
     "retired_uncorrected", "field NVML_FI_DEV_RETIRED_DBE", _PAGES),
    ("DEV_RETIRED_PENDING", COUNTER, "Total number of pages pending retirement.",
     "retired_pending", "field NVML_FI_DEV_RETIRED_PENDING", _PAGES),
    ("DEV_ROW_REMAP_PENDING", GAUGE, "Whether a row waits to be remapped at the next reset.",
     "remap_pending", "field 144", _REMAPS),
    ("DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", COUNTER,
     "Total number of NVLink flow-control CRC errors.",
     "nvlink_flit_errors", "field NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", _LINKS),
    ("DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", COUNTER, "Total number of NVLink data CRC errors.",
     "nvlink_data_errors", "field NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", _LINKS),
    ("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", COUNTER, "Total number of NVLink retries.",
     "nvlink_replay_errors", "field NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", _LINKS),
    ("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", COUNTER, "Total number of NVLink recovery errors.",
     "nvlink_recovery_errors", "field NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", _LINKS),
    ("DEV_NVLINK_BANDWIDTH_L0", COUNTER,
     "The number of bytes of active NVLink rx or tx data including both header and payload.",
     "nvlink_first_mb_per_s", "field 138 + 139, link 0",
     "a rate, as `DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL`"),
    ("PROF_SM_ACTIVE", GAUGE, "The ratio of cycles an SM has at least 1 warp assigned.",
     "sm_active", *_share(2)),
    ("PROF_SM_OCCUPANCY", GAUGE, "The ratio of number of warps resident on an SM.",
     "sm_occupancy", *_share(3)),
    ("PROF_PIPE_FP64_ACTIVE", GAUGE, "Ratio of cycles the fp64 pipes are active.",
     "fp64_active", *_share(11)),
    ("PROF_PIPE_FP32_ACTIVE", GAUGE, "Ratio of cycles the fp32 pipes are active.",
     "fp32_active", *_share(12)),
    ("PROF_PIPE_FP16_ACTIVE", GAUGE, "Ratio of cycles the fp16 pipes are active.",
     "fp16_active", *_share(13)),
    ("PROF_PIPE_INT_ACTIVE", GAUGE, "Ratio of cycles the integer pipe is active.",
     "integer_active", *_share(4)),
    ("PROF_PIPE_TENSOR_DFMA_ACTIVE", GAUGE, "Ratio of cycles the tensor (DFMA) pipe is active.",
     "tensor_dfma_active", *_share(6)),
    ("PROF_PIPE_TENSOR_HMMA_ACTIVE", GAUGE, "Ratio of cycles the tensor (HMMA) pipe is active.",
     "tensor_hmma_active", *_share(7)),
    ("PROF_PIPE_TENSOR_IMMA_ACTIVE", GAUGE, "Ratio of cycles the tensor (IMMA) pipe is active.",
     "tensor_imma_active", *_share(9)),
    ("PROF_NVLINK_TX_BYTES", GAUGE, "The rate of data transmitted over NVLink in bytes per second.",
     "nvlink_tx_bytes_per_s", "GPM metric 61 x 2^20", f"{_GPM}; {_LINKS}"),
    ("PROF_NVLINK_RX_BYTES", GAUGE, "The rate of data received over NVLink in bytes per second.",
     "nvlink_rx_bytes_per_s", "GPM metric 60 x 2^20", f"{_GPM}; {_LINKS}"),
)
# fmt: on

DEFAULT_FIELDS: Final = tuple(map(number, _DEFAULT))
"""dcgm-exporter's default list in its order, less the driver's version, which is a label."""
MORE_FIELDS: Final = tuple(map(number, _MORE))
"""Fields for custom lists, beyond the default one."""

TEXTS: Final = (
    TextField(
        name=DRIVER_VERSION,
        help="Driver Version",
        of=lambda described: described.driver_version,
        source="nvmlSystemGetDriverVersion",
    ),
    TextField(
        name="DCGM_FI_DEV_NAME",
        help="Name of the GPU.",
        of=lambda described: described.sample.model,
        source="nvmlDeviceGetName",
    ),
    TextField(
        name="DCGM_FI_DEV_UUID",
        help="UUID of the GPU.",
        of=lambda described: described.sample.uuid,
        source="nvmlDeviceGetUUID",
    ),
    TextField(
        name="DCGM_FI_DEV_PCI_BUSID",
        help="PCI address of the GPU.",
        of=lambda described: bus_id(described.sample.pci),
        source="nvmlDeviceGetPciInfo",
    ),
    TextField(
        name="DCGM_FI_DEV_SERIAL",
        help="Serial number of the GPU.",
        of=lambda described: "" if described.gpu is None else described.gpu.serial,
        source="nvmlDeviceGetSerial",
        remark="on a node's own page; the page of the fleet does not have it",
    ),
)
"""Known of a GPU, and attached to each of its samples as a label if a list names them."""

FIELDS: Final[dict[str, Field]] = {
    field.name: field for field in (*DEFAULT_FIELDS, *MORE_FIELDS, *TEXTS)
}

_ENGINE: Final = "there is a value per engine or link, which the agent does not measure"
_NOT_READ: Final = "it is a text that the agent does not read"

UNAVAILABLE: Final[dict[str, str]] = {
    "DCGM_EXP_CLOCK_EVENTS_COUNT": "it counts within a window of time: list"
    " DCGM_FI_DEV_CLOCKS_EVENT_REASONS, and count in the query",
    "DCGM_EXP_XID_ERRORS_COUNT": "it counts within a window of time: the agent's own page has the"
    " counter sluice_telemetry_xid_errors_total",
    "DCGM_EXP_GPU_HEALTH_STATUS": "it is the verdict of DCGM's own checks: docs/health.md describes"
    " those of the agent, and where they are shown",
    "DCGM_EXP_P2P_STATUS": "the agent does not read which GPUs reach each other",
    **{
        f"DCGM_FI_{name}": _NOT_READ
        for name in (
            "NVML_VERSION",
            "DEV_BRAND",
            "DEV_VBIOS_VERSION",
            "DEV_OEM_INFOROM_VER",
            "DEV_ECC_INFOROM_VER",
            "DEV_POWER_INFOROM_VER",
            "DEV_INFOROM_IMAGE_VER",
        )
    },
    **{f"DCGM_FI_PROF_NVDEC{number}_ACTIVE": _ENGINE for number in range(8)},
    **{f"DCGM_FI_PROF_NVJPG{number}_ACTIVE": _ENGINE for number in range(8)},
    **{f"DCGM_FI_PROF_NVOFA{number}_ACTIVE": _ENGINE for number in range(2)},
    **{
        f"DCGM_FI_PROF_NVLINK_L{number}_{way}_BYTES": _ENGINE
        for number in range(18)
        for way in ("TX", "RX")
    },
}
"""Fields of dcgm-exporter's lists, and of NVML's profiling, that no list can have, and why."""
