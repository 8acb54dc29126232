"""The geometry of a node's GPUs: what a command asks for, compared with what facts show."""

import hashlib
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from libs.contracts.commands import GpuGeometry
from libs.contracts.facts import Gpu
from libs.contracts.words import excerpt
from libs.policy.findings import Finding, Severity
from libs.policy.mig.profiles import largest_first

NO_DIGEST: Final = "none"
"""The digest of a node where no GPU is in MIG mode."""
DIGEST_LENGTH: Final = 32
"""Hexadecimal digits."""
CONFIG_LABEL: Final = "nvidia.com/mig.config"

_AMPERE: Final = (8, 0)
"""The compute capability of A100, A800 and A30: their MIG mode changes at a reset of the GPU."""
_DRM: Final = "nvidia_drm"


def found_geometry(gpus: Iterable[Gpu]) -> tuple[GpuGeometry, ...]:
    """Return how the GPUs that have MIG are divided, by index."""
    return tuple(
        GpuGeometry(
            uuid=gpu.uuid,
            index=gpu.index,
            mig=gpu.mig_mode,
            profiles=largest_first(tuple(mig.profile for mig in gpu.migs)),
        )
        for gpu in sorted(gpus, key=lambda each: each.index)
        if gpu.mig_capable
    )


def expected_geometry(
    geometry: Iterable[GpuGeometry], gpus: Iterable[Gpu]
) -> tuple[GpuGeometry, ...]:
    """Return how all GPUs are divided once `geometry` is applied: the others keep what they have.

    A GPU that `geometry` names and that is not found remains in the result, so that its digest is
    not that of any geometry found.
    """
    expected = {each.uuid: each for each in found_geometry(gpus)}
    expected |= {each.uuid: each for each in geometry}
    return tuple(sorted(expected.values(), key=lambda each: (each.index, each.uuid)))


def mig_digest(geometry: Iterable[GpuGeometry]) -> str:
    """Return the digest of a geometry, whatever the order of its GPUs and profiles.

    GPUs whose MIG mode is off do not count, so that a node without MIG has the digest `none`.
    """
    divided = sorted((each.uuid, sorted(each.profiles)) for each in geometry if each.mig)
    if not divided:
        return NO_DIGEST
    text = msgspec.json.encode(["sluice.dev/mig/1", divided])
    return hashlib.sha256(text).hexdigest()[:DIGEST_LENGTH]


def is_applied(geometry: Iterable[GpuGeometry], gpus: Iterable[Gpu]) -> bool:
    """Return whether the GPUs are divided so already."""
    by_uuid = {gpu.uuid: gpu for gpu in gpus if gpu.uuid}
    return all(_has(by_uuid.get(wanted.uuid), wanted) for wanted in geometry)


def differences(geometry: Iterable[GpuGeometry], gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """Return for each GPU that is divided otherwise what it has and what is wanted, for people."""
    by_uuid = {gpu.uuid: gpu for gpu in gpus if gpu.uuid}
    return tuple(
        found
        for wanted in geometry
        if (found := _difference(wanted, by_uuid.get(wanted.uuid))) is not None
    )


def describe_geometry(each: GpuGeometry) -> str:
    """Describe how one GPU is divided: `7 x 1g.10gb`, `MIG off`."""
    if not each.mig:
        return "MIG off"
    counts: dict[str, int] = {}
    for name in largest_first(each.profiles):
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "MIG on, undivided"


def remarks(
    geometry: Iterable[GpuGeometry], gpus: Iterable[Gpu], *, modules: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return what people should know before this geometry is applied.

    `modules` are the loaded kernel modules.
    """
    changed = {each.uuid: each.mig for each in geometry}
    waiting = [
        gpu
        for gpu in gpus
        if changed.get(gpu.uuid, gpu.mig_mode) != gpu.mig_mode and gpu.compute_capability == _AMPERE
    ]
    if not waiting:
        return ()
    names = ", ".join(f"{excerpt(gpu.uuid)} ({excerpt(gpu.name)})" for gpu in waiting)
    found = [
        Finding(
            field=CONFIG_LABEL,
            problem=f"changes the MIG mode of {names}, which takes effect at a reset of the GPU;"
            " on this product a reset may concern all GPUs of the node",
            remedy="expect that all pods with GPUs of this node end, and allow the reboot of the"
            " node for the case that the GPUs cannot be reset",
            severity=Severity.WARNING,
        )
    ]
    if _DRM in modules:
        found.append(
            Finding(
                field=CONFIG_LABEL,
                problem=f"needs a reset of GPUs, but the kernel module {_DRM} is loaded and"
                " prevents it",
                remedy="allow the reboot of the node, or configure the driver without this module",
                severity=Severity.WARNING,
            )
        )
    return tuple(found)


def _difference(wanted: GpuGeometry, gpu: Gpu | None) -> str | None:
    where = wanted.uuid or f"GPU {wanted.index}"
    if gpu is None:
        return f"{where} is not found; {describe_geometry(wanted)} is wanted"
    if _has(gpu, wanted):
        return None
    (found,) = found_geometry([msgspec.structs.replace(gpu, mig_capable=True)])
    is_pending = gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_mode
    pending = f" (MIG {'on' if gpu.mig_pending else 'off'} after a reset)" if is_pending else ""
    has = excerpt(describe_geometry(found))
    return f"{where} has {has}{pending}; {describe_geometry(wanted)} is wanted"


def _has(gpu: Gpu | None, wanted: GpuGeometry) -> bool:
    """Return whether the GPU is divided so, also after its next reset."""
    return (
        gpu is not None
        and gpu.mig_mode == wanted.mig
        and gpu.mig_pending in (None, gpu.mig_mode)
        and sorted(mig.profile for mig in gpu.migs) == sorted(wanted.profiles)
    )
