"""The kernel that boots next, read from trees of several systems."""

from pathlib import Path

import pytest

from libs.contracts.facts import NextKernel
from libs.host.next_kernel import next_kernel
from libs.host.tree import Tree
from tests.builders.machine_files import put

OLD, NEW = "6.8.0-48-generic", "6.8.0-50-generic"
EL_OLD, EL_NEW = "5.14.0-427.13.1.el9_4.x86_64", "5.14.0-503.11.1.el9_5.x86_64"


def install(root: Path, *releases: str) -> None:
    for release in releases:
        put(root, f"boot/vmlinuz-{release}", "")
        put(root, f"lib/modules/{release}/modules.order", "")


def machine(root: Path, running: str, *installed: str) -> Tree:
    put(root, "proc/sys/kernel/osrelease", f"{running}\n")
    install(root, running, *installed)
    return Tree(root)


def boot_entry(root: Path, name: str, release: str) -> None:
    put(root, f"boot/loader/entries/{name}.conf", f"title x\nlinux /vmlinuz-{release}\n")


def with_saved_default(root: Path, entry: str) -> None:
    put(root, "etc/default/grub", 'GRUB_TIMEOUT=5\nGRUB_DEFAULT="saved"\n')
    put(root, "boot/grub2/grubenv", f"# GRUB Environment Block\nsaved_entry={entry}\n####")


def test_without_a_known_kernel_there_is_no_fact(tmp_path: Path) -> None:
    assert next_kernel(Tree(tmp_path)) is None


def test_the_running_kernel_is_no_news(tmp_path: Path) -> None:
    tree = machine(tmp_path, NEW, OLD)
    assert next_kernel(tree) == NextKernel()
    put(tmp_path, "run/reboot-required", "")
    assert next_kernel(tree) == NextKernel(reboot_required=True)


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ((NEW,), NEW),
        (("6.8.0-9-generic",), ""),
        (("6.8.0-100-generic", NEW), "6.8.0-100-generic"),
        (("6.11.0-9-generic", NEW), "6.11.0-9-generic"),
        (("6.8.0-50-lowlatency",), ""),
    ],
    ids=["newer", "older", "by number", "another series", "another flavour"],
)
def test_the_newest_kernel_of_the_flavour_boots_next(
    tmp_path: Path, installed: tuple[str, ...], expected: str
) -> None:
    found = next_kernel(machine(tmp_path, OLD, *installed))
    assert found == NextKernel(release=expected)


def test_a_kernel_without_an_image_is_not_installed(tmp_path: Path) -> None:
    tree = machine(tmp_path, OLD)
    put(tmp_path, f"lib/modules/{NEW}/modules.order", "")
    assert next_kernel(tree) == NextKernel()
    put(tmp_path, f"lib/modules/{NEW}/vmlinuz", "")
    assert next_kernel(tree) == NextKernel(release=NEW)


def test_the_default_entry_counts_where_grub_remembers_one(tmp_path: Path) -> None:
    tree = machine(tmp_path, EL_OLD, EL_NEW)
    boot_entry(tmp_path, "new", EL_NEW)
    boot_entry(tmp_path, "old", EL_OLD)
    with_saved_default(tmp_path, "new")
    assert next_kernel(tree) == NextKernel(release=EL_NEW, by_boot_entry=True)
    with_saved_default(tmp_path, "old")  # a person keeps the old kernel
    assert next_kernel(tree) == NextKernel()


@pytest.mark.parametrize("default", ["1>2", "Ubuntu, with Linux 6.8", "saved"])
def test_a_default_that_cannot_be_read_is_not_guessed(tmp_path: Path, default: str) -> None:
    tree = machine(tmp_path, OLD, NEW)
    with_saved_default(tmp_path, "gnulinux-advanced>gnulinux-6.8.0-48")
    put(tmp_path, "etc/default/grub", f'GRUB_DEFAULT="{default}"\n')
    assert next_kernel(tree) == NextKernel()


def test_headers_and_module_are_compared_with_the_running_kernel(tmp_path: Path) -> None:
    tree = machine(tmp_path, OLD, NEW)
    assert next_kernel(tree) == NextKernel(release=NEW)
    put(tmp_path, f"lib/modules/{OLD}/build/Makefile", "")
    put(tmp_path, f"lib/modules/{OLD}/modules.dep", "updates/dkms/nvidia.ko.zst: kernel/x.ko\n")
    lacks = NextKernel(release=NEW, without_headers=True, without_driver=True)
    assert next_kernel(tree) == lacks
    put(tmp_path, f"lib/modules/{NEW}/modules.dep", "updates/dkms/nvidia-uvm.ko: x/nvidia.ko\n")
    assert next_kernel(tree) == lacks
    put(tmp_path, f"lib/modules/{NEW}/build/Makefile", "")
    put(tmp_path, f"lib/modules/{NEW}/modules.dep", "extra/nvidia.ko.xz:\n")
    assert next_kernel(tree) == NextKernel(release=NEW)


@pytest.mark.parametrize("file", ["nvidia-current.ko", "nvidia-tesla-470.ko.xz"])
def test_debians_names_of_the_module_are_known(tmp_path: Path, file: str) -> None:
    tree = machine(tmp_path, OLD, NEW)
    put(tmp_path, f"lib/modules/{OLD}/modules.dep", f"updates/dkms/{file}:\n")
    put(tmp_path, f"lib/modules/{NEW}/modules.dep", "updates/dkms/nvidia-current-uvm.ko:\n")
    assert next_kernel(tree) == NextKernel(release=NEW, without_driver=True)
    put(tmp_path, f"lib/modules/{NEW}/modules.dep", f"updates/dkms/{file}:\n")
    assert next_kernel(tree) == NextKernel(release=NEW)
