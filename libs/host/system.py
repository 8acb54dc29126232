"""Facts about a machine: kernel, operating system, processors, memory and model."""

import os
import re
from collections.abc import Mapping
from typing import Final

from libs.contracts.facts import Cpu, Kernel, Memory, OperatingSystem
from libs.host import kernel_config, modules
from libs.host.tree import Tree, Unreadable, number
from libs.runtime.fatal import Fatal

BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
RELEASE: Final = "/proc/sys/kernel/osrelease"
ARCHITECTURE: Final = "/proc/sys/kernel/arch"
_SECURE_BOOT: Final = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_HARDWARE_IDS: Final = (
    "/sys/class/dmi/id/product_uuid",
    "/sys/firmware/devicetree/base/serial-number",
)
_OPTIONS: Final = ("NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT")
_RDMA: Final = ("ib_uverbs", "rdma_ucm")
_REPORTED_MODULES: Final = frozenset((*modules.UNLOAD_ORDER, modules.NOUVEAU, "mlx5_core", *_RDMA))
_OS_LINE: Final = re.compile(r"(\w+)=(.+)", re.ASCII)
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]{1,3}")
_CPUS: Final = "/sys/devices/system/cpu"


def boot_id(tree: Tree) -> str:
    """Return the id of this boot; empty where it cannot be read."""
    return tree.word(BOOT_ID) or ""


def require_boot_id(tree: Tree) -> str:
    """Return the id of this boot, or raise `Fatal`: commands to agents are bound to a boot."""
    try:
        found = boot_id(tree)
    except Unreadable as error:
        raise Fatal(f"{error}; commands to agents are bound to a boot") from error
    if not found:
        raise Fatal(
            f"{BOOT_ID} cannot be read below {tree.root}: mount the host's root there, with /proc"
        )
    return found


def hardware_id(tree: Tree) -> str:
    """Return what names the machine whatever disk it has; empty where nothing does.

    Only root can read it.
    """
    for path in _HARDWARE_IDS:
        found = (tree.word(path) or "").strip("\0")
        if found:
            return found
    return ""


def kernel(tree: Tree) -> Kernel | None:
    release = tree.word(RELEASE)
    if not release:
        return None
    return Kernel(
        release=release,
        selinux=(tree.word("/sys/fs/selinux/enforce") or "").startswith("1"),
        secure_boot=secure_boot(tree),
        config=kernel_config.options(tree, release, _OPTIONS),
        modules=tuple(sorted(_REPORTED_MODULES & modules.loaded(tree).keys())),
    )


def secure_boot(tree: Tree) -> bool:
    """Return whether Secure Boot is on; only root can read it."""
    try:
        data = tree.data(_SECURE_BOOT)
    except Unreadable:
        return False
    return data is not None and data[-1:] == b"\x01"


def operating_system(tree: Tree) -> OperatingSystem | None:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = tree.read_text(path)
        if text is None:
            continue
        rows = (_OS_LINE.fullmatch(line.strip()) for line in text.splitlines())
        values = {row[1]: row[2].strip("\"'") for row in rows if row}
        if values.get("ID"):
            return OperatingSystem(
                id=values["ID"],
                version_id=values.get("VERSION_ID", ""),
                name=values.get("PRETTY_NAME", ""),
                ostree_version=values.get("OSTREE_VERSION", ""),
            )
    return None


def cpu(tree: Tree) -> Cpu | None:
    """Describe the processors by the first of them; None where the kernel does not."""
    text = tree.read_text("/proc/cpuinfo")
    if not text:
        return None
    first: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            first.setdefault(name.strip(), value.strip())
    threads = (
        tree.word(f"{_CPUS}/{name}/topology/thread_siblings_list") or ""
        for name in tree.names(_CPUS)
        if number(name[3:]) is not None
    )
    vendor, family, model = _model(first)
    return Cpu(
        # Kernels before 6.1 lack the file; this process runs on the same kernel.
        architecture=tree.word(ARCHITECTURE) or os.uname().machine,
        vendor=vendor,
        family=family,
        model=model,
        count=sum(line.startswith("processor") for line in text.splitlines()),
        multithreading=any("," in siblings or "-" in siblings for siblings in threads),
        flags=tuple(sorted(first.get("flags", first.get("Features", "")).split())),
    )


def _model(cpuinfo: Mapping[str, str]) -> tuple[str, int, int]:
    """Return vendor, family and model.

    Of an Arm processor they are the implementer's number and the halves of the register MIDR_EL1:
    variant and architecture (always 15), part and revision.
    """
    implementer = cpuinfo.get("CPU implementer", "")
    if not implementer:
        family, model = number(cpuinfo.get("cpu family")), number(cpuinfo.get("model"))
        return cpuinfo.get("vendor_id", ""), family or 0, model or 0
    variant, part = _hexadecimal(cpuinfo.get("CPU variant")), _hexadecimal(cpuinfo.get("CPU part"))
    revision = number(cpuinfo.get("CPU revision")) or 0
    return implementer.lower(), variant << 4 | 0xF, part << 4 | revision & 0xF


def _hexadecimal(text: str | None) -> int:
    return int(text, 16) if text and _HEXADECIMAL.fullmatch(text) else 0


def memory(tree: Tree) -> Memory | None:
    lines = (line.partition(":") for line in (tree.read_text("/proc/meminfo") or "").splitlines())
    values = {name: value for name, _, value in lines}
    total = number(values.get("MemTotal", "").removesuffix("kB"))
    if not total:
        return None
    nodes = [
        name for name in tree.names("/sys/devices/system/node") if number(name[4:]) is not None
    ]
    swaps = (tree.read_text("/proc/swaps") or "").splitlines()
    return Memory(bytes=total * 1024, numa_nodes=max(1, len(nodes)), swap=len(swaps) > 1)


def machine(tree: Tree) -> str:
    """Return the product name; empty for a machine without one."""
    return tree.word("/sys/class/dmi/id/product_name") or ""
