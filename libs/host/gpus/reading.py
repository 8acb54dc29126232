"""Read GPUs through NVML. Only the NVML process imports this: every call may hang for ever.

A value that the driver does not have, or may not tell, is None or absent. Every other error leaves
as `NVMLError`: that a value could not be read does not say that it is not there. A description then
has what was read last; without that, the GPU has a problem, because what is offered of a GPU, and
how it is divided, must not be guessed.
"""

import ctypes
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import pynvml

from libs.contracts.facts import Gpu
from libs.contracts.gpu_forms import Complaints
from libs.host.gpus import clean, problems
from libs.host.gpus.protocol import MAX_MIGS, Description

nvml: Final = cast(Any, pynvml)
"""The module has no types."""

NvmlError: Final[type[Exception]] = nvml.NVMLError

OF_THE_GPU: Final = problems.OF_THE_GPU | {nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}
"""Errors that concern the GPU or the driver as a whole, whatever was asked. Another version of the
library is one: it is no answer to a question, but refuses every one."""
_ABSENT: Final = frozenset(
    (
        nvml.NVML_ERROR_INVALID_ARGUMENT,  # a link, a profile or a field that the GPU does not have
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_NOT_FOUND,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NO_DATA,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        nvml.NVML_ERROR_DEPRECATED,
        nvml.NVML_ERROR_NOT_READY,
    )
)
"""Errors that say that the driver does not have a value, does not yet, or may not tell it."""
_RECOVERY_FIELD: Final = (nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)
_FIELD_VALUES: Final = {
    nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    nvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


attribute: Final = object.__getattribute__
"""Reads a field of a structure that is no text. pynvml's own attributes take ten times as long."""


def ask(function: Callable[..., Any], *args: Any) -> Any:
    """Call NVML; return None for a value that the driver does not have."""
    try:
        return function(*args)
    except NvmlError as error:
        if code_of(error) in _ABSENT:
            return None
        raise


def attempt(function: Callable[..., Any], *args: Any) -> Any:
    """Call NVML; return None also for a value that could not be read now.

    For measurements alone: one that is missing says nothing, and the next comes in a second.
    """
    try:
        return function(*args)
    except NvmlError as error:
        if code_of(error) in OF_THE_GPU:
            raise
        return None


def code_of(error: Exception) -> int:
    return int(cast(Any, error).value)


def undecoded(function: Callable[..., Any]) -> Callable[..., bytes]:
    """Return a function of pynvml that returns bytes: pynvml fails on a text that is not UTF-8."""
    return cast(Any, function).__wrapped__


def text(function: Callable[..., Any], gpu: Any) -> bytes | None:
    return ask(undecoded(function), gpu)


class Describing:
    """Describes one GPU, and remembers what it read."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._last: dict[str, Any] = {}
        self._cleaned: tuple[Gpu, dict[str, str]] | None = None

    def read(self, gpu: Any) -> Description:
        """Describe the GPU; its UUID is required, so that an error of it concerns the whole GPU."""
        unread: dict[str, int] = {}
        found: dict[str, Any] = {"uuid": undecoded(nvml.nvmlDeviceGetUUID)(gpu)}
        for name, read in _READ.items():
            if name == "migs" and not is_divided(found):
                break
            try:
                found[name] = read(gpu)
            except NvmlError as error:
                is_known = name in _OPTIONAL or self._knows(name)
                if code_of(error) in OF_THE_GPU or not is_known:
                    raise
                unread[name] = code_of(error)
                found[name] = self._last.get(name)
        return Description(*self._clean(found), unread)

    def _clean(self, found: dict[str, Any]) -> tuple[Gpu, dict[str, str]]:
        """Return the GPU; what NVML said last and says again need not be cleaned again."""
        if self._cleaned is None or found != self._last:
            complaints = Complaints()
            self._cleaned = clean.gpu(self._index, found, complaints), complaints.found
            self._last = found
        return self._cleaned

    def _knows(self, name: str) -> bool:
        """Return whether a value was read before, under the mode that makes it meaningful."""
        return bool(self._last) and (name != "migs" or is_divided(self._last))


def is_divided(raw: dict[str, Any]) -> bool:
    return bool(raw.get("mig") and raw["mig"][0])


def _pci(gpu: Any) -> bytes | None:
    pci = ask(nvml.nvmlDeviceGetPciInfo, gpu)
    return None if pci is None else _bytes(nvml.nvmlPciInfo_t.busId, pci)


def _memory(gpu: Any) -> int | None:
    memory = ask(nvml.nvmlDeviceGetMemoryInfo, gpu)
    return None if memory is None else memory.total


def _mig_mode(gpu: Any) -> tuple[int, int] | None:
    mode = ask(nvml.nvmlDeviceGetMigMode, gpu)
    return None if mode is None else (mode[0], mode[1])


def _recovery(gpu: Any) -> int | None:
    (field,) = ask(nvml.nvmlDeviceGetFieldValues, gpu, [_RECOVERY_FIELD]) or (None,)
    if field is None:
        return None
    code = attribute(field, "nvmlReturn")
    if code != nvml.NVML_SUCCESS and code not in _ABSENT:
        raise NvmlError(code)
    return field_value(field)


def _bytes(field: Any, structure: Any) -> bytes:
    """Return the bytes of a text in a structure, up to its first NUL, undecoded."""
    start = ctypes.addressof(structure) + field.offset
    return ctypes.string_at(start, field.size).partition(b"\0")[0]


def _migs(gpu: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    numbers: dict[int, int] | None = None
    count: int = ask(nvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
    for index in range(min(count, MAX_MIGS)):
        device = ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index)
        if device is None:
            continue
        if numbers is None:
            numbers = _profile_numbers(gpu)
        found.append(_mig(gpu, index, device, numbers))
    return found


def _mig(gpu: Any, index: int, device: Any, numbers: dict[int, int]) -> dict[str, Any]:
    attributes = ask(nvml.nvmlDeviceGetAttributes, device)
    gpu_instance = ask(nvml.nvmlDeviceGetGpuInstanceId, device)
    profile = _profile_of(gpu, gpu_instance)
    return {
        "uuid": text(nvml.nvmlDeviceGetUUID, device) or b"",
        "name": text(nvml.nvmlDeviceGetName, device),
        "gpu_instance": gpu_instance,
        "compute_instance": ask(nvml.nvmlDeviceGetComputeInstanceId, device),
        "profile": None if profile is None else numbers.get(profile),
        "number": index,
        **({} if attributes is None else _attributes(attributes)),
    }


def _attributes(found: Any) -> dict[str, int]:
    return {
        "memory_mib": found.memorySizeMB,
        "multiprocessors": found.multiprocessorCount,
        "gpu_slices": found.gpuInstanceSliceCount,
        "compute_slices": found.computeInstanceSliceCount,
        "copy_engines": found.sharedCopyEngineCount,
        "decoders": found.sharedDecoderCount,
        "encoders": found.sharedEncoderCount,
        "jpeg_engines": found.sharedJpegCount,
        "ofa_engines": found.sharedOfaCount,
    }


def _profile_of(gpu: Any, gpu_instance: int | None) -> int | None:
    """Return the id of a GPU instance's profile; only root may ask."""
    if gpu_instance is None:
        return None
    handle = ask(nvml.nvmlDeviceGetGpuInstanceById, gpu, gpu_instance)
    found = None if handle is None else ask(nvml.nvmlGpuInstanceGetInfo, handle)
    return None if found is None else int(found.profileId)


def _profile_numbers(gpu: Any) -> dict[int, int]:
    """Return the numbers of the GPU's profiles in NVML's enum by the ids that this GPU uses."""
    numbers: dict[int, int] = {}
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        found = ask(nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number, 1)
        if found is not None:
            numbers.setdefault(int(found.id), number)
    return numbers


def _fabric(gpu: Any) -> tuple[bytes, int, int, int] | None:
    """Return a GPU's registration with the fabric manager: cluster, clique, state and status."""
    found = nvml.c_nvmlGpuFabricInfo_v2_t()
    found.version = nvml.nvmlGpuFabricInfo_v2
    if ask(nvml.nvmlDeviceGetGpuFabricInfoV, gpu, ctypes.byref(found)) is None:
        found = nvml.c_nvmlGpuFabricInfo_t()
        if ask(nvml.nvmlDeviceGetGpuFabricInfo, gpu, ctypes.byref(found)) is None:
            return None
    return bytes(found.clusterUuid), found.cliqueId, found.state, found.status


def _nvlinks(gpu: Any) -> list[int]:
    links: list[int] = []
    for number in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = ask(nvml.nvmlDeviceGetNvLinkState, gpu, number)
        if state is None:
            break
        links.append(state)
    return links


def link_ends(gpu: Any, complaints: Complaints) -> tuple[str, ...]:
    """Return the PCI address at the other end of each active NVLink, of a GPU or an NVSwitch."""
    ends: list[bytes] = []
    for number, state in enumerate(_nvlinks(gpu)):
        pci = ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, gpu, number) if state == 1 else None
        if pci is not None:
            ends.append(_bytes(nvml.nvmlPciInfo_t.busId, pci))
    return clean.link_ends(ends, complaints)


