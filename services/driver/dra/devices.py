"""The devices of a node, named and described as by NVIDIA's driver for claims. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from libs.contracts.facts import Gpu, Mig
from libs.contracts.words import printable
from libs.host.gpus.port import DriverLibrary
from libs.policy.mig.profiles import is_offered
from services.driver.plugin.places import Place

_STANDARD: Final = "resource.kubernetes.io/"
_PCI: Final = re.compile(r"[0-9a-f]*([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_MAX_TEXT: Final = 64
"""Characters of an attribute that is text."""
_MAX_NUMBER: Final = 10**9
_GENERATIONS: Final = (
    ((13, 0), "Rubin"),
    ((10, 0), "Blackwell"),
    ((9, 0), "Hopper"),
    ((8, 9), "Ada Lovelace"),
    ((8, 0), "Ampere"),
    ((7, 5), "Turing"),
    ((7, 0), "Volta"),
    ((6, 0), "Pascal"),
    ((5, 0), "Maxwell"),
)
"""The first compute capability of each, the newest first."""


class ClaimDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or a MIG device, as claims name it."""

    name: str
    uuid: str
    gpu: str
    """The UUID of the GPU."""
    attributes: Mapping[str, Any] = {}
    """As in a ResourceSlice, by name."""
    capacity: Mapping[str, str] = {}
    """Quantities by name."""


def devices_of(
    gpus: Iterable[Gpu], places: Mapping[str, Place], library: DriverLibrary
) -> dict[str, ClaimDevice]:
    """Return the devices by name: whole GPUs, and the MIG devices of those that are divided."""
    found: list[ClaimDevice] = []
    for gpu in gpus:
        if not gpu.uuid or gpu.minor < 0:
            continue
        shared = _shared(gpu, places.get(gpu.uuid, Place()), library)
        if not gpu.mig_mode:
            found.append(_whole(gpu, shared))
            continue
        found += [
            _part(gpu, mig, shared) for mig in gpu.migs if mig.uuid and is_offered(mig.profile)
        ]
    return {device.name: device for device in found}


def _whole(gpu: Gpu, shared: Mapping[str, Any]) -> ClaimDevice:
    return ClaimDevice(
        name=f"gpu-{gpu.minor}",
        uuid=gpu.uuid,
        gpu=gpu.uuid,
        attributes={"type": _text("gpu"), "uuid": _text(gpu.uuid), **shared},
        capacity={"memory": f"{gpu.memory_mib}Mi"},
    )


def _part(gpu: Gpu, mig: Mig, shared: Mapping[str, Any]) -> ClaimDevice:
    profile = re.sub(r"[^0-9a-z]+", "-", mig.profile.lower().replace(".", ""))
    return ClaimDevice(
        name=f"gpu-{gpu.minor}-mig-{profile}-{mig.gpu_instance}-{mig.compute_instance}",
        uuid=mig.uuid,
        gpu=gpu.uuid,
        attributes={
            "type": _text("mig"),
            "uuid": _text(mig.uuid),
            "parentUUID": _text(gpu.uuid),
            "profile": _text(mig.profile),
            **shared,
        },
        capacity={
            "memory": f"{mig.memory_mib}Mi",
            "multiprocessors": str(mig.multiprocessors),
            "copyEngines": str(mig.copy_engines),
            "decoders": str(mig.decoders),
            "encoders": str(mig.encoders),
            "jpegEngines": str(mig.jpeg_engines),
            "ofaEngines": str(mig.ofa_engines),
        },
    )


def _shared(gpu: Gpu, place: Place, library: DriverLibrary) -> dict[str, Any]:
    """Return the attributes that a GPU and its MIG devices have in common."""
    attributes: dict[str, Any] = {"productName": _text(gpu.name)}
    if architecture := _architecture(gpu.compute_capability):
        attributes["architecture"] = _text(architecture)
    versions = {
        "cudaComputeCapability": version(gpu.compute_capability),
        "driverVersion": version(_numbers(library.driver_version)),
        "cudaDriverVersion": version(_numbers(library.cuda)),
    }
    attributes |= {name: {"version": each} for name, each in versions.items() if each}
    if address := _PCI.fullmatch(gpu.pci.lower()):
        attributes[f"{_STANDARD}pciBusID"] = _text(address[1])
    if place.bridges:
        attributes[f"{_STANDARD}pcieRoot"] = _text(place.bridges[0])
    if place.numa_node is not None:
        attributes[f"{_STANDARD}numaNode"] = {"int": place.numa_node}
    return attributes


def version(numbers: Sequence[int]) -> str:
    """Return a semantic version, which has three numbers; empty if there is none."""
    if not any(numbers) or any(number > _MAX_NUMBER for number in numbers):
        return ""
    return ".".join(str(number) for number in (*numbers, 0, 0)[:3])


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]{1,9}", text))


def _architecture(capability: tuple[int, int]) -> str:
    return next((name for first, name in _GENERATIONS if capability >= first), "")


def _text(value: str) -> dict[str, str]:
    """Return an attribute that is text, as short as the API server allows."""
    return {"string": printable(value, "")[:_MAX_TEXT]}
