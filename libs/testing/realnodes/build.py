"""`make node`: build what a real node needs, once, into a cache outside the checkout."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from libs.testing import debian, go_build, oci
from libs.testing.go_build import TOOLS, Build, Program, pinned_version, run_command
from libs.testing.oci import Files, ImageConfig
from libs.testing.realkube.build import kubernetes_program

COMMAND: Final = "make node"
MODULES: Final = TOOLS / "node"

PAUSE_IMAGE: Final = "localhost/pause:1"
BUSYBOX_IMAGE: Final = "localhost/busybox:1"

_CONTAINERD: Final = "github.com/containerd/containerd/v2"
_CONTAINERD_1_7: Final = "github.com/containerd/containerd"
_RUNC: Final = "github.com/opencontainers/runc"
_CNI: Final = "github.com/containernetworking/plugins"
_CNI_PLUGINS: Final = {"bridge": "main", "loopback": "main", "host-local": "ipam"}
_PACKAGES: Final = ("busybox-static", "libseccomp-dev")
"""Debian packages that are unpacked, not installed."""
_MODULES_OF_NODE: Final = ("cni", "containerd", "kubelet", "runc")
_WITHOUT_GO: Final = (
    "kubelet, containerd, runc and the CNI plugins are built with Go, and there is no `go` on the "
    "PATH: install it"
)
_RECIPE: Final = "1"
"""Raise it when the same modules give another folder."""


class Containerd(StrEnum):
    """Which containerd a node runs."""

    V2 = "2"
    V1_7 = "1.7"


@dataclass(frozen=True, kw_only=True, slots=True)
class Programs:
    """The folders with what a node runs."""

    node: Path
    containerd_1_7: Path

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> Self:
        """Return where they are, or will be."""
        return cls(node=cache_folder(environ), containerd_1_7=_folder_of_1_7(environ))

    def containerd(self, version: Containerd) -> Path:
        """Return the folder with this containerd, its shim, and ctr."""
        return self.node if version is Containerd.V2 else self.containerd_1_7


def build(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    """Return the folder with the programs and images, building them if needed."""
    folder = _build_node(environ, report=report)
    _build_containerd_1_7(environ, report=report)
    return folder


def _build_node(environ: Mapping[str, str], *, report: Callable[[str], None]) -> Path:
    folder = cache_folder(environ)
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(prefix="sluice-packages-") as unpacked:
        packages = Path(unpacked)
        report(f"Debian packages: {', '.join(_PACKAGES)} …")
        debian.unpack(_PACKAGES, packages)
        return Build(
            command=COMMAND,
            without_go=_WITHOUT_GO,
            folder=folder,
            modules=MODULES,
            programs=_programs(packages),
            finish=lambda partial: _write_images(partial, packages),
        ).run(environ, report=report)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of `make node`, named by pinned versions and platform."""
    pins = [pin for name in _MODULES_OF_NODE for pin in sorted((MODULES / name).glob("go.*"))]
    return go_build.cache_folder(environ, "node", _kubelet_version(), pins, _RECIPE)


def _folder_of_1_7(environ: Mapping[str, str]) -> Path:
    module = MODULES / "containerd17"
    version = pinned_version(module / "go.mod", _CONTAINERD_1_7)
    return go_build.cache_folder(environ, "containerd", version, sorted(module.glob("go.*")))


def _build_containerd_1_7(environ: Mapping[str, str], *, report: Callable[[str], None]) -> None:
    Build(
        command=COMMAND,
        without_go=_WITHOUT_GO,
        folder=_folder_of_1_7(environ),
        modules=MODULES,
        programs=_containerd(_CONTAINERD_1_7, module="containerd17"),
    ).run(environ, report=report)


def _containerd(package: str, *, module: str) -> list[Program]:
    version = pinned_version(MODULES / module / "go.mod", package).removeprefix("v")
    return [
        Program(
            name=name,
            package=f"{package}/cmd/{name}",
            module=module,
            variables={f"{package}/version.Version": version},
            tags="no_btrfs no_devmapper no_zfs no_aufs",
        )
        for name in ("containerd", "ctr", "containerd-shim-runc-v2")
    ]


def _programs(packages: Path) -> list[Program]:
    runc = pinned_version(MODULES / "runc" / "go.mod", _RUNC)
    seccomp = next(packages.rglob("pkgconfig/libseccomp.pc"))
    return [
        *_containerd(_CONTAINERD, module="containerd"),
        Program(
            name="runc",
            package=_RUNC,
            module="runc",
            variables={"main.version": runc.removeprefix("v")},
            tags="seccomp netgo osusergo",
            environ={
                "PKG_CONFIG_LIBDIR": str(seccomp.parent),
                "PKG_CONFIG_SYSROOT_DIR": str(packages),
            },
            static=True,
        ),
        *(
            Program(name=f"cni/{name}", package=f"{_CNI}/plugins/{kind}/{name}", module="cni")
            for name, kind in _CNI_PLUGINS.items()
        ),
        kubernetes_program("kubelet", _kubelet_version(), module="kubelet"),
    ]


def _kubelet_version() -> str:
    return pinned_version(MODULES / "kubelet" / "go.mod", "k8s.io/kubernetes")


def _write_images(folder: Path, packages: Path) -> None:
    """Write two images, of which busybox is all."""
    busybox = next(packages.rglob("bin/busybox"))
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    layer = Files(
        files={
            "bin/busybox": busybox,
            "etc/passwd": b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
        },
        links={f"bin/{name}": "busybox" for name in applets.stdout.split() if name != "busybox"},
    ).tar()
    (folder / "images").mkdir()
    commands = {
        PAUSE_IMAGE: ImageConfig(entrypoint=["/bin/sleep", "2147483647"]),
        BUSYBOX_IMAGE: ImageConfig(cmd=["/bin/sh"]),
    }
    _, architecture = go_build.go_target()
    for name, config in commands.items():
        target = folder / "images" / f"{name.split('/')[1].split(':')[0]}.tar"
        oci.write_image(target, name, [layer], config, architecture=architecture)


def main() -> int:
    """Build, as `make node`."""
    return run_command(
        lambda report: build(os.environ, report=report),
        command=COMMAND,
        what="kubelet, containerd, runc, CNI plugins and two images are",
    )


if __name__ == "__main__":
    sys.exit(main())
