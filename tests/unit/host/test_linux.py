"""Permission for the real kernel, and the mount points that it would unmount."""

from pathlib import Path

import pytest

from libs.host.linux import KernelRefused, RealKernelForbidden, RealLinux, _mounts_below  # pyright: ignore[reportPrivateUsage]
from libs.host.tree import Tree
from tests.builders.machine_files import tree


def test_the_real_kernel_needs_permission(tmp_path: Path) -> None:
    with pytest.raises(RealKernelForbidden, match="SLUICE_CHANGE_THIS_MACHINE"):
        RealLinux(Tree(tmp_path), change_this_machine=False)


def test_a_module_whose_file_is_missing_is_refused(tmp_path: Path) -> None:
    kernel = RealLinux(Tree(tmp_path), change_this_machine=True)
    result = kernel.load("/lib/modules/x/nvidia.ko")
    assert isinstance(result, KernelRefused)
    assert "/lib/modules/x/nvidia.ko cannot be read" in result.why


def test_mount_points_at_and_below_a_path_are_found(tmp_path: Path) -> None:
    lines = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 22 0:40 / /host/run/nvidia/driver rw - overlay overlay rw\n"
        "41 40 0:41 / /host/run/nvidia/driver/proc rw - proc proc rw\n"
        "42 22 0:42 / /host/run/nvidia/driver-of-another rw - tmpfs tmpfs rw\n"
        "43 40 0:43 / /host/run/nvidia/driver/with\\040space rw - tmpfs tmpfs rw\n"
        "short\n"
    )
    own = tree(tmp_path, {"/proc/self/mountinfo": lines})
    assert _mounts_below(own, "/host/run/nvidia/driver") == [
        "/host/run/nvidia/driver",
        "/host/run/nvidia/driver/proc",
        "/host/run/nvidia/driver/with space",
    ]
