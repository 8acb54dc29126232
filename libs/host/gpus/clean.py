"""From what NVML returned to what a message may contain. Pure, and in NVML's process alone.

A value that cannot be true is left out, and a GPU without a proper identity is refused; both are
complained about. A raw value is a `dict` of what was read, by name: what the driver does not have
is None or absent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from libs.contracts import gpu_forms as forms
from libs.contracts.facts import Gpu, Mig
from libs.contracts.gpu_forms import Complaints
from libs.contracts.gpus import FabricState, GpuProblem, RecoveryAction
from libs.host.gpus.division import GpuInstance, InstanceProfile
from libs.host.gpus.mig import instance_profile_name, profile_name

MIB: Final = 1 << 20
_MOST_LINKS: Final = 64
_MOST_SLICES: Final = 64
"""The most slices of a GPU, of computing or memory; there are 8 at most today."""

_FABRIC: Final = (
    FabricState.NOT_SUPPORTED,
    FabricState.NOT_STARTED,
    FabricState.IN_PROGRESS,
    FabricState.COMPLETED,
)
"""The states of a registration with the fabric manager, in the order of NVML's numbers."""
_RECOVERY: Final = (
    RecoveryAction.NONE,
    RecoveryAction.GPU_RESET,
    RecoveryAction.NODE_REBOOT,
    RecoveryAction.DRAIN_P2P,
    RecoveryAction.DRAIN_AND_RESET,
    RecoveryAction.RECOVER_IMEX_DOMAIN,
    RecoveryAction.BUS_RESET,
    RecoveryAction.SYSTEM_REBOOT,
)
"""What a driver can ask for, in the order of NVML's numbers; a newer driver may have more."""
_COUNTS: Final = tuple(
    name for name in Mig.__struct_fields__ if name not in ("uuid", "profile", "number")
)
"""The values of a MIG device that are numbers, and 0 where they are not known."""

Raw = Mapping[str, Any]


def driver_version(value: bytes, complaints: Complaints) -> str:
    return complaints.word("driver version", value, forms.VERSION)


def cuda_version(value: int, complaints: Complaints) -> str:
    """Return the newest CUDA that the driver supports, `13.1`; empty if the driver lacks it."""
    number = complaints.integer("CUDA version", value, high=1_000_000)
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def link_ends(raw: Sequence[bytes], complaints: Complaints) -> tuple[str, ...]:
    """Return the PCI addresses at the other ends of links, without those that are malformed."""
    words = (complaints.word("NVLink", each, forms.PCI) for each in raw[:_MOST_LINKS])
    return tuple(word for word in words if word)


def gpu(index: int, raw: Raw, complaints: Complaints) -> Gpu:
    """Describe a GPU; one whose UUID is malformed has none, and a problem."""
    uuid = complaints.word("uuid", raw.get("uuid"), forms.UUID)
    memory = complaints.integer("memory", raw.get("memory"))
    mode, fabric, links = raw.get("mig"), raw.get("fabric"), raw.get("nvlinks") or ()
    capability = [
        complaints.integer("compute capability", number, high=999) or 0
        for number in raw.get("compute_capability") or (0, 0)
    ]
    return Gpu(
        uuid=uuid,
        index=index,
        minor=_or(complaints.integer("minor", raw.get("minor")), -1),
        pci=complaints.word("pci", raw.get("pci"), forms.PCI),
        name=complaints.text("name", raw.get("name")),
        serial=complaints.text("serial", raw.get("serial")),
        memory_mib=_or(memory, 0) // MIB,
        compute_capability=(capability[0], capability[1]),
        mig_capable=mode is not None,
        mig_mode=mode is not None and mode[0] == 1,
        mig_pending=None if mode is None else mode[1] == 1,
        migs=_migs(raw.get("migs") or (), memory, complaints),
        fabric="" if fabric is None else _fabric_name(*fabric),
        fabric_state=None if fabric is None else _fabric_state(fabric, complaints),
        nvlinks=len(links),
        nvlinks_down=tuple(number for number, state in enumerate(links) if state != 1),
        recovery=_recovery(raw.get("recovery"), complaints),
        problem=None if uuid else GpuProblem.UNIDENTIFIED,
    )


