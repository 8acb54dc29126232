"""Virtual GPUs, as a hypervisor shows them in the PCI configuration of a guest's devices."""

from pathlib import Path

import pytest

from libs.contracts.facts import Vgpu
from libs.host.tree import Tree, Unreadable
from libs.host.vgpu import vgpu
from tests.builders.machine_files import pci_config, vgpu_capability, vgpu_record

DEVICES = "sys/bus/pci/devices"
GUEST = vgpu_capability("460.16", "r460_00")


def machine(root: Path, *configs: bytes, vendor: str = "0x10de") -> Tree:
    for number, data in enumerate(configs):
        folder = root / DEVICES / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "config").write_bytes(data)
    return Tree(root)


def test_the_driver_of_the_host_is_read(tmp_path: Path) -> None:
    other = b"VF" + vgpu_record("x", "y", kind=7) + GUEST[2:]
    found = vgpu(
        machine(tmp_path, pci_config((0x10, b"express")), pci_config((0x01, b""), (0x09, other)))
    )
    assert found == Vgpu(present=True, host_driver_version="460.16", host_driver_branch="r460_00")


@pytest.mark.parametrize(
    "data",
    [pci_config(), pci_config((0x09, b"no")), pci_config((0x05, GUEST)), pci_config((0x09, b""))],
    ids=["no capabilities", "another signature", "another kind", "an empty one"],
)
def test_a_gpu_of_the_machine_itself_is_no_virtual_one(tmp_path: Path, data: bytes) -> None:
    assert vgpu(machine(tmp_path, data)) == Vgpu(present=False)


@pytest.mark.parametrize(
    "content",
    [b"VF", b"VF" + bytes((5, 0)) * 20, b"VF" + vgpu_record("1", "2")[:-1]],
    ids=["no record", "records without a length", "a record that is cut off"],
)
def test_a_virtual_gpu_may_tell_no_driver(tmp_path: Path, content: bytes) -> None:
    assert vgpu(machine(tmp_path, pci_config((0x09, content)))) == Vgpu(present=True)


def test_capabilities_in_a_circle_end(tmp_path: Path) -> None:
    data = bytearray(pci_config((0x01, b"")))
    data[0x41] = 0x40
    assert vgpu(machine(tmp_path, bytes(data))) == Vgpu()


def test_any_configuration_is_read(tmp_path: Path) -> None:
    for number in range(1, 40):
        data = bytes((number * (place + 1) ^ place) % 256 for place in range(256))
        assert vgpu(machine(tmp_path / str(number), data)) is not None


def test_other_devices_say_nothing_and_a_hidden_configuration_is_unknown(tmp_path: Path) -> None:
    assert vgpu(machine(tmp_path / "a", pci_config((0x09, GUEST)), vendor="0x8086")) is None
    assert vgpu(Tree(tmp_path / "b")) is None
    with pytest.raises(Unreadable, match="has 64 bytes: only root may read all 256"):
        vgpu(machine(tmp_path / "c", bytes(64)))
