"""The fields of dcgm-exporter's lists, by name.

The names, and the types and help texts of the default list, are those of dcgm-exporter. A field
that NVML cannot give is in `UNAVAILABLE`, with the reason. docs/metrics.md is made from this.
"""

from typing import Final

from services.telemetry.default_fields import DEFAULT_FIELDS
from services.telemetry.field import Field, TextField, bus_id
from services.telemetry.more_fields import MORE_FIELDS

DRIVER_VERSION: Final = "DCGM_FI_DRIVER_VERSION"
XID_ERRORS: Final = "DCGM_FI_DEV_XID_ERRORS"

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
