"""dcgm-exporter's default list in its order, less the driver's version, which is a label."""

from typing import Final

from services.telemetry.field import OF_INSTANCES, REMAPS, field, number, profiled

_PCIE_RATE: Final = (
    "The rate of data {} over the PCIe bus - including both protocol headers and data payloads -"
    " in bytes per second."
)

DEFAULT_FIELDS: Final = (
    number(
        "DEV_SM_CLOCK",
        "gauge",
        "SM clock frequency (in MHz).",
        "sm_clock_mhz",
        "nvmlDeviceGetClockInfo(SM)",
    ),
    number(
        "DEV_MEM_CLOCK",
        "gauge",
        "Memory clock frequency (in MHz).",
        "memory_clock_mhz",
        "nvmlDeviceGetClockInfo(MEM)",
    ),
    number(
        "DEV_MEMORY_TEMP",
        "gauge",
        "Memory temperature (in C).",
        "memory_temperature_c",
        field(82),
        remark="only with HBM; above 200: absent",
    ),
    number(
        "DEV_GPU_TEMP",
        "gauge",
        "GPU temperature (in C).",
        "temperature_c",
        "nvmlDeviceGetTemperature(GPU)",
        remark="above 200: absent",
    ),
    number(
        "DEV_POWER_USAGE",
        "gauge",
        "Power draw (in W).",
        "power_w",
        "nvmlDeviceGetPowerUsage / 1000",
    ),
    number(
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
        "energy_mj",
        field(83),
        remark="counted by the driver since it was loaded",
    ),
    number(
        "DEV_PCIE_REPLAY_COUNTER",
        "counter",
        "Total number of PCIe retries.",
        "pcie_replays",
        "nvmlDeviceGetPcieReplayCounter",
    ),
    number(
        "DEV_GPU_UTIL",
        "gauge",
        "GPU utilization (in %).",
        "gpu_utilization",
        "nvmlDeviceGetUtilizationRates.gpu",
        remark="absent while MIG divides the GPU",
    ),
    number(
        "DEV_MEM_COPY_UTIL",
        "gauge",
        "Memory utilization (in %).",
        "memory_utilization",
        "nvmlDeviceGetUtilizationRates.memory",
        remark="absent while MIG divides the GPU",
    ),
    number(
        "DEV_ENC_UTIL",
        "gauge",
        "Encoder utilization (in %).",
        "encoder_utilization",
        "nvmlDeviceGetEncoderUtilization",
        remark="absent while MIG divides the GPU",
    ),
    number(
        "DEV_DEC_UTIL",
        "gauge",
        "Decoder utilization (in %).",
        "decoder_utilization",
        "nvmlDeviceGetDecoderUtilization",
        remark="absent while MIG divides the GPU",
    ),
    number(
        "DEV_XID_ERRORS",
        "gauge",
        "Value of the last XID error encountered.",
        "xid",
        "event set of NVML, and the kernel log",
        remark="absent until the first XID; with the labels `err_code` and `err_msg`",
    ),
    number(
        "DEV_FB_FREE",
        "gauge",
        "Framebuffer memory free (in MiB).",
        "framebuffer_free_mib",
        "nvmlDeviceGetMemoryInfo_v2.free / 2^20",
        remark=OF_INSTANCES,
    ),
    number(
        "DEV_FB_USED",
        "gauge",
        "Framebuffer memory used (in MiB).",
        "framebuffer_used_mib",
        "nvmlDeviceGetMemoryInfo_v2.used / 2^20",
        remark=OF_INSTANCES,
    ),
    number(
        "DEV_FB_RESERVED",
        "gauge",
        "Framebuffer memory reserved (in MiB).",
        "framebuffer_reserved_mib",
        "nvmlDeviceGetMemoryInfo_v2.reserved / 2^20",
        remark=f"{OF_INSTANCES}; absent with drivers before 510",
    ),
    number(
        "DEV_NVLINK_BANDWIDTH_TOTAL",
        "counter",
        "Total number of NVLink bandwidth counters for all lanes.",
        "nvlink_mb_per_s",
        f"{field(138, 139)}, all links",
        remark="a rate, in thousands of KiB per second, which dcgm-exporter declares a counter",
    ),
    number(
        "DEV_VGPU_LICENSE_STATUS",
        "gauge",
        "vGPU License status",
        "vgpu_licensed",
        "nvmlDeviceGetGridLicensableFeatures_v4",
    ),
    number(
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for uncorrectable errors",
        "remapped_uncorrectable",
        field(143),
        remark=REMAPS,
    ),
    number(
        "DEV_CORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for correctable errors",
        "remapped_correctable",
        field(142),
        remark=REMAPS,
    ),
    number(
        "DEV_ROW_REMAP_FAILURE",
        "gauge",
        "Whether remapping of rows has failed",
        "remap_failure",
        field(145),
        remark=REMAPS,
    ),
    profiled(
        "GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", "graphics_active", gpm=1
    ),
    profiled(
        "PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        "tensor_active",
        gpm=5,
    ),
    profiled(
        "DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        "dram_active",
        gpm=10,
    ),
    number(
        "PROF_PCIE_TX_BYTES",
        "gauge",
        _PCIE_RATE.format("transmitted"),
        "pcie_tx_bytes_per_s",
        "GPM metric 20 x 2^20; before Hopper nvmlDeviceGetPcieThroughput(TX)",
    ),
    number(
        "PROF_PCIE_RX_BYTES",
        "gauge",
        _PCIE_RATE.format("received"),
        "pcie_rx_bytes_per_s",
        "GPM metric 21 x 2^20; before Hopper nvmlDeviceGetPcieThroughput(RX)",
    ),
)
