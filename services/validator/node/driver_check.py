"""The driver check: the wanted driver runs and has all GPUs.

It reads the kernel and the driver's own library, never the driver container. Each problem
names its meaning and the remedy. All functions block.
"""

import msgspec

from libs.contracts.commands import Validate
from libs.contracts.facts import Gpu
from libs.contracts.gpus import REMEDIES
from libs.host import driver_files, holders, modules, pci, system
from libs.host.gpus.port import Gpus, GpusUnavailable
from libs.host.tree import Tree, Unreadable
from libs.policy.mig.geometry import found_geometry, mig_digest

START_TOLERANCE = 2.0
"""Seconds by which Kubernetes and the kernel may disagree on a container's start: both keep whole
seconds. Compared only where the runtime's ids of the containers are not known.
"""


class DriverProbe(msgspec.Struct, frozen=True, kw_only=True):
    problem: str = ""
    """What is wrong and what to do, for people; empty if the driver works."""
    is_undecided: bool = False
    """The machine does not show the run that was to be validated, which says nothing about it."""
    version: str = ""
    digest: str = ""
    """The install digest that the driver container left."""
    started: float = 0.0
    """Start of the container, or of the modules where there is no container."""
    mig_digest: str = ""
    """Of the geometry of the GPUs; empty if they were not described."""
    kernel: str = ""
    """Release of the running kernel."""


def probe_driver(tree: Tree, gpus: Gpus, request: Validate) -> DriverProbe:
    """Check once, and close the library."""
    try:
        if undecided := _undecided(tree, request):
            return DriverProbe(problem=undecided, is_undecided=True)
        kernel = tree.word(system.RELEASE) or ""
        return msgspec.structs.replace(_probe_driver(tree, gpus, request), kernel=kernel)
    except Unreadable as error:
        problem = f"the machine cannot be inspected: {error}"
        return DriverProbe(problem=problem, is_undecided=True)


def _undecided(tree: Tree, request: Validate) -> str:
    """Return why the machine does not show the requested run of the driver; empty if it does."""
    if not tree.word(system.RELEASE):
        return f"the release of the kernel is missing: {system.RELEASE}"
    if not request.pod_uid:
        return ""
    running = holders.containers(tree, request.pod_uid)
    if not running:
        return f"no container of driver pod {request.pod_uid} runs on this machine: it has ended"
    if request.container_id and any(running):
        is_shown = request.container_id in running
    else:
        starts = holders.container_starts(tree, request.pod_uid).values()
        is_shown = any(_is_same_start(start, request) for start in starts)
    if is_shown:
        return ""
    return (
        "another container of the driver pod runs than the one to be validated:"
        " waiting for a new request"
    )


def _is_same_start(start: float, request: Validate) -> bool:
    return not request.started or abs(start - request.started) < START_TOLERANCE


def _probe_driver(tree: Tree, gpus: Gpus, request: Validate) -> DriverProbe:
    if request.pod_uid and not tree.exists(driver_files.READY):
        return DriverProbe(problem="the driver container is not ready: see its log")
    digest = driver_files.installed_digest(tree)
    if request.pod_uid and request.install_digest and digest != request.install_digest:
        return DriverProbe(
            problem=f"the loaded driver was installed from {digest or 'an unknown source'}, but"
            f" {request.install_digest} is wanted: see the log of the driver container"
        )
    module = modules.loaded(tree).get(modules.DRIVER)
    if module is None:
        return DriverProbe(
            problem="module nvidia is not loaded: see the log of the driver container and"
            " the kernel log"
        )
    probe = DriverProbe(
        version=module.version,
        digest=digest,
        started=_start(tree, request),
    )
    digest = ""
    try:
        try:
            problem, digest = _library_problem(tree, gpus, module.version)
        finally:
            gpus.close()
    except GpusUnavailable as error:
        problem = f"NVML cannot be used: {error}"
    return msgspec.structs.replace(probe, problem=problem, mig_digest=digest)


def _start(tree: Tree, request: Validate) -> float:
    """Return the start of the run by which the evidence names it."""
    if not request.pod_uid:
        return modules.driver_loaded_at(tree)
    if request.started:
        return request.started
    return min(holders.container_starts(tree, request.pod_uid).values(), default=0.0)


def _library_problem(tree: Tree, gpus: Gpus, version: str) -> tuple[str, str]:
    """Return what is wrong, empty if nothing is, and the digest of the geometry of the GPUs."""
    library = gpus.open()
    if version and library.driver_version != version:
        return (
            f"NVML is of driver {library.driver_version}, but the kernel has {version}:"
            " remove the other driver that is installed on this machine"
        ), ""
    found = gpus.describe()
    return _gpu_problem(tree, found), mig_digest(found_geometry(found))


def _gpu_problem(tree: Tree, found: tuple[Gpu, ...]) -> str:
    expected = [device for device in pci.devices(tree) or () if pci.is_gpu(device)]
    if len(found) < len(expected):
        known = {gpu.pci.lower()[-12:] for gpu in found}
        missing = [gpu.address for gpu in expected if gpu.address.lower()[-12:] not in known]
        return (
            f"the driver has {len(found)} of {len(expected)} GPUs; {', '.join(missing)} are"
            " missing: see the kernel log for that address"
        )
    broken = {gpu: gpu.problem for gpu in found if gpu.problem is not None}
    if broken:
        return "; ".join(
            f"{gpu.uuid or f'GPU {gpu.index}'}: {REMEDIES.get(problem, problem.value)}"
            for gpu, problem in broken.items()
        )
    return "" if found else "the driver has no GPU: see the kernel log"
