"""From a named configuration to the geometry of the GPUs of one node."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Final

import msgspec

from libs.contracts.commands import GpuGeometry
from libs.contracts.facts import Gpu, MigBoard, PciDevice
from libs.contracts.gpus import REMEDIES
from libs.policy.findings import quote_value
from libs.policy.mig.config import ConfigEntry, DeviceId, MigConfigFile
from libs.policy.mig.defaults import board_entries, default_config
from libs.policy.mig.geometry import describe_geometry
from libs.policy.mig.products import (
    DEVICES,
    PROFILES,
    Product,
    board_products,
    gpu_instances,
    has_room,
)
from libs.policy.mig.profiles import largest_first


class MigProblemCode(StrEnum):
    UNKNOWN_CONFIG = "unknown-config"
    """The file has no configuration with this name."""
    NOT_CAPABLE = "not-capable"
    """A GPU has no MIG."""
    UNKNOWN_PROFILE = "unknown-profile"
    """The product has no such profile."""
    NO_ROOM = "no-room"
    """The instances do not fit on the GPU together."""
    FAILED_GPU = "failed-gpu"
    """A GPU cannot be used, so that it cannot be divided."""
    UNKNOWN_DEVICE = "unknown-device"
    """The PCI id of a GPU is not known."""
    NO_ENTRY = "no-entry"
    """The configuration divides other products only."""


class MigProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a configuration cannot be applied to a node, for people."""

    code: MigProblemCode
    message: str

    def __str__(self) -> str:
        return self.message


_NAMED: Final = 8
"""The most names that a message lists."""


def resolve(
    file: MigConfigFile,
    name: str,
    gpus: Sequence[Gpu],
    pci: Iterable[PciDevice],
    boards: Iterable[MigBoard] = (),
) -> tuple[GpuGeometry, ...] | MigProblem:
    """Return the geometry of the GPUs that the configuration is for, by index.

    It is empty if the configuration has nothing for any GPU of the node. A GPU without MIG is
    left out where the configuration turns MIG off, or is for all GPUs and another one has MIG.
    What the drivers of the `boards` say goes before the table of products.
    """
    pci, boards = tuple(pci), tuple(boards)
    ids = {device.address.lower()[-12:]: _id(device) for device in pci}
    products = _board_products(gpus, ids, boards)
    entries = file.configs.get(name, ())
    if file is default_config():
        entries = (*entries, *board_entries(name, products))
    if not entries:
        return MigProblem(
            code=MigProblemCode.UNKNOWN_CONFIG,
            message=f"there is no MIG configuration {quote_value(name)}: use one of the file's"
            f"{_instead(file, name, gpus, pci, boards)}",
        )
    chosen: list[GpuGeometry] = []
    has_mig = any(gpu.mig_capable for gpu in gpus)
    for gpu in sorted(gpus, key=lambda each: each.index):
        device = ids.get(_slot(gpu))
        entry = _entry(entries, gpu, device)
        if isinstance(entry, MigProblem):
            return entry
        if entry is None or _is_left_out(entry, gpu, has_mig=has_mig):
            continue
        geometry = GpuGeometry(
            uuid=gpu.uuid, index=gpu.index, mig=entry.enabled, profiles=_profiles(entry)
        )
        problem = _problem(geometry, gpu, device, products.get(gpu.index))
        if problem is not None:
            return problem
        chosen.append(geometry)
    return tuple(chosen) or _no_entry(name, entries, gpus, ids) or ()


def _instead(
    file: MigConfigFile,
    name: str,
    gpus: Sequence[Gpu],
    pci: Sequence[PciDevice],
    boards: Sequence[MigBoard],
) -> str:
    """Return the configurations that these GPUs can have, those most like the name first."""
    fitting = [
        each
        for each in file.configs
        if isinstance(found := resolve(file, each, gpus, pci, boards), tuple) and found
    ]
    which = " that its GPUs can have" if fitting else ""
    likeness = SequenceMatcher(b=name)

    def order(each: str) -> tuple[float, str]:
        likeness.set_seq1(each)
        return -likeness.ratio(), each

    known = ", ".join(sorted(fitting or file.configs, key=order)[:_NAMED])
    return f"{which}, such as {known or 'none'}"


