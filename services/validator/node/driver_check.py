"""The driver check: the wanted driver runs and has all GPUs.

It reads the kernel and the driver's own library, never the driver container. Each problem
names its meaning and the remedy. All functions block.
"""

import msgspec

from libs.contracts.commands import Validate
from libs.host import driver_files, holders, modules, pci, system
from libs.host.gpus.port import Gpus, GpusUnavailable
from libs.host.tree import Tree, Unreadable

START_TOLERANCE = 1.0
"""Seconds by which Kubernetes and the kernel may disagree on a container's start."""


class DriverProbe(msgspec.Struct, frozen=True, kw_only=True):
    problem: str = ""
    """What is wrong and what to do, for people; empty if the driver works."""
    version: str = ""
    digest: str = ""
    """The install digest that the driver container left."""
    started: float = 0.0
    """Start of the container, or of the modules where there is no container."""


def probe_driver(tree: Tree, gpus: Gpus, request: Validate) -> DriverProbe:
    """Check once, and close the library."""
    try:
        return _probe_driver(tree, gpus, request)
    except Unreadable as error:
        return DriverProbe(problem=f"the machine cannot be inspected: {error}")


def _probe_driver(tree: Tree, gpus: Gpus, request: Validate) -> DriverProbe:
    started = _run_start(tree, request)
    if isinstance(started, str):
        return DriverProbe(problem=started)
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
    probe = DriverProbe(version=module.version, digest=digest, started=started)
    try:
        problem = _library_problem(tree, gpus, module.version)
    except GpusUnavailable as error:
        problem = f"NVML does not answer ({error}): see the kernel log for Xid"
    finally:
        gpus.close()
    return msgspec.structs.replace(probe, problem=problem)


def running_kernel(tree: Tree) -> str:
    """Return the release of the kernel; empty, which voids the evidence, if it is unreadable."""
    try:
        kernel = system.kernel(tree)
    except Unreadable:
        return ""
    return kernel.release if kernel else ""


def _run_start(tree: Tree, request: Validate) -> float | str:
    """Return the start of the requested run of the driver, or why another or none runs."""
    if not request.pod_uid:
        return modules.driver_loaded_at(tree)
    starts = holders.container_starts(tree, request.pod_uid)
    if not starts:
        return f"no container of driver pod {request.pod_uid} runs on this machine: it has ended"
    if not tree.exists(driver_files.READY):
        return "the driver container is not ready: see its log"
    if not request.started:
        return min(starts.values())
    if any(abs(start - request.started) < START_TOLERANCE for start in starts.values()):
        return request.started
    return (
        "the driver container restarted after the validation was requested:"
        " waiting for a new request"
    )


def _library_problem(tree: Tree, gpus: Gpus, version: str) -> str:
    library = gpus.open()
    if version and library.driver_version != version:
        return (
            f"NVML is of driver {library.driver_version}, but the kernel has {version}:"
            " remove the other driver that is installed on this machine"
        )
    found = gpus.describe()
    expected = [device for device in pci.devices(tree) or () if pci.is_gpu(device)]
    if len(found) < len(expected):
        known = {gpu.pci.lower()[-12:] for gpu in found}
        missing = [gpu.address for gpu in expected if gpu.address.lower()[-12:] not in known]
        return (
            f"the driver has {len(found)} of {len(expected)} GPUs; {', '.join(missing)} are"
            " missing: see the kernel log for that address"
        )
    hung = [gpu.uuid for gpu in found if gpu.hung]
    if hung:
        return f"{', '.join(hung)} does not answer: reset the GPU or reboot the machine"
    return "" if found else "the driver has no GPU: see the kernel log"
