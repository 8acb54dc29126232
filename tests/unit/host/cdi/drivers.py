"""Machines with a driver, as packages of Debian, of RHEL and a driver container lay it out."""

import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from libs.contracts.facts import Gpu, Mig
from libs.host.cdi import device_files, driver_root
from libs.host.cdi.generate import Generated, generate
from libs.host.tree import Tree
from tests.builders import gpus
from tests.builders.machine_files import link, put

VERSION = "580.95.05"
CONTAINER_ROOT = "/run/nvidia/driver"
SONAMES = {
    "libcuda": "libcuda.so.1",
    "libcudadebugger": "libcudadebugger.so.1",
    "libnvcuvid": "libnvcuvid.so.1",
    "libnvidia-encode": "libnvidia-encode.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-opencl": "libnvidia-opencl.so.1",
    "libnvidia-opticalflow": "libnvidia-opticalflow.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-gpucomp": "",
    "libnvidia-glcore": "",
}
"""The libraries of the driver, and the name by which each is opened if that is not its own."""
BINARIES = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-smi",
)
MINORS = """\
config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu1/gi1/access 21
gpu1/gi1/ci0/access 22
gpu1/gi2/access 30
gpu1/gi2/ci0/access 31
gpu1/gi3/access
nonsense
"""

OLD_ENTRY = struct.Struct("=iII")
ENTRY = struct.Struct("=iIIIQ")
HEADER = struct.Struct("=20sII20x")


def loader_cache(libraries: Sequence[tuple[str, str]], *, flags: int = 0x0303) -> bytes:
    """Return a cache of the loader with these names and paths."""
    texts = b""
    entries = b""
    start = HEADER.size + ENTRY.size * len(libraries)
    for name, path in libraries:
        places: list[int] = []
        for text in (name, path):
            places.append(start + len(texts))
            texts += text.encode() + b"\0"
        entries += ENTRY.pack(flags, *places, 0, 0)
    header = HEADER.pack(b"glibc-ld.so.cache1.1", len(libraries), len(texts))
    return header + entries + texts


def gpu(index: int, *, migs: tuple[Mig, ...] | None = None) -> Gpu:
    pci = f"00000000:{index + 4:02X}:00.0"
    return gpus.gpu(index, pci=pci, mig_mode=migs is not None, migs=migs or ())


def mig(gpu_instance: int, uuid: str) -> Mig:
    return Mig(uuid=uuid, profile="3g.40gb", gpu_instance=gpu_instance)


def install(
    machine: Path,
    root: str,
    folder: str,
    *,
    binaries: Sequence[str] = BINARIES,
    version: str = VERSION,
) -> None:
    """Put a driver's files below a root of a machine."""
    here = machine / root.lstrip("/")
    cached: list[tuple[str, str]] = []
    for stem, soname in SONAMES.items():
        file = f"{stem}.so.{version}"
        put(here, f"{folder}/{file}", "ELF")
        if soname:
            link(here, f"{folder}/{soname}", file)
            link(here, f"{folder}/{stem}.so", soname)
        cached.append((soname or file, f"{folder}/{soname or file}"))
    put(here, f"{folder}/vdpau/libvdpau_nvidia.so.{version}", "ELF")
    link(here, f"{folder}/vdpau/libvdpau_nvidia.so.1", f"libvdpau_nvidia.so.{version}")
    put(here, f"{folder}/libcuda.so.550.1.1", "ELF of a version that was removed")
    for name in binaries:
        put(here, f"/usr/bin/{name}", "ELF")
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        put(here, f"/lib/firmware/nvidia/{version}/{name}", "firmware")
    (here / "etc").mkdir(exist_ok=True)
    (here / "etc/ld.so.cache").write_bytes(loader_cache(cached))


def add_devices(root: Path, *names: str) -> None:
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *names):
        put(root, f"/dev/{name}", "")


