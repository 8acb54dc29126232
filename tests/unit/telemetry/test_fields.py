"""The fields are those of dcgm-exporter: each that NVML gives exists, others have a reason."""

from pathlib import Path

from services.telemetry.fields import FIELDS, UNAVAILABLE

DOCS = (Path(__file__).parents[3] / "docs/metrics.md").read_text()

LISTED = [
    *("DEV_POWER_VIOLATION", "DEV_THERMAL_VIOLATION", "DEV_SYNC_BOOST_VIOLATION"),
    *("DEV_BOARD_LIMIT_VIOLATION", "DEV_LOW_UTIL_VIOLATION", "DEV_RELIABILITY_VIOLATION"),
    *("DEV_ECC_SBE_VOL_TOTAL", "DEV_ECC_DBE_VOL_TOTAL", "DEV_ECC_SBE_AGG_TOTAL"),
    *("DEV_ECC_DBE_AGG_TOTAL", "DEV_RETIRED_SBE", "DEV_RETIRED_DBE", "DEV_RETIRED_PENDING"),
    *("DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"),
    *("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"),
    *("DEV_NVLINK_BANDWIDTH_L0", "PROF_SM_ACTIVE", "PROF_SM_OCCUPANCY", "PROF_PIPE_FP64_ACTIVE"),
    *("PROF_PIPE_FP32_ACTIVE", "PROF_PIPE_FP16_ACTIVE", "NVML_VERSION", "DEV_BRAND"),
    *("DEV_SERIAL", "DEV_OEM_INFOROM_VER", "DEV_ECC_INFOROM_VER", "DEV_POWER_INFOROM_VER"),
    *("DEV_INFOROM_IMAGE_VER", "DEV_VBIOS_VERSION"),
]
"""The fields of dcgm-exporter's lists beside the default ones, which `test_exposition` compares."""
COUNTED = [
    *("DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_GPU_HEALTH_STATUS"),
    *("DCGM_EXP_P2P_STATUS",),
]
"""What dcgm-exporter itself counts."""
OF_NVML = [
    *("DEV_ROW_REMAP_PENDING", "DEV_CLOCKS_EVENT_REASONS", "PROF_PIPE_INT_ACTIVE"),
    *("PROF_PIPE_TENSOR_DFMA_ACTIVE", "PROF_PIPE_TENSOR_HMMA_ACTIVE"),
    *("PROF_PIPE_TENSOR_IMMA_ACTIVE", "PROF_NVLINK_TX_BYTES", "PROF_NVLINK_RX_BYTES"),
    *("PROF_NVDEC0_ACTIVE", "PROF_NVDEC7_ACTIVE", "PROF_NVJPG0_ACTIVE", "PROF_NVJPG7_ACTIVE"),
    *("PROF_NVOFA0_ACTIVE", "PROF_NVOFA1_ACTIVE", "PROF_NVLINK_L0_TX_BYTES"),
    *("PROF_NVLINK_L17_RX_BYTES",),
]
"""More fields that DCGM takes from NVML."""


def test_no_field_is_missing_without_a_reason() -> None:
    known = FIELDS.keys() | UNAVAILABLE.keys()
    wanted = {*COUNTED, *(f"DCGM_FI_{name}" for name in (*LISTED, *OF_NVML))}
    assert wanted - known == set()


def test_every_field_that_is_missing_is_in_the_documentation_with_its_reason() -> None:
    rows = [line for line in DOCS.splitlines() if line.startswith("| `DCGM_")]
    for name, reason in UNAVAILABLE.items():
        assert any(f"`{name}`" in row and row.endswith(f"| {reason} |") for row in rows), name
    for name in FIELDS:
        assert any(row.startswith(f"| `{name}` |") for row in rows), name


def test_a_default_help_text_needs_no_quotes() -> None:
    """The lines of docs/metrics.md can be copied into a list."""
    assert [field.name for field in FIELDS.values() if "," in field.help] == []
