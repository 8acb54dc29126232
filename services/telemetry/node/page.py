"""Renders a sweep as dcgm-exporter does: the same label order and number format.

A value that was not measured has no sample, and a metric without samples has no header. There are
no pod labels.
"""

import math
from typing import Final, Literal

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from services.telemetry.node.fields import DRIVER_VERSION, FIELDS, XID_ERRORS, Value
from services.telemetry.node.sampler import Sweep
from services.telemetry.node.xids import xid_name

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def exporter_page(
    sweep: Sweep, *, node: str, hostname_label: Literal["Hostname", "hostname"]
) -> bytes:
    gpus = {gpu.uuid: gpu for gpu in sweep.gpus}
    common = {hostname_label: node, DRIVER_VERSION: sweep.driver_version}
    rows = [(sample, _labels(sample, gpus.get(sample.uuid), common)) for sample in sweep.samples]
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


def _labels(sample: GpuSample, gpu: Gpu | None, common: dict[str, str]) -> str:
    return _format_labels(
        {
            "gpu": str(sample.index),
            "UUID": sample.uuid,
            "pci_bus_id": bus_id(sample.pci),
            "device": f"nvidia{sample.index if gpu is None else gpu.minor}",
            "modelName": "" if gpu is None else gpu.name,
            **common,
        }
    )


def _error_labels(sample: GpuSample) -> str:
    code = sample.xid or 0
    return "," + _format_labels({"err_code": str(code), "err_msg": xid_name(code)})


def _format_labels(labels: dict[str, str]) -> str:
    return ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items())


def _format_value(value: Value) -> str:
    if value is None or math.isnan(value):
        return ""
    return f"{value:f}" if isinstance(value, float) else f"{value:d}"
