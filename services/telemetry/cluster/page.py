"""The samples of all GPUs of the fleet as one page, with every field that an agent measures. Pure.

An agent may lie, and the page of all must not suffer: samples whose names cannot be true are left
out, and so are those that a node has twice.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from libs.contracts.gpu_forms import MAX_NAME, PCI, UUID, VERSION, has_form
from libs.contracts.telemetry import Batch, GpuSample, InstanceSample
from libs.health.node import MAX_GPUS
from services.telemetry.exposition import HostnameLabel, NodeSamples, render, rows
from services.telemetry.fields import FIELDS
from services.telemetry.metric_list import DEFAULT_LIST, MetricList, as_described

ALL_FIELDS: Final = MetricList(
    metrics=as_described(FIELDS.values()),
    labels=DEFAULT_LIST.labels,
)
MAX_INSTANCES: Final = 32
"""GPU instances of one GPU; the driver numbers at most 14."""
_MAX_MINOR: Final = 1023
_PROFILE: Final = re.compile(r"[0-9A-Za-z.+-]{0,40}")


class ProperSamples(msgspec.Struct, frozen=True, gc=False):
    """What of a batch may be on the page."""

    samples: tuple[GpuSample, ...] = ()
    driver_version: str = ""
    refused: int = 0
    """Samples, and names of the driver, that cannot be true."""


def proper_samples(batch: Batch) -> ProperSamples:
    """Return what of a batch may be on the page: a lie about one GPU costs that GPU alone."""
    found: dict[str, GpuSample] = {}
    refused = 0
    for sample in batch.gpus:
        if not sample.uuid:
            continue  # a GPU that was never read
        if sample.uuid in found or len(found) == MAX_GPUS or not _is_proper(sample):
            refused += 1
        else:
            found[sample.uuid] = sample
    version = batch.driver_version if has_form(batch.driver_version, VERSION) else ""
    refused += version != batch.driver_version
    return ProperSamples(tuple(found.values()), version, refused)


def fleet_page(nodes: Iterable[NodeSamples], *, hostname_label: HostnameLabel) -> bytes:
    """Return the page of these nodes, without pods: only their own agents ask the kubelet."""
    found = rows(nodes, ALL_FIELDS, hostname_label=hostname_label, pods={})
    return render(ALL_FIELDS.metrics, list(found))


def _is_proper(sample: GpuSample) -> bool:
    """Whether what names a sample can be true; numbers are left out one by one when rendered."""
    return bool(
        UUID.fullmatch(sample.uuid)
        and has_form(sample.pci, PCI)
        and sample.index < MAX_GPUS
        and (sample.minor is None or 0 <= sample.minor <= _MAX_MINOR)
        and len(sample.model) <= MAX_NAME
        and sample.model.isprintable()
        and len(sample.instances) <= MAX_INSTANCES
        and len({each.gpu_instance for each in sample.instances}) == len(sample.instances)
        and all(map(_is_proper_instance, sample.instances))
    )


def _is_proper_instance(instance: InstanceSample) -> bool:
    is_number = instance.gpu_instance < MAX_INSTANCES
    return is_number and _PROFILE.fullmatch(instance.profile) is not None
