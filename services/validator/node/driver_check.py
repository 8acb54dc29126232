"""The first step of the chain: the driver that runs is the one that is meant, and it has its GPUs.

It asks the kernel and the driver's own library, never the driver's container. Each failure says
what it means and what to do. Blocks.
"""

import msgspec

from libs.contracts.commands import Validate
from libs.host import driver_files, holders, modules, pci
from libs.host.gpus.port import Gpus, GpusUnavailable
from libs.host.tree import Tree

SAME_START = 1.0
"""Seconds by which Kubernetes' word on a container's start may differ from the kernel's."""


class DriverProbe(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of the driver."""

    trouble: str = ""
    """What is wrong and what to do, for a person; empty: nothing."""
    version: str = ""
    digest: str = ""
    """The install digest that its container left."""
    started: float = 0.0
    """Start of its container, or of its modules where there is none."""


def probe_driver(tree: Tree, gpus: Gpus, asked: Validate) -> DriverProbe:
    """Look once; the library is let go of at the end."""
    run = _run(tree, asked)
    if isinstance(run, str):
        return DriverProbe(trouble=run)
    digest = driver_files.installed_digest(tree)
    if asked.pod_uid and asked.install_digest and digest != asked.install_digest:
        return DriverProbe(
            trouble=f"the loaded driver was installed from {digest or 'nobody knows what'}, and"
            f" {asked.install_digest} is wanted: see the log of the driver container"
        )
    loaded = modules.loaded(tree).get(modules.DRIVER)
    if loaded is None:
        return DriverProbe(
            trouble="module nvidia is not in the kernel: see the log of the driver container, and"
            " the kernel's"
        )
    found = DriverProbe(version=loaded.version, digest=digest, started=run)
    try:
        return msgspec.structs.replace(found, trouble=_library(tree, gpus, loaded.version))
    except GpusUnavailable as error:
        return msgspec.structs.replace(
            found,
            trouble=f"the driver's library does not answer ({error}): see the kernel's log for Xid",
        )
    finally:
        gpus.close()


def _run(tree: Tree, asked: Validate) -> float | str:
    """The start of the run that is to be proven; or why it is not the one that runs."""
    if not asked.pod_uid:
        return asked.started
    starts = holders.container_starts(tree, asked.pod_uid)
    if not starts:
        return f"no container of driver pod {asked.pod_uid} is on this machine: it ended again"
    if not tree.exists(driver_files.READY):
        return "the driver container does not say that it is up: see its log"
    if not asked.started:
        return min(starts.values())
    if any(abs(start - asked.started) < SAME_START for start in starts.values()):
        return asked.started
    return "the driver's container was started anew since this was asked: it is asked again"


def _library(tree: Tree, gpus: Gpus, version: str) -> str:
    """What is wrong by the word of the driver's library."""
    library = gpus.open()
    if version and library.driver_version != version:
        return (
            f"the library is of driver {library.driver_version}, and the kernel has {version}:"
            " remove the driver that is installed beside ours"
        )
    there = gpus.describe()
    expected = [device for device in pci.devices(tree) or () if pci.is_gpu(device)]
    if len(there) < len(expected):
        known = {gpu.pci.lower()[-12:] for gpu in there}
        lacking = [one.address for one in expected if one.address.lower()[-12:] not in known]
        return (
            f"the driver has {len(there)} of {len(expected)} GPUs; {', '.join(lacking)} did not"
            " come up: see the kernel's log for that address"
        )
    hung = [gpu.uuid for gpu in there if gpu.hung]
    if hung:
        return f"{', '.join(hung)} does not answer: reset the GPU or reboot the machine"
    return "" if there else "the driver has no GPU at all: see the kernel's log"
