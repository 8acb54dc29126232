"""Which changes turn the division of GPUs into the one that is wanted. Pure.

A plan may end early, because a GPU names its profiles only once its MIG mode is on: the caller
takes its steps, reads the GPUs again and makes another, until a plan is empty.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from libs.contracts.commands import GpuGeometry
from libs.host.gpus.division import GpuDivision, GpuInstance, InstanceProfile
from libs.policy.mig.profiles import largest_first, parse_profile


class SetMode(msgspec.Struct, frozen=True, tag=True):
    """Turn the MIG mode on or off."""

    uuid: str
    on: bool

    def __str__(self) -> str:
        return f"turn MIG mode {'on' if self.on else 'off'}"


class Destroy(msgspec.Struct, frozen=True, tag=True):
    """Destroy a GPU instance."""

    uuid: str
    instance: GpuInstance

    def __str__(self) -> str:
        return f"destroy {self.instance.profile or 'an instance'} at {self.instance.start}"


class Create(msgspec.Struct, frozen=True, tag=True):
    """Create a GPU instance with compute instances of these slices."""

    uuid: str
    profile: InstanceProfile
    start: int
    compute: tuple[int, ...]

    def __str__(self) -> str:
        return f"create {self.profile.name} at {self.start}"


Step = SetMode | Destroy | Create


class Impossible(msgspec.Struct, frozen=True):
    """The GPUs cannot be divided so."""

    code: str
    message: str


UNKNOWN_PROFILE: Final = "unknown-profile"
NO_ROOM: Final = "no-room"


class _Wanted(NamedTuple):
    """A GPU instance to be."""

    profile: str
    compute: tuple[int, ...]


def plan(
    found: Sequence[GpuDivision], wanted: Sequence[GpuGeometry]
) -> tuple[Step, ...] | Impossible:
    """Return the next changes, in order; none if the GPUs are divided as wanted.

    `found` are the same GPUs as `wanted`, in the same order.
    """
    steps: list[Step] = []
    for division, geometry in zip(found, wanted, strict=True):
        planned = _plan_gpu(division, geometry)
        if isinstance(planned, Impossible):
            return planned
        steps += planned
    return tuple(sorted(steps, key=_order))


def found_geometry(division: GpuDivision, *, index: int) -> GpuGeometry:
    """Return how a GPU is divided, as a command would ask for it."""
    names = (name for each in division.instances for name in _devices(division, each))
    return GpuGeometry(
        uuid=division.uuid, index=index, mig=division.mig, profiles=largest_first(tuple(names))
    )


def _order(step: Step) -> int:
    """Begin with what most often fails, and end with what needs the others."""
    match step:
        case SetMode(on=on):
            return 0 if on else 2
        case Destroy():
            return 1
        case Create():
            return 3


def _plan_gpu(division: GpuDivision, wanted: GpuGeometry) -> list[Step] | Impossible:
    uuid = division.uuid
    clear: list[Step] = [Destroy(uuid, each) for each in division.instances]
    is_set = division.mig == division.pending == wanted.mig
    if not wanted.mig:
        return clear if is_set else [*clear, SetMode(uuid, on=False)]
    if not is_set:
        return [SetMode(uuid, on=True)]
    is_complete = all(each.compute for each in division.instances)
    has = found_geometry(division, index=wanted.index).profiles
    if is_complete and sorted(has) == sorted(wanted.profiles):
        return []
    instances = _wanted_instances(wanted.profiles)
    profiles = {each.name: each for each in division.profiles}
    unknown = [each.profile for each in instances if each.profile not in profiles]
    if unknown:
        return Impossible(
            UNKNOWN_PROFILE,
            f"GPU {wanted.index} ({uuid}) has no MIG profile {unknown[0]}: its driver names"
            f" {', '.join(profiles) or 'none'}",
        )
    kept, missing = _split(division.instances, instances)
    created = _place(missing, profiles, kept)
    if created is None:
        kept, created = [], _place(instances, profiles, [])
    if created is None:
        names = ", ".join(largest_first(wanted.profiles))
        return Impossible(
            NO_ROOM, f"these MIG devices do not fit on GPU {wanted.index} ({uuid}): {names}"
        )
    gone = [each for each in division.instances if each not in kept]
    destroy: list[Step] = [Destroy(uuid, each) for each in gone]
    return [*destroy, *(Create(uuid, *each) for each in created)]


def _devices(division: GpuDivision, instance: GpuInstance) -> Iterable[str]:
    """Return the profiles of an instance's MIG devices."""
    slices = {each.name: each.slices for each in division.profiles}.get(instance.profile)
    for compute in instance.compute if slices else ():
        yield instance.profile if compute == slices else f"{compute}c.{instance.profile}"


def _wanted_instances(names: Iterable[str]) -> list[_Wanted]:
    """Return the GPU instances that these MIG devices need; a name that is none stays as it is."""
    room: list[tuple[str, int, list[int]]] = []
    for name in largest_first(tuple(names)):
        found = parse_profile(name)
        if found is None:
            room.append((name, 0, []))
            continue
        for number, (profile, left, compute) in enumerate(room):
            if profile == found.gpu_instance and left >= found.compute:
                compute.append(found.compute)
                room[number] = (profile, left - found.compute, compute)
                break
        else:
            room.append((found.gpu_instance, found.slices - found.compute, [found.compute]))
    return [_Wanted(profile, tuple(compute)) for profile, _, compute in room]


def _split(
    instances: Iterable[GpuInstance], wanted: Iterable[_Wanted]
) -> tuple[list[GpuInstance], list[_Wanted]]:
    """Return the instances that can stay, and what is missing then."""
    missing, kept = list(wanted), list[GpuInstance]()
    for each in instances:
        same = _Wanted(each.profile, each.compute)
        if same in missing:
            missing.remove(same)
            kept.append(each)
    return kept, missing


_Placed = tuple[InstanceProfile, int, tuple[int, ...]]
"""The profile of an instance, its start, and the slices of its compute instances."""


def _place(
    wanted: Iterable[_Wanted],
    profiles: Mapping[str, InstanceProfile],
    kept: Iterable[GpuInstance],
) -> list[_Placed] | None:
    """Return places for all instances, beside those that are kept; None if there are not enough."""
    ordered = sorted(wanted, key=lambda each: (-profiles[each.profile].size, each))
    taken = 0
    for each in kept:
        taken |= _bits(each.start, each.size)
    starts = _starts([profiles[each.profile] for each in ordered], taken, after=-1)
    if starts is None:
        return None
    return [
        (profiles[each.profile], start, each.compute)
        for each, start in zip(ordered, starts, strict=True)
    ]


def _starts(kinds: list[InstanceProfile], taken: int, *, after: int) -> list[int] | None:
    """Try the places in order. Equal instances are tried in one order only, so each `after` one."""
    if not kinds:
        return []
    first, *others = kinds
    for start in first.starts:
        bits = _bits(start, first.size)
        if start <= after or taken & bits:
            continue
        same = bool(others) and others[0].id == first.id
        rest = _starts(others, taken | bits, after=start if same else -1)
        if rest is not None:
            return [start, *rest]
    return None


def _bits(start: int, size: int) -> int:
    """Return slices of memory as bits."""
    return (1 << size) - 1 << start
