"""The order in which modules are loaded."""

import pytest

from libs.host.artefacts.load_order import Unloadable, builtin_names, load_order, paths_by_name
from libs.host.artefacts.module_info import Module

KERNEL = "6.8.0-48-generic"
LISTING = (
    "kernel/drivers/acpi/video.ko.zst: kernel/drivers/platform/x86/wmi.ko.zst\n"
    "kernel/drivers/platform/x86/wmi.ko.zst:\n"
    "kernel/a/top.ko: kernel/a/middle.ko kernel/a/low-one.ko\n"
)
FOLDER = f"/lib/modules/{KERNEL}/kernel"
OTHERS = paths_by_name(KERNEL, LISTING)


def own(**depends: tuple[str, ...]) -> dict[str, Module]:
    return {
        name: Module(kernel=KERNEL, name=name, content=name, depends=needed)
        for name, needed in depends.items()
    }


def names(order: tuple[Module | str, ...]) -> list[str]:
    return [each if isinstance(each, str) else each.name for each in order]


DRIVER = own(
    nvidia=("top",),
    nvidia_uvm=("nvidia",),
    nvidia_modeset=("nvidia", "video"),
    nvidia_drm=("nvidia_modeset", "drm"),
)


def test_what_a_module_needs_comes_first() -> None:
    order = load_order(DRIVER, loaded=(), builtin=(), others=OTHERS)
    assert names(order) == [
        f"{FOLDER}/a/low-one.ko",
        f"{FOLDER}/a/middle.ko",
        f"{FOLDER}/a/top.ko",
        "nvidia",
        "nvidia_uvm",
        f"{FOLDER}/drivers/platform/x86/wmi.ko.zst",
        f"{FOLDER}/drivers/acpi/video.ko.zst",
        "nvidia_modeset",
    ]


def test_what_the_kernel_has_is_not_loaded() -> None:
    builtin = builtin_names("kernel/drivers/acpi/video.ko\nkernel/a/low-one.ko\n")
    order = load_order(DRIVER, loaded=("nvidia", "middle"), builtin=builtin, others=OTHERS)
    assert names(order) == ["nvidia_uvm", "nvidia_modeset"]
    order = load_order(own(nvidia=("top",)), loaded=("middle",), builtin=builtin, others=OTHERS)
    assert names(order) == [f"{FOLDER}/a/top.ko", "nvidia"]


def test_a_module_that_nobody_has_is_named() -> None:
    with pytest.raises(Unloadable, match="module nvidia_modeset needs module video"):
        load_order(DRIVER, loaded=("top",), builtin=(), others={})


def test_the_module_for_rdma_is_loaded_last_and_never_with_a_stack_that_is_not_used() -> None:
    driver = own(nvidia_peermem=("nvidia", "ib_uverbs"), nvidia=(), nvidia_uvm=("nvidia",))
    order = load_order(driver, loaded=(), builtin=(), others={"ib_uverbs": ()})
    assert names(order) == ["nvidia", "nvidia_uvm"]
    order = load_order(driver, loaded=("ib_uverbs",), builtin=(), others={})
    assert names(order) == ["nvidia", "nvidia_uvm", "nvidia_peermem"]