def _no_entry(
    name: str, entries: Sequence[ConfigEntry], gpus: Sequence[Gpu], ids: Mapping[str, DeviceId]
) -> MigProblem | None:
    """Return the problem of a node that is to be divided, but for whose products there is no entry.

    To change nothing would then look as if the node were divided as its label says.
    """
    for gpu in gpus:
        indexes = (each.devices for each in entries if each.enabled and each.filter)
        if gpu.mig_capable and any(each is None or gpu.index in each for each in indexes):
            device = ids[_slot(gpu)].device
            return MigProblem(
                code=MigProblemCode.NO_ENTRY,
                message=f"the MIG configuration {quote_value(name)} has no entry for {_name(gpu)},"
                f" whose PCI id is 0x{device.upper()}, and its driver does not say how it can be"
                " divided: write a file with one, in a ConfigMap that migManager.config.name of the"
                " policy names, or use all-enabled first where the driver says so while MIG is on",
            )
    return None


def _board_products(
    gpus: Iterable[Gpu], ids: Mapping[str, DeviceId], boards: Iterable[MigBoard]
) -> dict[int, Product]:
    """Return what each GPU is, by index, as its driver names it.

    The table says how many of a profile there can be where it has the product: NVML counts the
    instances of an A30 wrongly.
    """
    found = board_products(boards)
    for gpu in gpus:
        board, device = found.get(gpu.index), ids.get(_slot(gpu))
        table = None if device is None else DEVICES.get(device.device)
        if board is not None and table is not None:
            kinds = {name: table.kinds.get(name, kind) for name, kind in board.kinds.items()}
            found[gpu.index] = board._replace(kinds=kinds)
    return found


def _slot(gpu: Gpu) -> str:
    return gpu.pci.lower()[-12:]


def _id(device: PciDevice) -> DeviceId:
    return DeviceId(
        device=f"{device.device}{device.vendor}".lower(),
        subsystem=f"{device.subsystem_device}{device.subsystem_vendor}".lower(),
    )


def _entry(
    entries: Sequence[ConfigEntry], gpu: Gpu, device: DeviceId | None
) -> ConfigEntry | MigProblem | None:
    """Return the last entry that is for this GPU."""
    for entry in reversed(entries):
        if entry.devices is not None and gpu.index not in entry.devices:
            continue
        if entry.filter and device is None:
            return MigProblem(
                code=MigProblemCode.UNKNOWN_DEVICE,
                message=f"the PCI id of {_name(gpu)} is not known, but the configuration depends on"
                " it: see the log of the discovery agent of this node",
            )
        if not entry.filter or any(_matches(each, device) for each in entry.filter):
            return entry
    return None


def _matches(wanted: DeviceId, device: DeviceId | None) -> bool:
    return (
        device is not None
        and wanted.device == device.device
        and wanted.subsystem in ("", device.subsystem)
    )


def _is_left_out(entry: ConfigEntry, gpu: Gpu, *, has_mig: bool) -> bool:
    if gpu.mig_capable or gpu.problem is not None:
        return False
    return not entry.enabled or (entry.devices is None and has_mig)


def _profiles(entry: ConfigEntry) -> tuple[str, ...]:
    return largest_first(
        tuple(name for name, count in entry.profiles.items() for _ in range(count))
    )


def _problem(
    geometry: GpuGeometry, gpu: Gpu, device: DeviceId | None, board: Product | None
) -> MigProblem | None:
    """Return why a GPU cannot be divided so, as far as that is known beforehand.

    `board` is what its driver says of it.
    """
    if gpu.problem is not None:
        remedy = REMEDIES.get(gpu.problem, gpu.problem.value)
        return MigProblem(
            code=MigProblemCode.FAILED_GPU,
            message=f"{_name(gpu)} cannot be divided while it cannot be used: {remedy}",
        )
    if not gpu.mig_capable:
        return MigProblem(
            code=MigProblemCode.NOT_CAPABLE,
            message=f"{_name(gpu)} has no MIG: choose a configuration that leaves it out",
        )
    product = board or (None if device is None else DEVICES.get(device.device))
    if product is None:
        return None
    unknown = [each for each in gpu_instances(geometry.profiles) if each not in product.kinds]
    elsewhere = next((each for each in unknown if board or each in PROFILES), None)
    if elsewhere is not None:
        return MigProblem(
            code=MigProblemCode.UNKNOWN_PROFILE,
            message=f"{_name(gpu)} has no MIG profile {elsewhere}: it has"
            f" {', '.join(product.kinds)}",
        )
    # Drivers add profiles to boards that exist: of one that no product of the table has, the driver
    # of the board knows alone, if it has not said. The node's agent asks it, and changes nothing if
    # it refuses.
    if unknown:
        return None
    if not has_room(product, geometry.profiles):
        return MigProblem(
            code=MigProblemCode.NO_ROOM,
            message=f"{describe_geometry(geometry)} do not fit on {_name(gpu)} together: choose"
            " fewer or smaller MIG devices",
        )
    return None


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({quote_value(gpu.name)[1:-1]})"
