"""The steps `driver` and `gpus` of one try: the wanted driver runs, and its GPUs work.

They read the kernel and the driver's own library, never the driver container. Each problem
names its meaning and the remedy. All functions block.
"""

from contextlib import closing
from typing import Final

from msgspec.structs import replace

from libs.contracts.commands import Validate
from libs.contracts.diagnoses import Diagnosis, describe
from libs.contracts.gpus import FabricState, GpuProblem
from libs.health.node import Records
from libs.host import diagnosing, driver_files, holders, modules, pci, system
from libs.host.gpus.port import Gpus, GpusUnavailable
from libs.host.module_log import ModuleLog
from libs.host.tree import Tree, Unreadable
from libs.policy.mig.geometry import found_geometry, mig_digest
from services.validator.node.cuda_check import devices
from services.validator.node.gpu_check import check_gpus, listed
from services.validator.node.probe import GPUS_STEP, Probe

_DIAGNOSES: Final = {
    GpuProblem.VERSION_MISMATCH: Diagnosis.VERSION_MISMATCH,
    GpuProblem.NO_DEVICE_FILES: Diagnosis.NO_DEVICE_FILES,
}
_UNJOINED: Final = frozenset({FabricState.NOT_STARTED, FabricState.IN_PROGRESS})

START_TOLERANCE = 2.0
"""Seconds by which Kubernetes and the kernel may disagree on a container's start: both keep whole
seconds. Compared only where the runtime's ids of the containers are not known.
"""


def probe_driver(tree: Tree, gpus: Gpus, request: Validate, *, known: Records = ()) -> Probe:
    """Check once, and close the library. `known`: the GPUs that were listed earlier."""
    try:
        if undecided := _undecided(tree, request):
            return Probe(problem=undecided, is_undecided=True, gpus=known)
        kernel = tree.word(system.RELEASE) or ""
        probe = _probe_driver(tree, request)
        if not probe.problem:
            probe = _probe_library(tree, gpus, request, probe, known)
        return replace(probe, kernel=kernel, gpus=probe.gpus or known)
    except Unreadable as error:
        problem = f"the machine cannot be inspected: {error}"
        return Probe(problem=problem, is_undecided=True, gpus=known)


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


def probe_obstacle(tree: Tree) -> Probe | None:
    """Return why no driver is loaded, where that has a name; None if it has none."""
    with closing(ModuleLog(tree)) as log:
        obstacle = diagnosing.obstacle(tree, log)
    if obstacle is None:
        return None
    problem = f"module nvidia is not loaded: {describe(obstacle)}"
    kernel = tree.word(system.RELEASE) or ""
    return Probe(problem=problem, diagnosis=obstacle, kernel=kernel)


def _probe_driver(tree: Tree, request: Validate) -> Probe:
    module = modules.loaded(tree).get(modules.DRIVER)
    if module is None and (probe := probe_obstacle(tree)) is not None:
        return probe
    if request.pod_uid and not tree.exists(driver_files.READY):
        return Probe(problem="the driver container is not ready: see its log")
    digest = driver_files.installed_digest(tree)
    if request.pod_uid and request.install_digest and digest != request.install_digest:
        return Probe(
            problem=f"the loaded driver was installed from {digest or 'an unknown source'}, but"
            f" {request.install_digest} is wanted: see the log of the driver container"
        )
    if module is None:
        return Probe(
            problem="module nvidia is not loaded: see the log of the driver container and"
            " the kernel log"
        )
    return Probe(version=module.version, digest=digest, started=_start(tree, request))


def _start(tree: Tree, request: Validate) -> float:
    """Return the start of the run by which the evidence names it."""
    if not request.pod_uid:
        return modules.driver_loaded_at(tree)
    if request.started:
        return request.started
    return min(holders.container_starts(tree, request.pod_uid).values(), default=0.0)


def _probe_library(
    tree: Tree, gpus: Gpus, request: Validate, probe: Probe, known: Records
) -> Probe:
    """Continue with the driver's library, and with the GPUs that it lists."""
    try:
        try:
            library = gpus.open()
            if probe.version and library.driver_version != probe.version:
                problem = _mismatch(library.driver_version, probe.version)
                return replace(probe, problem=problem, diagnosis=Diagnosis.VERSION_MISMATCH)
            found = gpus.describe()
            samples = gpus.sample()
        finally:
            gpus.close()
    except GpusUnavailable as error:
        diagnosis = _DIAGNOSES.get(error.problem) if error.problem else None
        return replace(probe, problem=f"NVML cannot be used: {error}", diagnosis=diagnosis)
    on_bus = pci.devices(tree) or ()
    gpus_on_bus = [device for device in on_bus if pci.is_gpu(device)]
    check = check_gpus(
        found,
        samples,
        known=known,
        devices=gpus_on_bus,
        failed_before=request.failed_gpus,
        said=_said_of_gpus(tree) if len(found) < len(gpus_on_bus) else {},
    )
    return replace(
        probe.at_step(GPUS_STEP, problem=check.problem, found=check.found),
        mig_digest=mig_digest(found_geometry(found)),
        gpus=listed(found, known),
        devices=devices(check.working),
        switches=sum(map(pci.is_switch, on_bus)),
        unjoined=sum(gpu.fabric_state in _UNJOINED for gpu in check.working),
        sound=check.sound,
    )


def _said_of_gpus(tree: Tree) -> dict[str, str]:
    with closing(ModuleLog(tree)) as log:
        return log.unstarted_gpus()


def _mismatch(library: str, kernel: str) -> str:
    return (
        f"NVML is of driver {library}, but the kernel has {kernel}:"
        " remove the other driver that is installed on this machine"
    )