def add_socket(root: Path, path: str) -> None:
    """Create a socket; its whole path may be longer than the kernel allows for an address."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True)
    folder = os.open(file.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{file.name}")
    os.close(folder)


def debian(root: Path) -> Tree:
    """Return a machine with two GPUs, a driver of packages, and a display."""
    install(root, "/", "/usr/lib/x86_64-linux-gnu")
    add_devices(root, "nvidia0", "nvidia1", "nvidia-modeset", "nvidia-nvswitchctl", "nvidia-fs0")
    for name in ("card1", "renderD128"):
        put(root, f"/sys/bus/pci/devices/0000:04:00.0/drm/{name}/dev", "226:1")
        put(root, f"/dev/dri/{name}", "")
    put(root, "/sys/bus/pci/devices/0000:05:00.0/class", "0x030200")
    add_socket(root, "/run/nvidia-persistenced/socket")
    return Tree(root)


def debian_alternatives(root: Path) -> Tree:
    """Return a machine as Debian's own packages leave it: its libraries are in two folders.

    Those that several versions may have at once are in `nvidia/current`, and links of the system of
    alternatives lead there; the parts that they share by version are beside those links.
    """
    here = "/usr/lib/x86_64-linux-gnu"
    current = f"{here}/nvidia/current"
    cached: list[tuple[str, str]] = []
    for stem, soname in SONAMES.items():
        file = f"{stem}.so.{VERSION}"
        put(root, f"{current if soname else here}/{file}", "ELF")
        for name in (soname, f"{stem}.so") if soname else ():
            link(root, f"{current}/{name}", file)
            link(root, f"/etc/alternatives/nvidia--{name}", f"{current}/{name}")
            link(root, f"{here}/{name}", f"/etc/alternatives/nvidia--{name}")
        cached.append((soname or file, f"{here}/{soname or file}"))
    put(root, f"{current}/libvdpau_nvidia.so.{VERSION}", "ELF")
    link(root, f"{current}/libvdpau_nvidia.so.1", f"libvdpau_nvidia.so.{VERSION}")
    link(root, f"{here}/vdpau/libvdpau_nvidia.so.1", f"{current}/libvdpau_nvidia.so.1")
    for name in BINARIES:
        put(root, f"/usr/lib/nvidia/current/{name}", "ELF")
        link(root, f"/etc/alternatives/nvidia--{name}", f"/usr/lib/nvidia/current/{name}")
        link(root, f"/usr/bin/{name}", f"/etc/alternatives/nvidia--{name}")
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        put(root, f"/lib/firmware/nvidia/{VERSION}/{name}", "firmware")
    (root / "etc/ld.so.cache").write_bytes(loader_cache(cached))
    add_devices(root, "nvidia0")
    return Tree(root)


def rhel(root: Path) -> Tree:
    """Return a machine with a GPU in two MIG devices, and one in none."""
    install(root, "/", "/usr/lib64", binaries=(*BINARIES, "nvidia-imex", "nvidia-imex-ctl"))
    link(root, "/lib64", "usr/lib64")
    add_devices(root, "nvidia0", "nvidia1")
    for number in (1, 2, 21, 22, 30, 31):
        put(root, f"/dev/nvidia-caps/nvidia-cap{number}", "")
    put(root, "/dev/nvidia-caps-imex-channels/channel0", "")
    put(root, "/proc/driver/nvidia-caps/mig-minors", MINORS)
    return Tree(root)


def container(root: Path) -> Tree:
    """Return a machine whose driver is in a container, with all device files."""
    put(root, "/usr/bin/nvidia-smi", "of a driver that was removed")
    install(root, CONTAINER_ROOT, "/usr/lib/x86_64-linux-gnu")
    # Links of the container's own root, which lead elsewhere on the machine.
    link(root, f"{CONTAINER_ROOT}/usr/sbin/nvidia-imex", "/opt/nvidia/imex")
    put(root, f"{CONTAINER_ROOT}/opt/nvidia/imex", "ELF")
    put(root, "/opt/nvidia/imex", "of the machine")
    link(root, f"{CONTAINER_ROOT}/usr/sbin/nvidia-imex-ctl", "../../../../../etc/shadow")
    put(root, "/etc/shadow", "of the machine")
    add_devices(root / CONTAINER_ROOT.lstrip("/"), "nvidia0")
    return Tree(root)


DIVIDED = (gpu(0), gpu(1, migs=(mig(1, "MIG-a"), mig(2, "MIG-b"))))


def generated(tree: Tree, gpus: Sequence[Gpu], *, root: str = "/") -> Generated:
    files = driver_root.find(tree, root, VERSION)
    devices = device_files.find(tree, files.root)
    return generate(gpus, devices, files, architecture="x86_64")
