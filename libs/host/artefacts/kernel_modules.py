"""The modules of an artefact on a machine: why they cannot be used, and their loading."""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from libs.host import modules
from libs.host.artefacts import store
from libs.host.artefacts.load_order import (
    PEERMEM,
    WANTED,
    Unloadable,
    builtin_names,
    load_order,
    paths_by_name,
)
from libs.host.artefacts.module_info import Module
from libs.host.artefacts.store import Index
from libs.host.files import fingerprint
from libs.host.linux import Linux, Loaded
from libs.host.tree import Tree

NO_MODULES: Final = "no-modules"
_OF_ONE_VERSION: Final = frozenset((*WANTED, "nvidia_drm", PEERMEM))
_NVML: Final = "libnvidia-ml.so."


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why an artefact cannot be installed on this machine."""

    code: str
    message: str
    remedy: str


def module_problems(tree: Tree, index: Index, kernel: str) -> Iterator[Problem]:
    """Yield what forbids to load an artefact's modules into this kernel, as far as is known."""
    if modules.DRIVER not in index.modules_for(kernel):
        yield _without_modules(index, kernel)
        return
    try:
        # Modules of another driver that are loaded will have been unloaded.
        _order(tree, index, kernel, loaded=modules.loaded(tree).keys() - modules.UNLOAD_ORDER)
    except Unloadable as error:
        yield Problem(
            code=NO_MODULES,
            message=f"{error}, for kernel {kernel}",
            remedy="add that module to the artefact, or install the package of this kernel's"
            " further modules on the machine (on Ubuntu linux-modules-extra)",
        )
    versions = _versions(index, kernel)
    if len(versions) > 1:
        yield Problem(
            code="versions",
            message="modules and libraries of the artefact are of different drivers:"
            f" {', '.join(versions)}",
            remedy="name files of one version in ConfigMap sluice-driver-artefacts",
        )


def _without_modules(index: Index, kernel: str) -> Problem:
    known = sorted({each.kernel for each in index.modules if each.name == modules.DRIVER})
    unbuilt = (
        f"; {', '.join(index.sources[:3])} has only what modules are made of, and Sluice makes none"
        if index.sources
        else ""
    )
    return Problem(
        code=NO_MODULES,
        message=f"the artefact has no modules for kernel {kernel}, but"
        f" for {', '.join(known) or 'no kernel'}{unbuilt}",
        remedy=f"build nvidia.ko and its companions for kernel {kernel} elsewhere, such as with"
        " DKMS, and add a file that has them to the artefact",
    )


def _versions(index: Index, kernel: str) -> list[str]:
    """Return the versions of modules and libraries, without those that do not say theirs."""
    own = index.modules_for(kernel)
    found = {own[name].version for name in _OF_ONE_VERSION & own.keys()}
    libraries = (each.path.rpartition(_NVML)[2] for each in index.files if _NVML in each.path)
    return sorted({*found, *(each for each in libraries if each.count(".") > 0)} - {""})


def unsigned(index: Index, kernel: str) -> list[str]:
    """Return the modules that have no signature at all."""
    own = index.modules_for(kernel)
    return [name for name in WANTED if name in own and own[name].signed is False]


def load(tree: Tree, linux: Linux, artefact: str, index: Index, kernel: str) -> str:
    """Load the driver's modules; return why that failed, or an empty text."""
    try:
        order = _order(tree, index, kernel, loaded=modules.loaded(tree))
    except Unloadable as error:
        return str(error)
    for each in order:
        path = each if isinstance(each, str) else store.content_path(artefact, each.content)
        if not isinstance(each, str) and not _is_as_unpacked(tree, path, each):
            return store.damage_of(path)
        result = linux.load(path)
        name = path if isinstance(each, str) else each.name
        # The kernel refuses it where its drivers for RDMA let no GPUs in; CUDA works all the same.
        if not isinstance(result, Loaded) and name != PEERMEM:
            return f"the kernel does not take module {name}: {result.why}"
    return ""


def _is_as_unpacked(tree: Tree, path: str, module: Module) -> bool:
    return not module.sha256 or fingerprint(tree, path) == module.sha256


def left_out(index: Index, kernel: str, loaded: Collection[str]) -> str:
    """Return the module that the artefact has, and that may stay out; empty if it is loaded."""
    has_it = PEERMEM in index.modules_for(kernel)
    return PEERMEM if has_it and PEERMEM not in loaded else ""


def _order(
    tree: Tree, index: Index, kernel: str, loaded: Collection[str]
) -> tuple[Module | str, ...]:
    folder = f"/lib/modules/{kernel}"
    return load_order(
        index.modules_for(kernel),
        loaded=loaded,
        builtin=builtin_names(_listing(tree, f"{folder}/modules.builtin")),
        others=paths_by_name(kernel, _listing(tree, f"{folder}/modules.dep")),
    )


def _listing(tree: Tree, path: str) -> str:
    try:
        return b"".join(tree.chunks(path)).decode(errors="replace")
    except FileNotFoundError:
        return ""
