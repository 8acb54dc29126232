"""The step `gpus`: no GPU is failed that was not failed before the operation. Pure.

docs/states.md#failed-gpus
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.facts import Gpu, PciDevice
from libs.contracts.gpus import GpuIdentity
from libs.contracts.telemetry import GpuSample
from libs.contracts.words import first_sentences
from libs.health.node import MAX_GPUS, Failure, Records, Sweep, failures
from libs.health.record import GpuRecord
from libs.health.rules import Breach
from libs.host.kernel_log import slot_of
from services.validator.node.probe import DESCRIBED

_UNLISTED: Final = Breach("the driver does not have the GPU", "see the kernel log for that address")
_NAMELESS: Final = GpuIdentity()


class GpuCheck(msgspec.Struct, frozen=True, kw_only=True):
    problem: str = ""
    """Why the GPUs hinder a proof and what to do, for people; empty if they do not."""
    found: str = ""
    """How many GPUs work, and which had failed before."""
    working: tuple[Gpu, ...] = ()
    sound: tuple[Gpu, ...] = ()
    """Those of them that had not failed before the operation."""


def check_gpus(
    gpus: Sequence[Gpu],
    samples: Sequence[GpuSample],
    *,
    known: Records,
    devices: Sequence[PciDevice],
    failed_before: Sequence[GpuIdentity],
    said: Mapping[str, str],
) -> GpuCheck:
    """Judge the GPUs that the driver lists.

    `known`: those that it listed earlier in this boot. `devices`: those that the kernel lists.
    `said`: what the kernel log says of GPUs that do not start, by PCI slot.
    """
    addresses = [GpuIdentity(pci=device.address) for device in devices]
    failed = failures(known, Sweep(gpus=gpus, samples=samples))
    failed = [_quoting(each, said) for each in _with_addresses(failed, gpus, addresses)]
    old = [each for each in failed if _is_among(each.gpu, failed_before)]
    new = [each for each in failed if each not in old]
    gone = [each for each in failed if each.is_missing and not _is_among(each.gpu, addresses)]
    hurt = [each.gpu for each in failed]
    working = tuple(gpu for gpu in gpus if not _is_among(gpu.identity, hurt))
    total = max(len(gpus), len(devices)) + len(gone)
    found = f"{total - len(failed)} of {total} GPUs work"
    if old:
        found += f"; failed before this operation: {_text(old)}"
    if not total:
        return GpuCheck(problem="the driver has no GPU: see the kernel log", found=found)
    if new:
        also = f"; {found}" if old else ""
        return GpuCheck(problem=f"failed in this operation: {_text(new)}{also}", found=found)
    if len(failed) == total:
        return GpuCheck(problem=f"no GPU works, so nothing proves the driver: {found}", found=found)
    sound = tuple(gpu for gpu in working if not _is_among(gpu.identity, failed_before))
    return GpuCheck(found=found, working=working, sound=sound)


def listed(gpus: Sequence[Gpu], known: Records) -> Records:
    """Return the GPUs that were listed in this boot."""
    now = [GpuRecord(uuid=gpu.uuid, index=gpu.index, pci=gpu.pci) for gpu in gpus if gpu.uuid]
    uuids = {record.uuid for record in now}
    return tuple([*now, *(record for record in known if record.uuid not in uuids)][:MAX_GPUS])


def _with_addresses(
    failed: Sequence[Failure], gpus: Sequence[Gpu], addresses: Sequence[GpuIdentity]
) -> list[Failure]:
    """Add the GPUs that the driver lacks, and name those that do not say which ones they are.

    A GPU that was lost before the driver was loaded tells neither UUID nor address. It is one of
    those that the kernel lists and no other GPU is, or one that is missing.
    """
    named = [each for each in failed if each.gpu != _NAMELESS]
    nameless = [each for each in failed if each.gpu == _NAMELESS]
    others = [GpuIdentity(pci=gpu.pci) for gpu in gpus] + [each.gpu for each in named]
    free = [each for each in addresses if not _is_among(each, others)]
    found = [replace(each, gpu=address) for each, address in zip(nameless, free, strict=False)]
    missing = sum(each.is_missing for each in named)
    lacking = max(0, len(addresses) - len(gpus))
    unlisted = [Failure(each, _UNLISTED) for each in free[len(nameless) :][:lacking]]
    return [*named, *found, *nameless[len(free) + missing :], *unlisted]


def _quoting(failure: Failure, said: Mapping[str, str]) -> Failure:
    """Add what the kernel log says of a GPU that the driver lacks: nothing else tells why."""
    if failure.breach is not _UNLISTED or not (quote := said.get(slot_of(failure.gpu.pci))):
        return failure
    message = f"{_UNLISTED.message}, and the kernel log says of it: {quote}"
    return replace(failure, breach=replace(_UNLISTED, message=message))


def _is_among(gpu: GpuIdentity, others: Sequence[GpuIdentity]) -> bool:
    return any(gpu.is_same(other) for other in others)


def _text(failed: Sequence[Failure]) -> str:
    texts = (
        f"{each.gpu.describe()} ({each.breach.message}: {each.breach.remedy})" for each in failed
    )
    return first_sentences(texts, DESCRIBED)
