"""Divide GPUs through NVML. Only the NVML process imports this: every call may hang for ever.

What is read here decides what is destroyed: an error is never taken for an absent value, except
where the driver says that it does not have it.
"""

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from libs.contracts.gpu_forms import Complaints
from libs.host.gpus import clean
from libs.host.gpus.division import GpuDivision, GpuInstance, InstanceProfile
from libs.host.gpus.reading import NvmlError, code_of, nvml

_ABSENT: Final = frozenset(
    (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    )
)
"""Answers to a question about a profile that the GPU does not have, or the driver does not know."""
_MOST: Final = 64
"""Instances of one kind, and places of one; a GPU has 8 at most today."""
_SHARED_ENGINES: Final = 0
"""The only kind of engines that NVML has for compute instances."""


def read(gpu: Any, complaints: Complaints) -> GpuDivision:
    """Describe how a GPU is divided, without its UUID."""
    mode = nvml.nvmlDeviceGetMigMode(gpu)
    memory = complaints.integer("memory", nvml.nvmlDeviceGetMemoryInfo(gpu).total, low=1)
    raw = _profiles(gpu)
    named = {each["id"]: clean.instance_profile(each, memory, complaints) for each in raw}
    profiles = {key: profile for key, profile in named.items() if profile is not None}
    instances = _instances(gpu, named, profiles, complaints) if mode[0] else []
    return GpuDivision(
        uuid="",
        mig=mode[0] == 1,
        pending=mode[1] == 1,
        instances=tuple(sorted(instances, key=lambda each: (each.start, each.id))),
        profiles=tuple(profiles.values()),
    )


def set_mode(gpu: Any, *, on: bool) -> int:
    """Set the MIG mode; return what prevents it from taking effect."""
    mode = nvml.NVML_DEVICE_MIG_ENABLE if on else nvml.NVML_DEVICE_MIG_DISABLE
    return int(nvml.nvmlDeviceSetMigMode(gpu, mode))


def create(gpu: Any, *, profile: int, start: int, size: int, compute: Sequence[int]) -> None:
    placement = ctypes.byref(nvml.c_nvmlGpuInstancePlacement_t(start, size))
    instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile, placement)
    profiles = _compute_profiles(instance)
    for wanted in compute:
        ids = [number for number, slices in profiles.items() if slices == wanted]
        if not ids:
            raise NvmlError(nvml.NVML_ERROR_NOT_SUPPORTED)
        nvml.nvmlGpuInstanceCreateComputeInstance(instance, ids[0])


def destroy(gpu: Any, number: int) -> None:
    instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, number)
    for profile in _compute_profiles(instance):
        for each in _compute_instances(instance, profile):
            nvml.nvmlComputeInstanceDestroy(each)
    nvml.nvmlGpuInstanceDestroy(instance)


def _known(function: Callable[..., Any], *args: Any) -> Any:
    """Call NVML; return None for a profile that the GPU does not have."""
    try:
        return function(*args)
    except NvmlError as error:
        if code_of(error) in _ABSENT:
            return None
        raise


def _profiles(gpu: Any) -> list[dict[str, Any]]:
    profiles: dict[int, dict[str, Any]] = {}
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        found = _known(nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number)
        if found is None:  # a driver before 470 has the first version only
            found = _known(nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number, 1)
        if found is not None and found.id not in profiles:
            profiles[found.id] = {
                "number": number,
                "id": found.id,
                "slices": found.sliceCount,
                "memory_mib": found.memorySizeMB,
                "placements": _placements(gpu, found.id),
                "most": found.instanceCount,
            }
    return list(profiles.values())


def _placements(gpu: Any, profile: int) -> list[tuple[int, int]]:
    ask, count = nvml.nvmlDeviceGetGpuInstancePossiblePlacements, ctypes.c_uint()
    if _known(ask, gpu, profile, None, ctypes.byref(count)) is None or count.value > _MOST:
        return []
    found = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    ask(gpu, profile, found, ctypes.byref(count))
    return [(each.start, each.size) for each in found[: count.value]]


def _instances(
    gpu: Any,
    ids: Iterable[int],
    profiles: Mapping[int, InstanceProfile],
    complaints: Complaints,
) -> list[GpuInstance]:
    """Return the instances of each kind, also of a kind that has no proper profile."""
    instances: list[GpuInstance] = []
    for profile in ids:
        found, count = (nvml.c_nvmlGpuInstance_t * _MOST)(), ctypes.c_uint(_MOST)
        nvml.nvmlDeviceGetGpuInstances(gpu, profile, found, ctypes.byref(count))
        instances += [
            clean.instance(_instance(each), profiles, complaints) for each in found[: count.value]
        ]
    return instances


def _instance(handle: Any) -> dict[str, Any]:
    info = nvml.nvmlGpuInstanceGetInfo(handle)
    return {
        "id": info.id,
        "profile": info.profileId,
        "start": info.placement.start,
        "size": info.placement.size,
        "compute": [
            slices
            for number, slices in _compute_profiles(handle).items()
            for _ in _compute_instances(handle, number)
        ],
    }


def _compute_profiles(instance: Any) -> dict[int, int]:
    """Return the slices of the compute profiles that a GPU instance can hold, by id."""
    found: dict[int, int] = {}
    for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        ask = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
        info = _known(ask, instance, number, _SHARED_ENGINES, 1)
        if info is not None:
            found.setdefault(info.id, info.sliceCount)
    return found


def _compute_instances(instance: Any, profile: int) -> list[Any]:
    found, count = (nvml.c_nvmlComputeInstance_t * _MOST)(), ctypes.c_uint(_MOST)
    nvml.nvmlGpuInstanceGetComputeInstances(instance, profile, found, ctypes.byref(count))
    return list(found[: count.value])
