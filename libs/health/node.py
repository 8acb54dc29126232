"""The health of all GPUs of a node, sweep by sweep."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.gpus import GpuIdentity, GpuProblem
from libs.contracts.health import Health, HealthState
from libs.contracts.telemetry import GpuSample
from libs.health.record import GpuRecord, Moment, after_reading, verdict
from libs.health.rules import CONDITIONS, Breach, Reading

MAX_GPUS: Final = 128
"""The most GPUs of which something is kept, with those that are missing."""

Records = tuple[GpuRecord, ...]


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep of a node's GPUs found."""

    gpus: Sequence[Gpu] | None = None
    """None if NVML could not be used, or the agent has released the GPUs."""
    samples: Sequence[GpuSample] = ()
    problem: GpuProblem | None = None
    """Why NVML could not be used."""
    xids: Mapping[str, Sequence[int]] = {}
    """By UUID."""
    switch_error: tuple[str, int] | None = None
    """The PCI slot and the SXid of the last fatal error of an NVSwitch; it concerns all GPUs."""
    reloaded: bool = False
    """The driver was loaded anew since the last sweep."""


class Failure(msgspec.Struct, frozen=True):
    """A GPU that one sweep shows as failed."""

    gpu: GpuIdentity
    breach: Breach
    """Of the first rule that it breaks."""
    is_missing: bool = False
    """The driver lists it no more."""


def after_sweep(records: Records, sweep: Sweep, at: Moment) -> Records:
    """Return the records after a sweep."""
    reloaded = sweep.reloaded or sweep.problem is GpuProblem.DRIVER_NOT_LOADED
    return tuple(
        after_reading(
            record,
            reading,
            xids=sweep.xids.get(record.uuid, ()) if record.uuid else (),
            switch_error=sweep.switch_error,
            at=at,
            reloaded=reloaded,
        )
        for record, reading in _readings(records, sweep)
    )


def with_xids_of(records: Records, others: Records) -> Records:
    """Return the records with the XIDs that others have of the same GPUs."""
    left = {other.uuid: other for other in others if other.uuid and other.xids}
    found = [
        record
        if (other := left.pop(record.uuid, None)) is None
        else replace(record, xids={**other.xids, **record.xids})
        for record in records
    ]
    return (*found, *left.values())[:MAX_GPUS]


def node_health(records: Records) -> Health:
    """Return the verdict on all GPUs, by index."""
    gpus = map(verdict, records)
    return Health(gpus=tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))))


def failures(known: Records, sweep: Sweep) -> tuple[Failure, ...]:
    """Return the GPUs that one sweep shows as failed, by index; those that are missing come last.

    The rules are the same, without hysteresis and without XIDs: a sweep alone has neither.
    """
    found = [
        Failure(record.identity, breach, reading.is_missing)
        for record, reading in _readings(known, sweep)
        if (breach := _breach(reading)) is not None
    ]
    return tuple(found)


def _breach(reading: Reading) -> Breach | None:
    """Return the first rule that a reading breaks so that the GPU has failed."""
    for condition in CONDITIONS:
        if condition.state is HealthState.FAILED:
            breach = condition.check(reading)
            if isinstance(breach, Breach):
                return breach
    return None


def _readings(records: Records, sweep: Sweep) -> list[tuple[GpuRecord, Reading]]:
    """Return each GPU's record with what the sweep says of it, also of those that are missing."""
    if sweep.gpus is None:
        return [(record, Reading(problem=sweep.problem)) for record in records]
    samples = {sample.index: sample for sample in sweep.samples}
    left = list(records)
    listed = {gpu.uuid for gpu in sweep.gpus if gpu.uuid}
    found: list[tuple[GpuRecord, Reading]] = []
    for gpu in sweep.gpus:
        record = _record_of(gpu, left, listed)
        if record is None:
            record = GpuRecord(uuid=gpu.uuid, index=gpu.index, pci=gpu.pci)
        else:
            left.remove(record)
        sample = samples.get(gpu.index)
        if sample is not None and sample.uuid != gpu.uuid:
            sample = None
        named = replace(
            record, uuid=gpu.uuid or record.uuid, index=gpu.index, pci=gpu.pci or record.pci
        )
        found.append((named, Reading(gpu=gpu, sample=sample)))
    found += [(record, Reading(is_missing=True)) for record in left if record.uuid]
    return found[:MAX_GPUS]


def _record_of(gpu: Gpu, records: Sequence[GpuRecord], listed: set[str]) -> GpuRecord | None:
    """Return the record of a GPU; one whose UUID was not known is found by its index."""
    for record in records:
        if gpu.uuid and record.uuid == gpu.uuid:
            return record
    for record in records:
        is_unnamed = not record.uuid or (not gpu.uuid and record.uuid not in listed)
        if is_unnamed and record.index == gpu.index:
            return record
    return None
