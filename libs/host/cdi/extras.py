"""Specs of what containers may get beside GPUs, where the modules for it are loaded.

Those are GPUDirect Storage, the verbs of RDMA, GDRCopy, NVSwitches, and the channels of an IMEX
domain, under the kinds of `nvidia-ctk cdi generate`.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from libs.host.cdi.published import ALL
from libs.host.cdi.roots import root_of, roots
from libs.host.cdi.spec import FILE_OPTIONS, Device, DeviceNode, Edits, Mount, Spec, make_spec
from libs.host.tree import Tree

GDS: Final = "nvidia.com/gds"
MOFED: Final = "nvidia.com/mofed"
GDRCOPY: Final = "nvidia.com/gdrcopy"
IMEX: Final = "nvidia.com/imex-channel"
NVSWITCH: Final = "nvidia.com/nvswitch"
_CHANNEL: Final = "channel"


class _Extra(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    """Where its device files are."""
    names: re.Pattern[str]
    modules: tuple[str, ...]
    """The kernel modules of which one must be loaded."""
    mounts: tuple[str, ...] = ()
    """Of the driver's root, as far as they exist."""


_EXTRAS: Final[Mapping[str, _Extra]] = {
    GDS: _Extra(
        folder="/dev",
        names=re.compile(r"nvidia-fs[0-9]{1,4}"),
        modules=("nvidia_fs",),
        mounts=("/etc/cufile.json", "/run/udev"),
    ),
    MOFED: _Extra(
        folder="/dev/infiniband",
        names=re.compile(r"uverbs[0-9]{1,4}|rdma_cm"),
        modules=("nvidia_fs", "nvidia_peermem"),
    ),
    GDRCOPY: _Extra(folder="/dev", names=re.compile(r"gdrdrv"), modules=("gdrdrv",)),
    IMEX: _Extra(
        folder="/dev/nvidia-caps-imex-channels",
        names=re.compile(rf"{_CHANNEL}(0|[1-9][0-9]{{0,5}})"),
        modules=("nvidia",),
    ),
    NVSWITCH: _Extra(
        folder="/dev", names=re.compile(r"nvidia-nvswitch(?:ctl|[0-9]{1,4})"), modules=("nvidia",)
    ),
}
KINDS: Final = tuple(_EXTRAS)


def find(tree: Tree, driver_root: str) -> dict[str, Spec]:
    """Return the specs by kind; `driver_root` is empty if the machine has the driver.

    Device files are the machine's; those in the driver's root where the machine has none.
    """
    specs: dict[str, Spec] = {}
    for kind, extra in _EXTRAS.items():
        found = _device_files(tree, driver_root, extra)
        if not found:
            continue
        nodes = {
            path: DeviceNode(path=path, host_path="" if host_path == path else host_path)
            for path, host_path in found.items()
        }
        mounts = tuple(each for path in extra.mounts for each in _mount(tree, driver_root, path))
        named = {ALL: tuple(nodes.values())}
        if kind == IMEX:
            named |= {path.rpartition(_CHANNEL)[2]: (node,) for path, node in nodes.items()}
        devices = tuple(
            Device(name=name, container_edits=Edits(device_nodes=named[name], mounts=mounts))
            for name in sorted(named)
        )
        specs[kind] = make_spec(kind, common=Edits(), devices=devices)
    return specs


def traces(tree: Tree, driver_root: str) -> frozenset[str]:
    """Return the device files of all kinds."""
    found = (_device_files(tree, driver_root, extra) for extra in _EXTRAS.values())
    return frozenset(path for each in found for path in each.values())


def _device_files(tree: Tree, driver_root: str, extra: _Extra) -> dict[str, str]:
    """Return where the device files are on the machine, by their paths in a container."""
    if not any(tree.exists(f"/sys/module/{module}") for module in extra.modules):
        return {}
    for root in roots(tree, driver_root):
        if files := root.files(extra.folder, extra.names):
            return {f"{extra.folder}/{name}": files[name] for name in sorted(files)}
    return {}


def _mount(tree: Tree, driver_root: str, path: str) -> tuple[Mount, ...]:
    """Return the mount of a path below the driver's root, whose links are followed within it."""
    root = root_of(tree, driver_root)
    real = None if root is None else root.real(path)
    if root is None or real is None:
        return ()
    mount = Mount(host_path=root.on_machine(real), container_path=path, options=FILE_OPTIONS)
    return (mount,)
