"""From what NVML returned to what a message may contain. Pure.

A value that cannot be true is left out, and a GPU without a proper identity is refused; both are
complained about.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from libs.contracts.facts import Gpu, Mig
from libs.contracts.gpus import FabricState, GpuProblem, RecoveryAction
from libs.contracts.numbers import LIMIT
from libs.contracts.words import printable
from libs.host.gpus.division import GpuDivision, GpuInstance, InstanceProfile
from libs.host.gpus.mig import instance_profile_name, profile_name
from libs.host.gpus.protocol import (
    RawDivision,
    RawFabric,
    RawGpu,
    RawInstance,
    RawMig,
    RawProfile,
)

MIB: Final = 1 << 20
MAX_TEXT: Final = 96
"""Characters of a name; also the size of NVML's own buffers."""
_MOST_LINKS: Final = 64
_MOST_SLICES: Final = 64
"""Of a GPU, of computing or memory; there are 8 at most today."""

_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
_MIG_UUID: Final = re.compile(r"MIG-[0-9A-Za-z/-]{1,90}")
_PCI: Final = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
_VERSION: Final = re.compile(r"[0-9A-Za-z.+-]{1,40}")
_FABRIC: Final = (
    FabricState.NOT_SUPPORTED,
    FabricState.NOT_STARTED,
    FabricState.IN_PROGRESS,
    FabricState.COMPLETED,
)
"""By NVML's number."""
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
"""By NVML's number."""