def fields(gpu: Any, wanted: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Return the values of fields, each named by its number and its scope."""
    found = attempt(nvml.nvmlDeviceGetFieldValues, gpu, list(wanted.values()))
    values = ((name, field_value(field)) for name, field in zip(wanted, found or (), strict=False))
    return {name: value for name, value in values if value is not None}


def field_value(field: Any) -> Any:
    """Return the value of a field; None if it was not read."""
    kind = _FIELD_VALUES.get(attribute(field, "valueType"))
    if attribute(field, "nvmlReturn") != nvml.NVML_SUCCESS or kind is None:
        return None
    return getattr(attribute(field, "value"), kind)


def monotonic() -> float:
    """Return the clock of samples and events. Like that of the kernel log, no one adjusts it."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "pci": _pci,
    "name": partial(text, nvml.nvmlDeviceGetName),
    "serial": partial(text, nvml.nvmlDeviceGetSerial),
    "minor": partial(ask, nvml.nvmlDeviceGetMinorNumber),
    "memory": _memory,
    "compute_capability": partial(ask, nvml.nvmlDeviceGetCudaComputeCapability),
    "mig": _mig_mode,
    "fabric": _fabric,
    "nvlinks": _nvlinks,
    "recovery": _recovery,
    "migs": _migs,
}
"""What is read of a GPU beside its UUID; its MIG devices last, and only while MIG is on."""
_OPTIONAL: Final = frozenset(("serial", "fabric", "nvlinks", "recovery"))
"""What decides neither what is offered of a GPU nor how: without it a GPU is usable. The driver of
a damaged board, for example, cannot read its serial number."""
