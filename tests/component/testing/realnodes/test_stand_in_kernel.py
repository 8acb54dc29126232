"""The stand-in for the kernel's modules keeps the rules of a kernel."""

import shutil
from pathlib import Path

import pytest

from libs.host import modules
from libs.host.tree import Tree
from libs.testing.nvml import StandIn
from libs.testing.nvml.profiles import T4
from libs.testing.realnodes.stand_in_kernel import MODULES_FILE, Busy, StandInKernel

VERSION = "570.86.15"
POD = "9f6f7b1e-58a3-4a57-8b7b-0a6a8d4f6c11"
LOADED = {"nvidia", "nvidia_modeset", "nvidia_uvm"}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The folder of a machine that has just booted."""
    machine, node = tmp_path / "machine", tmp_path / "node"
    machine.mkdir()
    for name in ("dev", "proc/1/fd", "proc/77/fd"):
        (node / name).mkdir(parents=True)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia0"):
        (node / "dev" / name).touch()  # to create devices needs root
    StandIn.create(machine / "gpus", T4)
    StandInKernel(machine).boot()
    return machine


@pytest.fixture
def kernel(machine: Path) -> StandInKernel:
    return StandInKernel(machine, root=machine.parent / "node")


def opens(machine: Path, device: str) -> Path:
    """Let a process of the node hold a device."""
    file = machine.parent / "node/proc/77/fd/3"
    file.symlink_to(f"/dev/{device}")
    return file


def shown(machine: Path) -> dict[str, tuple[str, int, tuple[str, ...]]]:
    """Return what agents read: by module its version, number of users, and other modules."""
    seen = machine.parent / "seen"
    shutil.rmtree(seen, ignore_errors=True)
    shutil.copytree(machine / "module", seen / "sys/module")
    (seen / "proc").mkdir()
    shutil.copy(machine / MODULES_FILE, seen / modules.PROC_MODULES.lstrip("/"))
    found = modules.loaded(Tree(seen))
    return {name: (each.version, each.references, each.users) for name, each in found.items()}


def test_a_loaded_driver_is_shown(machine: Path, kernel: StandInKernel) -> None:
    assert shown(machine) == {}
    assert (kernel.version(), kernel.loader()) == ("", "")
    kernel.load(VERSION, by=POD)
    users = ("nvidia_modeset", "nvidia_uvm")
    others = dict.fromkeys(users, (VERSION, 0, ()))
    assert shown(machine) == {"nvidia": (VERSION, 2, users), **others}
    assert (kernel.version(), kernel.loader()) == (VERSION, POD)
    assert StandIn(machine / "gpus").machine.driver_version.decode() == VERSION
    with pytest.raises(Busy, match="File exists"):
        kernel.load(VERSION, by=POD)


def test_modules_are_unloaded_in_order(machine: Path, kernel: StandInKernel) -> None:
    kernel.load(VERSION, by=POD)
    with pytest.raises(Busy, match="delete_module nvidia: Resource temporarily unavailable"):
        kernel.unload("nvidia")
    assert [kernel.unload(name) for name in modules.UNLOAD_ORDER] == [
        name in LOADED for name in modules.UNLOAD_ORDER
    ]
    assert shown(machine) == {}
    assert StandIn(machine / "gpus").machine.driver_loaded == 0


@pytest.mark.parametrize(
    ("device", "module"),
    [("nvidia0", "nvidia"), ("nvidiactl", "nvidia"), ("nvidia-uvm", "nvidia_uvm")],
)
def test_an_open_device_keeps_its_module(
    device: str, module: str, machine: Path, kernel: StandInKernel
) -> None:
    kernel.load(VERSION, by=POD)
    file = opens(machine, device)
    with pytest.raises(Busy, match=f"delete_module {module}:"):
        kernel.unload_all()
    assert kernel.version(module) == VERSION
    file.unlink()
    kernel.unload_all()
    assert shown(machine) == {}


def test_a_boot_has_no_modules(machine: Path, kernel: StandInKernel) -> None:
    kernel.load(VERSION, by=POD)
    kernel.boot()
    assert (shown(machine), kernel.loader()) == ({}, "")