class Complaints:
    """What is wrong with the values of one GPU, or of the library."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: dict[str, str] = {}
        """By name of the value."""

    def add(self, name: str, value: object) -> None:
        self.found[name] = repr(value)[:120]

    def integer(
        self, name: str, value: float | None, *, low: int = 0, high: int = LIMIT
    ) -> int | None:
        """Return an integer within its bounds, or None."""
        if value is None:
            return None
        # NaN is within no bounds.
        if not low <= value <= high:
            self.add(name, value)
            return None
        return int(value)

    def text(self, name: str, value: bytes | None) -> str:
        """Return a text that can be printed on one line."""
        if value is None:
            return ""
        decoded = value.decode(errors="replace")
        cleaned = printable(decoded, "")[:MAX_TEXT]
        if cleaned.encode() != value:
            self.add(name, value)
        return cleaned

    def word(self, name: str, value: bytes | None, form: re.Pattern[str]) -> str:
        """Return a text of this form, or an empty one."""
        if value is None:
            return ""
        decoded = value.decode(errors="replace")
        if form.fullmatch(decoded):
            return decoded
        self.add(name, value)
        return ""


def driver_version(value: bytes, complaints: Complaints) -> str:
    return complaints.word("driver version", value, _VERSION)


def cuda_version(value: int, complaints: Complaints) -> str:
    """Return the newest CUDA that the driver supports, `13.1`; empty if the driver lacks it."""
    number = complaints.integer("CUDA version", value, high=1_000_000)
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def link_ends(raw: Sequence[bytes], complaints: Complaints) -> tuple[str, ...]:
    """Return the PCI addresses at the other ends of links, without those that are malformed."""
    words = (complaints.word("NVLink", each, _PCI) for each in raw[:_MOST_LINKS])
    return tuple(word for word in words if word)


def gpu(index: int, raw: RawGpu, complaints: Complaints) -> Gpu:
    """Describe a GPU; one whose UUID is malformed has none, and a problem."""
    uuid = complaints.word("uuid", raw.uuid, _UUID)
    major, minor = raw.compute_capability or (0, 0)
    memory = complaints.integer("memory", raw.memory)
    current, pending = raw.mig or (0, 0)
    links = raw.nvlinks
    return Gpu(
        uuid=uuid,
        index=index,
        minor=_or(complaints.integer("minor", raw.minor), -1),
        pci=complaints.word("pci", raw.pci, _PCI),
        name=complaints.text("name", raw.name),
        serial=complaints.text("serial", raw.serial),
        memory_mib=_or(memory, 0) // MIB,
        compute_capability=(
            _or(complaints.integer("compute capability", major, high=999), 0),
            _or(complaints.integer("compute capability", minor, high=999), 0),
        ),
        mig_capable=raw.mig is not None,
        mig_mode=current == 1,
        mig_pending=None if raw.mig is None else pending == 1,
        migs=_migs(raw.migs, memory, complaints),
        fabric=_fabric_name(raw.fabric),
        fabric_state=_fabric_state(raw.fabric, complaints),
        nvlinks=len(links),
        nvlinks_down=tuple(number for number, state in enumerate(links) if state != 1),
        recovery=_recovery(raw.recovery, complaints),
        problem=None if uuid else GpuProblem.UNIDENTIFIED,
    )


def division(uuid: str, raw: RawDivision, complaints: Complaints) -> GpuDivision:
    """Describe how a GPU is divided; profiles without a proper name or size are left out."""
    memory = complaints.integer("memory", raw.memory, low=1)
    named = ((each, _instance_profile(each, memory, complaints)) for each in raw.profiles)
    profiles = {each.id: profile for each, profile in named if profile is not None}
    instances = [_instance(each, profiles.get(each.profile), complaints) for each in raw.instances]
    return GpuDivision(
        uuid=uuid,
        mig=raw.mig[0] == 1,
        pending=raw.mig[1] == 1,
        instances=tuple(sorted(instances, key=lambda each: (each.start, each.id))),
        profiles=tuple(profiles.values()),
    )


def _instance(
    raw: RawInstance, profile: InstanceProfile | None, complaints: Complaints
) -> GpuInstance:
    """Describe an instance; one without a proper place has no profile, so that it cannot stay."""
    start = complaints.integer("place", raw.start, high=_MOST_SLICES)
    size = complaints.integer("place", raw.size, high=_MOST_SLICES)
    is_proper = profile is not None and start in profile.starts and size == profile.size
    return GpuInstance(
        id=raw.id,
        profile=profile.name if profile is not None and is_proper else "",
        start=_or(start, 0),
        size=_or(size, 0),
        compute=tuple(sorted(raw.compute, reverse=True)),
    )


def _instance_profile(
    raw: RawProfile, memory: int | None, complaints: Complaints
) -> InstanceProfile | None:
    slices = complaints.integer("profile", raw.slices, low=1, high=_MOST_SLICES)
    mib = complaints.integer("profile", raw.memory_mib, low=1)
    sizes = {size for _, size in raw.placements if 0 < size <= _MOST_SLICES}
    starts = {start for start, _ in raw.placements if 0 <= start < _MOST_SLICES}
    if slices is None or mib is None or memory is None or len(sizes) != 1:
        return None
    return InstanceProfile(
        name=instance_profile_name(raw, gpu_memory=memory),
        id=raw.id,
        slices=slices,
        size=sizes.pop(),
        starts=tuple(sorted(starts)),
        most=_or(complaints.integer("profile", raw.most, high=_MOST_SLICES), 0),
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


def _migs(found: Sequence[RawMig], memory: int | None, complaints: Complaints) -> tuple[Mig, ...]:
    migs = (_mig(raw, memory, complaints) for raw in found)
    by_uuid = {mig.uuid: mig for mig in migs if mig.uuid}
    if len(by_uuid) < len(found):
        complaints.add("mig", [raw.uuid for raw in found])
    return tuple(by_uuid.values())


def _mig(raw: RawMig, memory: int | None, complaints: Complaints) -> Mig:
    def count(value: int | None) -> int:
        return _or(complaints.integer("mig", value), 0)

    return Mig(
        uuid=complaints.word("mig uuid", raw.uuid, _MIG_UUID),
        profile=profile_name(raw, gpu_memory=memory),
        gpu_instance=count(raw.gpu_instance),
        compute_instance=count(raw.compute_instance),
        memory_mib=count(raw.memory_mib),
        multiprocessors=count(raw.multiprocessors),
        gpu_slices=count(raw.gpu_slices),
        compute_slices=count(raw.compute_slices),
        copy_engines=count(raw.copy_engines),
        decoders=count(raw.decoders),
        encoders=count(raw.encoders),
        jpeg_engines=count(raw.jpeg_engines),
        ofa_engines=count(raw.ofa_engines),
        number=complaints.integer("mig", raw.number),
    )


def _fabric_name(raw: RawFabric | None) -> str:
    """Return `<cluster uuid>.<clique id>` of a complete registration; empty otherwise."""
    if raw is None or raw.state != _FABRIC.index(FabricState.COMPLETED) or raw.status:
        return ""
    if len(raw.cluster) != 16 or not any(raw.cluster):
        return ""
    return f"{UUID(bytes=raw.cluster)}.{raw.clique}"


def _fabric_state(raw: RawFabric | None, complaints: Complaints) -> FabricState | None:
    if raw is None:
        return None
    number = complaints.integer("fabric state", raw.state, high=len(_FABRIC) - 1)
    if number is None:
        return None
    state = _FABRIC[number]
    return FabricState.FAILED if state is FabricState.COMPLETED and raw.status else state


def _recovery(value: int | None, complaints: Complaints) -> RecoveryAction | None:
    number = complaints.integer("recovery action", value, high=10_000)
    if number is None:
        return None
    return _RECOVERY[number] if number < len(_RECOVERY) else RecoveryAction.UNKNOWN_ACTION


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
