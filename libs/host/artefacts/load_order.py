"""In which order kernel modules are loaded, with those of the kernel that they need. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from libs.host import modules
from libs.host.artefacts.module_info import Module

WANTED: Final = (modules.DRIVER, "nvidia_uvm", "nvidia_modeset")
"""What computing needs; modules that an artefact lacks beside the first are left out."""

PEERMEM: Final = "nvidia_peermem"
"""For GPUDirect RDMA; loaded last, and never with a stack of RDMA that the machine does not use."""


class Unloadable(Exception):
    """A module needs another one that neither the artefact nor the kernel has."""


def paths_by_name(kernel: str, listing: str) -> dict[str, tuple[str, ...]]:
    """Return, by name, the files of the kernel's own modules: what each needs first, then itself.

    `listing` is the kernel's `modules.dep`.
    """
    folder = f"/lib/modules/{kernel}"
    found: dict[str, tuple[str, ...]] = {}
    for line in listing.splitlines():
        path, colon, needed = line.partition(":")
        if colon:
            paths = (*reversed(needed.split()), path.strip())
            found[_name(path)] = tuple(f"{folder}/{each}" for each in paths)
    return found


def builtin_names(listing: str) -> frozenset[str]:
    """Return the names of modules that are part of the kernel, from its `modules.builtin`."""
    return frozenset(_name(line) for line in listing.splitlines())


def load_order(
    own: Mapping[str, Module],
    *,
    loaded: Collection[str],
    builtin: Collection[str],
    others: Mapping[str, Sequence[str]],
) -> tuple[Module | str, ...]:
    """Return what is to be loaded in order: modules of the artefact, and paths of the kernel's."""
    order: list[Module | str] = []
    done: set[str] = {*loaded, *builtin}

    def add(name: str, needed_by: str) -> None:
        if name in done:
            return
        done.add(name)
        module = own.get(name)
        if module is not None:
            for each in module.depends:
                add(each, name)
            order.append(module)
        elif name in others:
            for path in others[name]:
                if _name(path) == name or _name(path) not in done:
                    done.add(_name(path))
                    order.append(path)
        else:
            raise Unloadable(
                f"module {needed_by} needs module {name}, which neither the artefact nor the"
                " kernel has"
            )

    for name in WANTED:
        if name in own:
            add(name, name)
    if PEERMEM in own and done.issuperset(own[PEERMEM].depends):
        add(PEERMEM, PEERMEM)
    return tuple(order)


def _name(path: str) -> str:
    return path.strip().rpartition("/")[2].partition(".")[0].replace("-", "_")
