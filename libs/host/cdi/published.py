"""The CDI specs on a machine, in the folder that container runtimes read for generated ones."""

import re
from typing import Final

from libs.host.cdi.spec import MalformedSpec, Spec, decode, encode
from libs.host.tree import Tree, Unreadable

FOLDER: Final = "/var/run/cdi"
"""Emptied by a reboot, as devices and driver are."""


def file_of(kind: str) -> str:
    """Return the path of a kind's spec."""
    return f"{FOLDER}/{kind.replace('/', '-')}.json"


GPU_KIND: Final = "nvidia.com/gpu"
GPU_FILE: Final = file_of(GPU_KIND)
MANAGEMENT_KIND: Final = "management.nvidia.com/gpu"
MANAGEMENT_FILE: Final = file_of(MANAGEMENT_KIND)
ALL: Final = "all"
"""The device that stands for all of its kind."""
_SUFFIXES: Final = (".json", ".yaml")
"""Of the files that container runtimes read."""


def devices(tree: Tree) -> frozenset[str]:
    """Return the names of the GPU devices that a container can have now.

    A GPU is named by its UUID and its index, a MIG device by its UUID and `<gpu>:<number>`. There
    are none while the spec is missing or not readable, nor while another file defines GPUs too:
    then the runtime resolves neither's.
    """
    return devices_of(tree, GPU_KIND)


def devices_of(tree: Tree, kind: str) -> frozenset[str]:
    """Return the names of the devices of a kind that a container can have now."""
    spec = _resolved_spec(tree, kind)
    return frozenset() if spec is None else frozenset(each.name for each in spec.devices)


def gpu_spec(tree: Tree) -> Spec | None:
    """Return the spec of GPUs, if runtimes resolve it."""
    return _resolved_spec(tree, GPU_KIND)


def _resolved_spec(tree: Tree, kind: str) -> Spec | None:
    path = file_of(kind)
    try:
        data = tree.data(path)
        if data is None or conflicts(tree, path, kind):
            return None
        spec = decode(data)
    except (MalformedSpec, Unreadable):
        return None
    return spec if spec.kind == kind else None


def conflicts(tree: Tree, path: str, kind: str) -> tuple[str, ...]:
    """Return the other files of the folder that define devices of this kind."""
    quoted = rf"""["']?{re.escape(kind)}["']?"""
    declares = re.compile(rf"""["']?\bkind["']?\s*:\s*{quoted}\s*(,|\}}|#|$)""", re.MULTILINE)
    paths = (f"{FOLDER}/{name}" for name in tree.names(FOLDER) if name.endswith(_SUFFIXES))
    return tuple(
        each for each in paths if each != path and declares.search(tree.read_text(each) or "")
    )


def put(tree: Tree, path: str, spec: Spec) -> bool:
    """Write a spec, whole or not at all; return False if the file has this content already."""
    data = encode(spec)
    if tree.data(path) == data:
        return False
    tree.write(path, data)
    return True


def remove(tree: Tree, path: str) -> bool:
    """Remove a spec; return False if there is none."""
    if not tree.exists(path):
        return False
    tree.remove(path)
    return True
