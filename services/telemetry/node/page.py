"""A sweep as dcgm-exporter's page: labels in its order, numbers in its spelling.

What was not measured has no sample, and a metric without samples no header. Labels of pods are not
there: which pod has which GPU is not read.
"""

import math
from collections.abc import Iterator
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
    """The whole text."""
    known = {gpu.uuid: gpu for gpu in sweep.gpus}
    common = {hostname_label: node, DRIVER_VERSION: sweep.driver_version}
    rows = [(one, _labels(one, known.get(one.uuid), common)) for one in sweep.samples]
    return "".join(line for line in _lines(rows)).encode()


def bus_id(pci: str) -> str:
    """An address as the driver's library writes it: `00000000:1B:00.0`."""
    domain, colon, rest = pci.partition(":")
    return f"{domain.rjust(8, '0')}{colon}{rest}".upper()


def _lines(rows: list[tuple[GpuSample, str]]) -> Iterator[str]:
    for field in FIELDS:
        found = [
            f"{field.name}{{{labels}{_error(one) if field.name == XID_ERRORS else ''}}} {shown}\n"
            for one, labels in rows
            if (shown := _shown(field.of(one)))
        ]
        if found:
            yield f"# HELP {field.name} {field.help}\n# TYPE {field.name} {field.type}\n"
            yield from found


def _labels(sample: GpuSample, gpu: Gpu | None, common: dict[str, str]) -> str:
    labels = {
        "gpu": str(sample.index),
        "UUID": sample.uuid,
        "pci_bus_id": bus_id(sample.pci),
        "device": f"nvidia{sample.index if gpu is None else gpu.minor}",
        "modelName": "" if gpu is None else gpu.name,
        **common,
    }
    return _pairs(labels)


def _error(sample: GpuSample) -> str:
    code = sample.xid or 0
    return "," + _pairs({"err_code": str(code), "err_msg": xid_name(code)})


def _pairs(labels: dict[str, str]) -> str:
    return ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items())


def _shown(value: Value) -> str:
    if value is None or math.isnan(value):
        return ""
    return f"{value:f}" if isinstance(value, float) else f"{value:d}"