def instance(
    raw: Raw, profiles: Mapping[int, InstanceProfile], complaints: Complaints
) -> GpuInstance:
    """Describe an instance; one without a proper place has no profile, so that it cannot stay."""
    profile = profiles.get(raw["profile"])
    start = complaints.integer("place", raw["start"], high=_MOST_SLICES)
    size = complaints.integer("place", raw["size"], high=_MOST_SLICES)
    is_proper = profile is not None and start in profile.starts and size == profile.size
    return GpuInstance(
        id=raw["id"],
        profile=profile.name if profile is not None and is_proper else "",
        start=_or(start, 0),
        size=_or(size, 0),
        compute=tuple(sorted(raw["compute"], reverse=True)),
    )


def instance_profile(
    raw: Raw, memory: int | None, complaints: Complaints
) -> InstanceProfile | None:
    """Describe a kind of GPU instance; one without a proper name or size is None."""
    slices = complaints.integer("profile", raw["slices"], low=1, high=_MOST_SLICES)
    mib = complaints.integer("profile", raw["memory_mib"], low=1)
    sizes = {size for _, size in raw["placements"] if 0 < size <= _MOST_SLICES}
    starts = {start for start, _ in raw["placements"] if 0 <= start < _MOST_SLICES}
    if slices is None or mib is None or memory is None or len(sizes) != 1:
        return None
    return InstanceProfile(
        name=instance_profile_name(raw["number"], slices, mib, gpu_memory=memory),
        id=raw["id"],
        slices=slices,
        size=sizes.pop(),
        starts=tuple(sorted(starts)),
        most=_or(complaints.integer("profile", raw["most"], high=_MOST_SLICES), 0),
    )


def distinct(
    gpus: Sequence[Gpu], known: Mapping[int, Gpu], complaints: Mapping[int, Complaints]
) -> tuple[Gpu, ...]:
    """Refuse the GPUs that have another's UUID, or another one than before.

    `known` are the GPUs by index as they were first described under this driver.
    """
    counts: dict[str, int] = {}
    for each in gpus:
        counts[each.uuid] = counts.get(each.uuid, 0) + 1
    result: list[Gpu] = []
    for each in gpus:
        before = known.get(each.index)
        changed = before is not None and before.uuid not in ("", each.uuid)
        if each.uuid and (changed or counts[each.uuid] > 1):
            complaints[each.index].add("uuid", each.uuid)
            refused = "" if before is None else before.uuid
            result.append(
                msgspec.structs.replace(each, uuid=refused, problem=GpuProblem.UNIDENTIFIED)
            )
        else:
            result.append(each)
    return tuple(result)


def _migs(found: Sequence[Raw], memory: int | None, complaints: Complaints) -> tuple[Mig, ...]:
    migs = (_mig(raw, memory, complaints) for raw in found)
    by_uuid = {mig.uuid: mig for mig in migs if mig.uuid}
    if len(by_uuid) < len(found):
        complaints.add("mig", [raw.get("uuid") for raw in found])
    return tuple(by_uuid.values())


def _mig(raw: Raw, memory: int | None, complaints: Complaints) -> Mig:
    return Mig(
        uuid=complaints.word("mig uuid", raw.get("uuid"), forms.MIG_UUID),
        profile=profile_name(raw, gpu_memory=memory),
        number=complaints.integer("mig", raw.get("number")),
        **{name: _or(complaints.integer("mig", raw.get(name)), 0) for name in _COUNTS},
    )


def _fabric_name(cluster: bytes, clique: int, state: int, status: int) -> str:
    """Return `<cluster uuid>.<clique id>` of a complete registration; empty otherwise."""
    is_complete = state == _FABRIC.index(FabricState.COMPLETED) and not status
    if not is_complete or len(cluster) != 16 or not any(cluster):
        return ""
    return f"{UUID(bytes=cluster)}.{clique}"


def _fabric_state(raw: tuple[bytes, int, int, int], complaints: Complaints) -> FabricState | None:
    number = complaints.integer("fabric state", raw[2], high=len(_FABRIC) - 1)
    if number is None:
        return None
    state = _FABRIC[number]
    return FabricState.FAILED if state is FabricState.COMPLETED and raw[3] else state


def _recovery(value: int | None, complaints: Complaints) -> RecoveryAction | None:
    number = complaints.integer("recovery action", value, high=10_000)
    if number is None:
        return None
    return _RECOVERY[number] if number < len(_RECOVERY) else RecoveryAction.UNKNOWN_ACTION


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
