"""Render samples as dcgm-exporter does: its metrics, label order and number format. Pure.

A value that was not measured has no sample, and a metric without samples has no header. A GPU that
MIG divides has a sample for each GPU instance instead of its own, in which values that instances do
not have are the GPU's.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample, InstanceSample
from libs.host.podresources.assignments import PodContainer, PodsByGpu
from services.telemetry.field import Described, Field, NumberField, Value, bus_id
from services.telemetry.fields import XID_ERRORS
from services.telemetry.metric_list import Metric, MetricList
from services.telemetry.xids import xid_name

HostnameLabel: TypeAlias = Literal["Hostname", "hostname"]
HOSTNAME_LABEL: Final[HostnameLabel] = "hostname"
"""The label for the node, as dcgm-exporter writes it since 4.6; 4.5.3-4.8.2 and those before it
wrote the other."""

LATE: Final = "sluice_gpu_sample_late_seconds"


class NodeSamples(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one node's GPUs."""

    node: str
    driver_version: str
    samples: Sequence[GpuSample]
    gpus: Mapping[str, Gpu] = {}
    """By UUID, where they are described."""


class Row(msgspec.Struct, frozen=True):
    """A GPU or a GPU instance, whose samples have the same labels."""

    sample: GpuSample
    labels: str
    """As they are written, less attributes."""
    attributes: Mapping[str, str]
    """Labels that are written last, by name: those of its pod."""


def render(metrics: Sequence[Metric], rows: Sequence[Row]) -> bytes:
    """Return a page: each metric with its header once, and the samples of all rows below it."""
    page: list[bytes] = []
    samples = [row.sample for row in rows]
    labels = [_label_set(row, {}) for row in rows]
    for metric in metrics:
        field = metric.field
        if field.name == XID_ERRORS:
            failed = [row for row in rows if row.sample.xid is not None]
            with_errors = [_label_set(row, _error(row.sample)) for row in failed]
            lines = _lines(field, with_errors, [row.sample for row in failed])
        else:
            lines = _lines(field, labels, samples)
        if lines:
            help_ = metric.help.translate(_HELP_ESCAPES)
            head = f"# HELP {field.name} {help_}\n# TYPE {field.name} {metric.type}\n"
            # Metric by metric: a page of a fleet has tens of megabytes.
            page.append("".join((head, *lines)).encode())
    page.append("".join(_late(rows)).encode())
    return b"".join(page)


def _late(rows: Iterable[Row]) -> Iterator[str]:
    """Mark the rows that repeat an earlier sample; a page on which none does has no such metric."""
    late = [row for row in rows if row.sample.late_s is not None]
    if late:
        yield f"# HELP {LATE} Seconds since the GPU answered: its samples are of that time.\n"
        yield f"# TYPE {LATE} gauge\n"
    for row in late:
        yield f"{LATE}{_label_set(row, {})}{row.sample.late_s:f}\n"


def rows(
    nodes: Iterable[NodeSamples],
    listed: MetricList,
    *,
    hostname_label: HostnameLabel,
    pods: PodsByGpu,
    virtual_gpus: bool = False,
) -> Iterator[Row]:
    """Yield the rows of a page.

    Of several containers of a GPU, the last one names the row; with `virtual_gpus` each has a row.
    """
    for node in nodes:
        for sample in node.samples:
            gpu = node.gpus.get(sample.uuid)
            described = Described(driver_version=node.driver_version, sample=sample, gpu=gpu)
            texts = dict(_texts(described, listed.labels))
            for entity, instance in _entities(sample):
                labels = _labels(entity, instance, {hostname_label: node.node, **texts})
                number = None if instance is None else instance.gpu_instance
                containers = pods.get((sample.uuid, number), ())
                if not virtual_gpus:
                    containers = containers[-1:]
                for container in containers or (None,):
                    yield Row(entity, labels, _attributes(container, is_virtual=virtual_gpus))


def _lines(field: NumberField, labels: Iterable[str], samples: Iterable[GpuSample]) -> list[str]:
    """Return the lines of a metric. A fleet has 250,000 of them, so each costs one expression."""
    name, values = field.name, map(field.of, samples)
    if field.is_float:
        return [
            f"{name}{label_set}{value:f}\n"
            for label_set, value in zip(labels, values, strict=True)
            if value is not None and 0 <= value < _INFINITE
        ]
    return [
        f"{name}{label_set}{value}\n"
        for label_set, value in zip(labels, values, strict=True)
        if value is not None and value >= 0
    ]


def _label_set(row: Row, more: Mapping[str, str]) -> str:
    if not row.attributes and not more:
        return f"{{{row.labels}}} "
    attributes = {**row.attributes, **more}
    return f"{{{row.labels},{_format_labels(dict(sorted(attributes.items())))}}} "


def _error(sample: GpuSample) -> dict[str, str]:
    """Return the labels of an XID, by which dashboards of dcgm-exporter name it."""
    code = sample.xid or 0
    return {"err_code": str(code), "err_msg": xid_name(code)}


_OF_INSTANCES: Final = tuple(
    name for name in InstanceSample.__struct_fields__ if name in GpuSample.__struct_fields__
)


def _entities(sample: GpuSample) -> Iterator[tuple[GpuSample, InstanceSample | None]]:
    """Yield the GPU, or each of its instances with the GPU's values where it has none."""
    if not sample.instances:
        yield sample, None
    for instance in sample.instances:
        own = {name: getattr(instance, name) for name in _OF_INSTANCES}
        yield msgspec.structs.replace(sample, **own), instance


def _texts(described: Described, fields: Iterable[Field]) -> Iterator[tuple[str, str]]:
    """Yield the fields that a list makes labels, with their values; an empty one is no label."""
    for field in fields:
        if isinstance(field, NumberField):
            text = _format_value(field, field.of(described.sample))
        else:
            text = field.of(described)
        if text:
            yield field.name, text


def _format_value(field: NumberField, value: Value) -> str:
    if value is None or not 0 <= value < math.inf:
        return ""
    return f"{value:f}" if field.is_float else f"{value}"


def _labels(sample: GpuSample, instance: InstanceSample | None, more: Mapping[str, str]) -> str:
    """Return the labels of a GPU or of its instance in dcgm-exporter's order."""
    of_instance = (
        {}
        if instance is None
        else {"GPU_I_PROFILE": instance.profile, "GPU_I_ID": str(instance.gpu_instance)}
    )
    minor = sample.index if sample.minor is None else sample.minor
    return _format_labels(
        {
            "gpu": str(sample.index),
            "UUID": sample.uuid,
            "pci_bus_id": bus_id(sample.pci),
            "device": f"nvidia{minor}",
            "modelName": sample.model,
            **of_instance,
            **more,
        }
    )


def _attributes(container: PodContainer | None, *, is_virtual: bool) -> dict[str, str]:
    """Return the labels of a GPU's container; `vgpu` tells those apart that share the GPU."""
    if container is None:
        return {}
    names = {
        "pod": container.pod,
        "namespace": container.namespace,
        "container": container.container,
    }
    return {**names, "vgpu": container.replica} if is_virtual and container.replica else names


_INFINITE: Final = math.inf
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def _format_labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items())
