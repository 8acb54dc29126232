"""What the readers of `libs.host` find in a machine's tree."""

from pathlib import Path

import pytest

from libs.contracts.facts import Memory, OperatingSystem
from libs.host import modules, pci, system
from libs.host.tree import Tree
from libs.testing.machines.base_files import NIC, create_base_files, install_kernel
from libs.testing.machines.host_tree import HostTree
from libs.testing.machines.system import MOST_GPUS, PLAIN, System, gpus


def furnished(root: Path, made_of: System = PLAIN, *, count: int = 8) -> Tree:
    there = gpus("n1", count, made_of.gpu)
    create_base_files(HostTree(root), name="n1", system=made_of, gpus=there)
    return Tree(root)


def test_the_bus_shows_the_gpus_and_a_nic(tmp_path: Path) -> None:
    found = pci.devices(furnished(tmp_path)) or ()
    cards = [each for each in found if pci.is_gpu(each)]
    assert [each.address for each in cards] == [gpu.pci for gpu in gpus("n1", 8, PLAIN.gpu)]
    assert {(each.device, each.subsystem_device, each.driver) for each in cards} == {
        ("2330", "16c1", "")
    }
    assert [each.numa_node for each in cards] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert len({each.iommu_group for each in found}) == 9
    (nic,) = [each for each in found if not pci.is_gpu(each)]
    assert (nic.address, nic.vendor, nic.device_class, nic.driver) == (
        NIC,
        "15b3",
        "0200",
        "mlx5_core",
    )


def test_the_machine_says_what_it_is(tmp_path: Path) -> None:
    tree = furnished(tmp_path)
    assert system.machine(tree) == "DGXH100"
    assert system.operating_system(tree) == OperatingSystem(
        id="ubuntu", version_id="22.04", name="Ubuntu 22.04.5 LTS"
    )
    assert system.memory(tree) == Memory(bytes=2015 * 2**30, numa_nodes=2)
    cpu = system.cpu(tree)
    assert cpu is not None
    assert (cpu.vendor, cpu.count, cpu.multithreading) == ("GenuineIntel", 8, True)
    assert cpu.architecture == "x86_64"


def test_its_architecture_is_its_own_and_not_this_computers(tmp_path: Path) -> None:
    cpu = system.cpu(furnished(tmp_path, System(architecture="riscv64")))
    assert cpu is not None
    assert cpu.architecture == "riscv64"


@pytest.mark.parametrize("on", [True, False])
def test_the_kernel_says_what_is_built_in_and_switched_on(tmp_path: Path, on: bool) -> None:
    tree = furnished(tmp_path, System(secure_boot=on, selinux=on))
    install_kernel(HostTree(tmp_path), "6.8.0-48-generic")
    install_kernel(HostTree(tmp_path), "6.8.0-48-generic")
    HostTree(tmp_path).put(system.RELEASE, "6.8.0-48-generic\n")
    HostTree(tmp_path).put(modules.PROC_MODULES, "")
    kernel = system.kernel(tree)
    assert kernel is not None
    assert (kernel.secure_boot, kernel.selinux) == (on, on)
    assert kernel.config == {"NO_HZ": "y", "NO_HZ_FULL": "y"}
    assert tree.exists("/lib/modules/6.8.0-48-generic/build")


def test_what_was_in_memory_does_not_survive_and_the_disk_does(tmp_path: Path) -> None:
    ground = HostTree(tmp_path)
    for path in ("/run/old", "/proc/4711/comm", "/sys/module/nvidia/version", "/dev/nvidia0"):
        ground.put(path)
    ground.put("/var/lib/sluice/driver.journal", "kept")
    tree = furnished(tmp_path)
    assert tree.names("/run") == ()
    assert not tree.exists("/proc/4711")
    assert not tree.exists("/sys/module")
    assert tree.names("/dev") == ("null",)
    assert tree.text("/var/lib/sluice/driver.journal") == "kept"


def test_gpus_keep_their_names_and_are_nobody_elses() -> None:
    mine, theirs = gpus("n1", 8, PLAIN.gpu), gpus("n2", 8, PLAIN.gpu)
    assert mine == gpus("n1", 8, PLAIN.gpu)
    assert len({gpu.uuid for gpu in (*mine, *theirs)}) == 16
    assert len({gpu.pci for gpu in gpus("n1", MOST_GPUS, PLAIN.gpu)}) == MOST_GPUS


@pytest.mark.parametrize("count", [-1, MOST_GPUS + 1])
def test_no_machine_has_so_many(count: int) -> None:
    with pytest.raises(ValueError, match="0 to 16"):
        gpus("n1", count, PLAIN.gpu)


def test_a_machine_without_gpus_has_a_bus(tmp_path: Path) -> None:
    tree = furnished(tmp_path, System(cpus=1), count=0)
    assert [each.address for each in pci.devices(tree) or ()] == [NIC]
    cpu = system.cpu(tree)
    assert cpu is not None
    assert not cpu.multithreading
