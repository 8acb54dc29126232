"""The kernel that the machine boots next, as far as its files say.

The boot loader's default entry names it where GRUB has entries as files of their own; otherwise
GRUB's default is the newest installed kernel. Everything else is left unknown.
"""

import re
from itertools import zip_longest
from typing import Final

from libs.contracts.facts import NextKernel
from libs.host import modules, system
from libs.host.artefacts import installation, store
from libs.host.tree import Tree

REBOOT_REQUIRED: Final = ("/run/reboot-required", "/var/run/reboot-required")
MODULES: Final = "/lib/modules"
ENTRIES: Final = "/boot/loader/entries"
GRUB: Final = "/etc/default/grub"
GRUB_ENVIRONMENTS: Final = ("/boot/grub2/grubenv", "/boot/grub/grubenv")
"""What GRUB remembers: the entry to boot, and the one for the next boot alone."""

_RELEASE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}")
_FLAVOUR: Final = re.compile(r"[-+]([a-z][a-z0-9-]*)$")
_NUMBERS: Final = re.compile(r"[0-9]+")
_ENTRY_KERNEL: Final = re.compile(r"^linux\s+\S*/vmlinuz-(\S+)\s*$", re.MULTILINE)
_MODULE: Final = re.compile(
    r"^(?:\S*/)?nvidia(?:-(?:current|tesla|legacy)(?:-[0-9]+[a-z]*)?(?:-open)?)?\.ko(?:\.[a-z]+)?:",
    re.MULTILINE,
)
"""The module nvidia in `modules.dep`; Debian names its file by the line of drivers it is of."""


def next_kernel(tree: Tree) -> NextKernel | None:
    """Return the next kernel; without a release where it is the running one, or not known."""
    running = tree.word(system.RELEASE)
    if not running:
        return None
    reboot_required = any(map(tree.exists, REBOOT_REQUIRED))
    entry = _default_entry(tree)
    release = _newest(tree, running) if entry is None else entry
    if not _RELEASE.fullmatch(release) or release == running:
        return NextKernel(reboot_required=reboot_required)
    return NextKernel(
        release=release,
        by_boot_entry=entry is not None,
        reboot_required=reboot_required,
        without_headers=_has_headers(tree, running) and not _has_headers(tree, release),
        without_driver=_has_driver(tree, running) and not _has_driver(tree, release),
    )


def _default_entry(tree: Tree) -> str | None:
    """Return the kernel of GRUB's default entry, empty if that is not known; None: no default."""
    chosen = ""
    for path in GRUB_ENVIRONMENTS:
        values = _assignments(tree.read_text(path))
        chosen = chosen or values.get("next_entry") or values.get("saved_entry") or ""
    default = _assignments(tree.read_text(GRUB)).get("GRUB_DEFAULT", "0")
    if default not in ("", "0", "saved"):
        return ""
    if not chosen or default != "saved":
        return None
    entry = tree.read_text(f"{ENTRIES}/{chosen}.conf") if "/" not in chosen else None
    found = _ENTRY_KERNEL.search(entry or "")
    return found[1] if found else ""


def _assignments(text: str | None) -> dict[str, str]:
    lines = (line.strip().partition("=") for line in (text or "").splitlines())
    return {name: value.strip("\"'") for name, equals, value in lines if equals}


def _newest(tree: Tree, running: str) -> str:
    """Return the newest kernel of the running one's flavour that can be booted, if it is newer."""
    installed = [
        name
        for name in tree.names(MODULES)
        if _flavour(name) == _flavour(running)
        and (tree.exists(f"/boot/vmlinuz-{name}") or tree.exists(f"{MODULES}/{name}/vmlinuz"))
    ]
    newest = running
    for name in installed:
        newest = name if _is_newer(name, newest) else newest
    return newest


def _flavour(release: str) -> str:
    found = _FLAVOUR.search(release)
    return found[1] if found else ""


def _is_newer(release: str, other: str) -> bool:
    """Compare the numbers of two releases of one flavour."""
    numbers = (map(int, _NUMBERS.findall(each)) for each in (release, other))
    for new, old in zip_longest(*numbers, fillvalue=-1):
        if new != old:
            return new > old
    return False


def _has_headers(tree: Tree, release: str) -> bool:
    """Return whether modules can be built for a kernel on the machine."""
    return tree.exists(f"{MODULES}/{release}/build/Makefile")


def _has_driver(tree: Tree, release: str) -> bool:
    """Return whether the machine has the module nvidia for a kernel, of its own or from Sluice."""
    if _MODULE.search(tree.read_text(f"{MODULES}/{release}/modules.dep") or ""):
        return True
    placed = installation.installed(tree)
    index = store.read_index(tree, placed.artefact) if placed is not None else None
    return index is not None and modules.DRIVER in index.modules_for(release)
