"""The files that tell pods on the node what is proven there.

Names and contents are those of the GPU Operator, because pods of others wait for them. Of Sluice,
the device plugin reads one while NATS is away.
"""

from collections.abc import Collection, Mapping
from typing import Final

from libs.host.tree import Tree
from libs.host.validations import CUDA, FOLDER
from services.validator.node.probe import CUDA_STEP, GPUS_STEP, PLUGIN_STEP, TOOLKIT_STEP

DRIVER: Final = f"{FOLDER}/driver-ready"
TOOLKIT: Final = f"{FOLDER}/toolkit-ready"
PLUGIN: Final = f"{FOLDER}/plugin-ready"

MODULES: Final[Mapping[str, str]] = {
    f"{FOLDER}/nvidia-fs-ready": "nvidia_fs",
    f"{FOLDER}/gdrcopy-ready": "gdrdrv",
    f"{FOLDER}/nvidia-peermem-ready": "nvidia_peermem",
}
"""The files that tell of one kernel module each, which a container beside the driver's may load
long after the driver is proven."""

_HOST: Final = "/host"
_DRIVER_ROOT: Final = "/driver-root"
"""Where the pods that read the file mount the machine's root, and that of the driver."""


def clear(tree: Tree) -> None:
    """Remove all files, before the driver changes or is proven again."""
    for path in (*MODULES, PLUGIN, CUDA, TOOLKIT, DRIVER):
        tree.remove(path)


def write(tree: Tree, passed: Collection[str], *, container_root: str) -> None:
    """Write the files of the steps that passed.

    `container_root` is where a driver container has its root; empty for a driver on the host.
    """
    if GPUS_STEP in passed:
        tree.write(DRIVER, _driver_lines(tree, container_root).encode())
        follow_modules(tree)
    if TOOLKIT_STEP in passed:
        tree.write(TOOLKIT, b"")
    if CUDA_STEP in passed:
        tree.write(CUDA, b"")
    if PLUGIN_STEP in passed:
        write_plugin(tree)


def follow_modules(tree: Tree) -> None:
    """Write the file of each module that is loaded beside a proven driver; remove the others."""
    is_proven = tree.exists(DRIVER)
    for path, module in MODULES.items():
        is_loaded = is_proven and tree.exists(f"/sys/module/{module}")
        if tree.exists(path) == is_loaded:
            continue
        if is_loaded:
            tree.write(path, b"")
        else:
            tree.remove(path)


def write_plugin(tree: Tree) -> None:
    tree.write(PLUGIN, b"")


def _driver_lines(tree: Tree, container_root: str) -> str:
    root = (container_root, _DRIVER_ROOT) if container_root else ("/", _HOST)
    devices = root if container_root and tree.is_folder(f"{container_root}/dev") else ("/", _HOST)
    return (
        f"IS_HOST_DRIVER={'false' if container_root else 'true'}\n"
        f"NVIDIA_DRIVER_ROOT={root[0]}\nDRIVER_ROOT_CTR_PATH={root[1]}\n"
        f"NVIDIA_DEV_ROOT={devices[0]}\nDEV_ROOT_CTR_PATH={devices[1]}\n"
    )
