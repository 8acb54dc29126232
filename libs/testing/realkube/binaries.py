"""Find the five binaries of a control plane on this machine, and explain the search."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from libs.testing import go_build

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""All are needed: without a scheduler, DaemonSet pods stay Pending."""

ASSETS = "KUBEBUILDER_ASSETS"
"""The usual variable for a folder of such binaries."""

MODULES = go_build.TOOLS / "kube"
"""The Go modules that pin the versions of `make kube`."""

_PINS = ("go.mod", "go.sum", "etcd/go.mod", "etcd/go.sum")


@dataclass(frozen=True, kw_only=True, slots=True)
class Binaries:
    """The fields are in the order of `NAMES`."""

    etcd: Path
    apiserver: Path
    controller_manager: Path
    scheduler: Path
    kubectl: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class BinarySearch:
    binaries: Binaries | None
    explanation: str
    """One line: the location found and those skipped before it, or what to do."""


def find_binaries(environ: Mapping[str, str], *, modules: Path = MODULES) -> BinarySearch:
    """Search the assets folder, the PATH, then the cache of `make kube`, for all five."""
    skipped: list[str] = []
    for location, search in _locations(environ, modules):
        if search is None:
            skipped.append(location)
            continue
        found = [search(name) for name in NAMES]
        paths = [path.absolute() for path in found if path]
        if len(paths) == len(NAMES):
            binaries = Binaries(**dict(zip(Binaries.__slots__, paths, strict=True)))
            explanation = "; ".join([f"real control plane from {location}", *skipped])
            return BinarySearch(binaries=binaries, explanation=explanation)
        missing = [name for name, path in zip(NAMES, found, strict=True) if not path]
        skipped.append(f"{location} lacks {', '.join(missing) if paths else 'all five'}")
    explanation = f"no real control plane: {'; '.join(skipped)}; {_what_to_do(environ, modules)}"
    return BinarySearch(binaries=None, explanation=explanation)


def cache_folder(environ: Mapping[str, str], *, modules: Path = MODULES) -> Path:
    """Return the folder of `make kube`, named by pinned versions and platform."""
    pins = [modules / pin for pin in _PINS]
    return go_build.cache_folder(environ, "kube", pinned_version(modules), pins)


def pinned_version(modules: Path = MODULES) -> str:
    """Return the Kubernetes release that the modules pin."""
    return go_build.pinned_version(modules / "go.mod", "k8s.io/kubernetes")


def _locations(
    environ: Mapping[str, str], modules: Path
) -> Iterator[tuple[str, Callable[[str], Path | None] | None]]:
    """Yield each location with a function to search it, or None and why it is absent."""
    if assets := environ.get(ASSETS):
        yield f"{ASSETS}={assets}", partial(_in_folder, Path(assets))
    else:
        yield f"{ASSETS} is not set", None
    yield "the PATH", partial(_on_path, environ.get("PATH", ""))
    if not modules.is_dir():
        yield f"there are no Go modules in {modules}", None
    elif (location := cache_folder(environ, modules=modules)).is_dir():
        yield f"the cache {location}", partial(_in_folder, location)
    else:
        yield f"there is no cache {location}", None


def _in_folder(folder: Path, name: str) -> Path | None:
    file = folder / name
    return file if file.is_file() and os.access(file, os.X_OK) else None


def _on_path(path: str, name: str) -> Path | None:
    file = shutil.which(name, path=path)
    return Path(file) if file else None


def _what_to_do(environ: Mapping[str, str], modules: Path) -> str:
    if not modules.is_dir():
        return f"set {ASSETS} to a directory that has all five"
    if shutil.which("go", path=environ.get("PATH", "")):
        return "Go is installed: run `make kube` to build it"
    return (
        f"there is no Go either: install Go and run `make kube`, or set {ASSETS} to a directory "
        "that has all five"
    )
