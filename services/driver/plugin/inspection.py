"""Inspect a machine's GPUs: what the driver, the kernel and the CDI specs say. Calls block."""

from collections.abc import Mapping

import msgspec

from libs.contracts.facts import Gpu
from libs.contracts.telemetry import GpuSample
from libs.host import validations
from libs.host.cdi import extras, published
from libs.host.gpus.errors import by_uuid
from libs.host.gpus.port import GpuHandle, GpusUnavailable
from libs.host.machine import Machine
from libs.host.tree import Tree, Unreadable
from services.driver.plugin.allocation import IMEX_CHANNEL, IMEX_DEVICE
from services.driver.plugin.places import Place, places_of
from services.driver.plugin.resources import CONTROL_FILES, CapabilityFiles, capability_files
from services.health_file import driver_loaded_at

_CAPABILITIES = "/proc/driver/nvidia-caps/mig-minors"


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine says of its GPUs at one time."""

    gpus: tuple[Gpu, ...] | None = None
    """None if they cannot be read."""
    samples: tuple[GpuSample, ...] = ()
    """Empty if they were not asked for."""
    problem: str = ""
    """Why they cannot."""
    xids: Mapping[str, tuple[int, ...]] = {}
    """Since the last inspection, by UUID, or by PCI slot where that is not known."""
    loaded_at: float = 0.0
    """When the driver was loaded; 0 if that is not known."""
    in_specs: frozenset[str] = frozenset()
    """The names in the CDI specs."""
    extras: frozenset[str] = frozenset()
    """The CDI devices beside GPUs, such as `nvidia.com/gds=all`."""
    links: Mapping[str, tuple[str, ...]] = {}
    """The PCI addresses at the other ends of NVLinks, by UUID of the GPU."""
    has_imex: bool = False
    """Whether the machine has the IMEX channel 0, or its driver container, for the CDI specs."""
    places: Mapping[str, Place] = {}
    control_files: tuple[str, ...] = ()
    capabilities: CapabilityFiles = {}


def inspect_gpus(
    machine: Machine,
    hold: GpuHandle,
    xids: Mapping[str, tuple[int, ...]],
    before: Inspection,
    *,
    measures: bool,
) -> Inspection:
    """Return what there is now; `xids` are those since the inspection `before`.

    `measures` says whether to measure the GPUs, too, which takes longer.
    """
    tree = machine.tree
    gpus, samples = _describe(hold, measures=measures)
    loaded_at = driver_loaded_at(tree)
    if gpus is None:
        return Inspection(problem=hold.unavailable_reason, xids=xids, loaded_at=loaded_at)
    links = _links(hold, gpus, before, loaded_at)
    offered = frozenset(
        f"{kind}={name}" for kind in extras.KINDS for name in published.devices_of(tree, kind)
    )
    return Inspection(
        gpus=gpus,
        samples=samples,
        xids=by_uuid(xids, ((gpu.pci, gpu.uuid) for gpu in gpus)),
        loaded_at=loaded_at,
        links=links,
        in_specs=published.devices(tree),
        extras=offered,
        has_imex=_exists(tree, IMEX_CHANNEL) or IMEX_DEVICE in offered,
        places=places_of(tree, gpus, links),
        control_files=tuple(path for path in CONTROL_FILES if _exists(tree, path)),
        capabilities=_capabilities(tree),
    )


def is_computing_proven(tree: Tree) -> bool:
    """Return whether the validator proved in this boot that the GPUs compute."""
    return _exists(tree, validations.CUDA)


def _describe(
    hold: GpuHandle, *, measures: bool
) -> tuple[tuple[Gpu, ...] | None, tuple[GpuSample, ...]]:
    if hold.acquire() is None:
        return None, ()
    try:
        return hold.gpus.sweep() if measures else (hold.gpus.describe(), ())
    except GpusUnavailable as error:
        hold.mark_lost(error)
        return None, ()


def _links(
    hold: GpuHandle, gpus: tuple[Gpu, ...], before: Inspection, loaded_at: float
) -> Mapping[str, tuple[str, ...]]:
    """Return the NVLinks, which are asked for once per load of the driver: that takes a while."""
    if before.loaded_at == loaded_at:
        missing = (gpu.problem is None and gpu.uuid not in before.links for gpu in gpus)
        if not any(missing):
            return before.links
    try:
        return hold.gpus.links()
    except GpusUnavailable:
        return {}  # the next inspection finds the reason


def _exists(tree: Tree, path: str) -> bool:
    try:
        return tree.exists(path)
    except Unreadable:
        return False


def _capabilities(tree: Tree) -> CapabilityFiles:
    try:
        return capability_files(tree.read_text(_CAPABILITIES) or "")
    except Unreadable:
        return {}
