"""The files of a simulated machine, read by `libs.host`."""

from pathlib import Path

from libs.host import pci
from libs.host.tree import Tree
from libs.testing.machines.base_files import NIC, PLAIN, System, create_base_files, gpus
from libs.testing.machines.host_tree import HostTree


def furnished(root: Path, made_of: System = PLAIN, *, count: int = 8) -> Tree:
    world = gpus("n1", count, made_of.gpu)
    create_base_files(HostTree(root), name="n1", system=made_of, gpus=world)
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


def test_a_reboot_clears_memory_and_keeps_the_disk(tmp_path: Path) -> None:
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
