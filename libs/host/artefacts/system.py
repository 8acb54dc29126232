"""What the system of a machine means for an installation: where libraries belong, and whether it
takes one at all.
"""

from typing import Final

from libs.host import system
from libs.host.tree import Tree

_DEBIAN: Final = frozenset(("debian", "ubuntu"))
_RED_HAT: Final = frozenset(("rhel", "rocky", "almalinux", "centos", "ol", "fedora", "amzn"))
_TRIPLETS: Final = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_WRITTEN: Final = ("/usr", "/usr/lib", "/etc")
_OSTREE: Final = "/run/ostree-booted"


def library_folder(tree: Tree, architecture: str) -> str:
    """Return the machine's folder of libraries."""
    found = system.operating_system(tree)
    if found is not None and found.id in _DEBIAN and architecture in _TRIPLETS:
        return f"/usr/lib/{_TRIPLETS[architecture]}"
    return "/usr/lib64"


def loader_folders(tree: Tree) -> tuple[str, ...]:
    """Return where the machine's loader looks without its cache, which no installation changes."""
    found = system.operating_system(tree)
    if found is not None and found.id in _DEBIAN:
        return tuple(f"{above}/lib/{each}" for each in _TRIPLETS.values() for above in ("/usr", ""))
    return ("/usr/lib64", "/lib64")


def refusal(tree: Tree) -> str:
    """Return why no driver can be installed on this machine; empty if one can."""
    found = system.operating_system(tree)
    name = (found.name or found.id) if found is not None else "an unknown system"
    if found is not None and found.ostree_version:
        return f"{name} is an image of ostree, whose files an update replaces"
    if tree.exists(_OSTREE):
        return f"{name} was booted by ostree, whose files an update replaces"
    for path in _WRITTEN:
        if tree.is_read_only(path):
            return f"{path} of this machine ({name}) is mounted read-only"
    if found is None or found.id not in _DEBIAN | _RED_HAT:
        return f"{name} is not among the systems on which drivers can be installed"
    return ""


REMEDY: Final = (
    "run the driver in a container (a ClusterPolicy with spec.driver.enabled), or bring it with the"
    " machine's image and label the node nvidia.com/gpu.deploy.driver=pre-installed"
)
