"""A driver that is installed on the machine itself: it is adopted, and never unloaded."""

import stat
from typing import Final

from libs.host import driver_files, driver_folders, gate, modules
from libs.host.artefacts import installation
from libs.host.tree import Tree

CODE: Final = "host-driver"
MESSAGE: Final = "the driver that is loaded is installed on this machine, not in a container"
REMEDY: Final = (
    "label the node nvidia.com/gpu.deploy.driver=pre-installed, so that its driver is only"
    " validated, or uninstall that driver and reboot the machine"
)


def is_loaded(tree: Tree) -> bool:
    """Whether a driver is loaded which the machine came with.

    None is if a container has been admitted or left its files in this boot: then the driver is its;
    nor if Sluice has installed one.
    """
    return (
        modules.DRIVER in modules.loaded(tree)
        and not driver_files.installed_digest(tree)
        and not tree.exists(f"{driver_files.ROOT}/usr")
        and not gate.list_answers(tree)
        and not installation.has_traces(tree)
        and any(_is_program(tree, f"{folder}/nvidia-smi") for folder in driver_folders.PROGRAMS)
    )


def _is_program(tree: Tree, path: str) -> bool:
    status = tree.status(path)
    return (
        status is not None
        and stat.S_ISREG(status.st_mode)
        and status.st_size > 0
        and bool(status.st_mode & 0o111)
    )
