"""Which device files of the driver are made, and which files stay."""

import os
import stat
from pathlib import Path

import pytest

from libs.host import device_nodes
from libs.host.device_nodes import DeviceNode
from libs.host.tree import Tree
from tests.builders.machine_files import link, put

DEVICES = """\
Character devices:
  1 mem
195 nvidia
195 nvidia-modeset
195 nvidiactl
{caps} nvidia-caps
236 nvidia-caps-imex-channels
{uvm} nvidia-uvm

Block devices:
  8 sd
  9 nvidia
"""
GPU = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 42\nDevice Minor: \t {minor}\n"
ACCESS = "DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"
CAPABILITIES = "/proc/driver/nvidia/capabilities"


class DevicelessTree(Tree):
    """Makes an empty file for a device, as a process without the right to make one can."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.made: list[DeviceNode] = []

    def make_device(self, path: str, major: int, minor: int, *, mode: int) -> None:
        self.made.append(DeviceNode(path, major, minor, mode))
        put(Path(self.root), path, "")


def machine(root: Path, *, uvm: int = 511, caps: int = 235) -> DevicelessTree:
    put(root, "/proc/devices", DEVICES.format(uvm=uvm, caps=caps))
    put(root, "/proc/driver/nvidia/gpus/0000:00:10.0/information", GPU.format(minor=0))
    put(root, "/proc/driver/nvidia/gpus/0000:00:11.0/information", GPU.format(minor=1))
    return DevicelessTree(root)


def test_the_files_of_the_driver_and_of_its_gpus_are_made_with_the_kernels_numbers(
    tmp_path: Path,
) -> None:
    tree = machine(tmp_path)
    expected = [
        DeviceNode("/dev/nvidiactl", 195, 255, 0o666),
        DeviceNode("/dev/nvidia0", 195, 0, 0o666),
        DeviceNode("/dev/nvidia1", 195, 1, 0o666),
        DeviceNode("/dev/nvidia-uvm", 511, 0, 0o666),
        DeviceNode("/dev/nvidia-uvm-tools", 511, 1, 0o666),
    ]
    assert device_nodes.make(tree) == tuple(node.path for node in expected)
    assert tree.made == expected
    assert device_nodes.make(tree) == ()
    put(tmp_path, "/sys/module/nvidia_modeset/refcnt", "0")
    assert device_nodes.make(tree) == ("/dev/nvidia-modeset",)
    assert tree.made[-1] == DeviceNode("/dev/nvidia-modeset", 195, 254, 0o666)


def test_mig_instances_have_theirs_with_the_modes_that_the_driver_says(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    for path, minor, mode in (
        ("mig/config", 1, 256),
        ("mig/monitor", 2, 292),
        ("gpu0/mig/gi1/access", 12, 292),
        ("gpu0/mig/gi1/ci0/access", 13, 292),
    ):
        put(tmp_path, f"{CAPABILITIES}/{path}", ACCESS.format(minor=minor, mode=mode))
    device_nodes.make(tree)
    assert [node for node in tree.made if "caps" in node.path] == [
        DeviceNode("/dev/nvidia-caps/nvidia-cap1", 235, 1, 0o400),
        DeviceNode("/dev/nvidia-caps/nvidia-cap2", 235, 2, 0o444),
        DeviceNode("/dev/nvidia-caps/nvidia-cap12", 235, 12, 0o444),
        DeviceNode("/dev/nvidia-caps/nvidia-cap13", 235, 13, 0o444),
    ]


def test_the_number_of_an_older_driver_has_another_name(tmp_path: Path) -> None:
    put(tmp_path, "/proc/devices", "Character devices:\n195 nvidia-frontend\n")
    assert device_nodes.make(DevicelessTree(tmp_path)) == ("/dev/nvidiactl",)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"/proc/devices": "Character devices:\n  1 mem\n"},
        {
            "/proc/devices": DEVICES.format(uvm=511, caps=235),
            "/proc/driver/nvidia/params": "DeviceFileMode: 438\nModifyDeviceFiles: 0\n",
        },
    ],
)
def test_without_a_driver_or_where_it_is_told_to_make_none_nothing_is_made(
    tmp_path: Path, files: dict[str, str]
) -> None:
    for path, text in files.items():
        put(tmp_path, path, text)
    assert device_nodes.make(DevicelessTree(tmp_path)) == ()


def test_files_and_links_of_people_stay(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    put(tmp_path, "/dev/nvidia0", "a file")
    link(tmp_path, "/dev/nvidia1", "/nowhere")
    assert not {"/dev/nvidia0", "/dev/nvidia1"} & {*device_nodes.make(tree)}
    assert (tmp_path / "dev/nvidia0").read_text() == "a file"


def may_make_devices(folder: Path) -> bool:
    try:
        os.mknod(folder / "probe", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        return False
    (folder / "probe").unlink()
    return True


def test_a_file_with_the_number_of_an_earlier_load_is_replaced(tmp_path: Path) -> None:
    if not may_make_devices(tmp_path):
        pytest.skip("needs the right to make device files")
    machine(tmp_path, uvm=510)
    tree = Tree(tmp_path)
    device_nodes.make(tree)
    before = os.makedev(510, 0)
    assert (tmp_path / "dev/nvidia-uvm").stat().st_rdev == before
    machine(tmp_path, uvm=511)
    assert device_nodes.make(tree) == ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    status = (tmp_path / "dev/nvidia-uvm").stat()
    assert (status.st_rdev, stat.S_IMODE(status.st_mode)) == (os.makedev(511, 0), 0o666)
    assert device_nodes.make(tree) == ()
