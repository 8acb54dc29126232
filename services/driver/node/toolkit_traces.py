"""What can be seen, without NVML, of what CDI specs are made of."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from libs.host import ldcache, modules, persistence
from libs.host.cdi import device_files, extras, published
from libs.host.cdi.spec import MalformedSpec, decode
from libs.host.tree import Tree

KINDS: Final = (published.MANAGEMENT_KIND, *extras.KINDS, published.GPU_KIND)
"""The kinds of the specs, in the order in which they are written: that of GPUs is used first."""
_MODULE: Final = f"/sys/module/{modules.DRIVER}"
_CAPABILITIES: Final = "/proc/driver/nvidia/capabilities"
_GPU: Final = re.compile(r"gpu[0-9]+")
_INSTANCE: Final = re.compile(r"[gc]i[0-9]+")
_OF_ROOT: Final = ("/", ldcache.PATH, "/usr/bin", persistence.SOCKET)
"""Paths that change when a driver is installed below a root."""


class DriverRun(msgspec.Struct, frozen=True, kw_only=True):
    """A driver in the kernel, from its load to its unload."""

    version: str
    loaded_at: float


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    driver: DriverRun | None
    devices: frozenset[str]
    instances: tuple[str, ...]
    """The MIG instances, by their folders in `/proc`."""
    files: tuple[tuple[int, int, int] | None, ...]
    """Of each root: identity and time of change of some paths."""
    missing: tuple[str, ...]
    """What the specs mount and is not there any more: a container with them does not start."""
    specs: tuple[str, ...]
    """A fingerprint of each spec."""
    conflicts: tuple[str, ...]


def traces(tree: Tree, roots: Sequence[str]) -> Traces:
    data = [tree.data(published.file_of(kind)) or b"" for kind in KINDS]
    return Traces(
        driver=driver_run(tree),
        devices=frozenset(
            path
            for root in roots
            for path in (
                *device_files.find(tree, root.rstrip("/")).paths,
                *extras.traces(tree, root.rstrip("/")),
            )
        ),
        instances=tuple(_instances(tree)),
        files=tuple(
            _file(tree, f"{root.rstrip('/')}{each}") for root in roots for each in _OF_ROOT
        ),
        missing=tuple(path for each in data for path in _missing(tree, each)),
        specs=tuple(hashlib.sha256(each).hexdigest() for each in data),
        conflicts=published.conflicts(tree, published.GPU_FILE, published.GPU_KIND),
    )


def driver_run(tree: Tree) -> DriverRun | None:
    """Return the driver in the kernel."""
    version = tree.word(f"{_MODULE}/version")
    if version is None:
        return None
    return DriverRun(version=version, loaded_at=modules.driver_loaded_at(tree))


def _instances(tree: Tree) -> Iterator[str]:
    for gpu in filter(_GPU.fullmatch, tree.names(_CAPABILITIES)):
        folder = f"{_CAPABILITIES}/{gpu}/mig"
        for instance in filter(_INSTANCE.fullmatch, tree.names(folder)):
            yield f"{gpu}/{instance}"
            for compute in filter(_INSTANCE.fullmatch, tree.names(f"{folder}/{instance}")):
                yield f"{gpu}/{instance}/{compute}"


def _file(tree: Tree, path: str) -> tuple[int, int, int] | None:
    status = tree.status(path)
    return None if status is None else (status.st_dev, status.st_ino, status.st_mtime_ns)


def _missing(tree: Tree, data: bytes) -> Iterator[str]:
    try:
        spec = decode(data)
    except MalformedSpec:
        return
    edits = (spec.container_edits, *(each.container_edits for each in spec.devices))
    for path in dict.fromkeys(mount.host_path for each in edits for mount in each.mounts):
        if not tree.exists(path):
            yield path
