"""Where the driver's library is found, and whether the kernel has a driver."""

from pathlib import Path

import pytest

from libs.host.gpus.library import NAME, find_library, folders_beside, is_driver_loaded
from libs.host.tree import Tree
from tests.builders.machine_files import link, put
from tests.unit.host.cdi.drivers import loader_cache

ROOT = "/run/nvidia/driver"
FOLDERS = [
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/lib64"),
    "/usr/lib/x86_64-linux-gnu/nvidia/current",  # Debian, before its scripts have made links
    "/home/kubernetes/bin/nvidia/lib64",  # GKE
    "/opt/nvidia/lib64",
    "/opt/nvidia/current/lib64",  # Flatcar
    "/usr/local/glibc/usr/lib",  # Talos
]


def found(root: Path, *, setting: str = "", driver_root: str = ROOT) -> str:
    return find_library(Tree(root), setting=setting, driver_root=driver_root)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("driver_root", [ROOT, f"{ROOT}/", ""])
def test_the_usual_folders_are_searched(tmp_path: Path, folder: str, driver_root: str) -> None:
    where = f"{driver_root.rstrip('/')}{folder}/{NAME}"
    put(tmp_path, where, "")
    assert found(tmp_path, driver_root=driver_root) == f"{tmp_path}{where}"


def test_the_driver_container_goes_before_the_machine(tmp_path: Path) -> None:
    put(tmp_path, f"/usr/lib64/{NAME}", "")
    assert found(tmp_path) == f"{tmp_path}/usr/lib64/{NAME}"
    put(tmp_path, f"{ROOT}/lib64/{NAME}", "")
    assert found(tmp_path) == f"{tmp_path}{ROOT}/lib64/{NAME}"


def test_the_loaders_cache_names_folders_that_nobody_knows(tmp_path: Path) -> None:
    path = "/srv/nvidia/lib/libnvidia-ml.so.580"
    put(tmp_path, f"{ROOT}{path}", "")
    cache = tmp_path / ROOT.lstrip("/") / "etc/ld.so.cache"
    cache.parent.mkdir()
    cache.write_bytes(loader_cache([("libcuda.so.1", "/x"), (NAME, path)]))
    assert found(tmp_path) == f"{tmp_path}{ROOT}{path}"
    put(tmp_path, f"{ROOT}/usr/lib64/{NAME}", "")
    assert found(tmp_path) == f"{tmp_path}{ROOT}/usr/lib64/{NAME}"


@pytest.mark.parametrize("content", ["broken", ""])
def test_a_broken_cache_hides_no_other_library(tmp_path: Path, content: str) -> None:
    put(tmp_path, f"{ROOT}/etc/ld.so.cache", content)
    put(tmp_path, f"/usr/lib64/{NAME}", "")
    assert found(tmp_path) == f"{tmp_path}/usr/lib64/{NAME}"


def test_the_parts_of_a_library_are_looked_for_in_the_folders_of_its_own_root(
    tmp_path: Path,
) -> None:
    above = f"{tmp_path}{ROOT}/usr/lib/x86_64-linux-gnu"
    put(tmp_path, f"{ROOT}/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550", "")
    put(tmp_path, "/usr/lib64/libnvidia-gpucomp.so.535", "of the machine")
    library = f"{above}/nvidia/current/libcuda.so.550"
    tree = Tree(tmp_path)
    assert folders_beside(tree, library, driver_root=ROOT) == (f"{above}/nvidia/current", above)
    assert folders_beside(tree, "/elsewhere/libcuda.so", driver_root=ROOT) == ("/elsewhere",)
    assert folders_beside(tree, "", driver_root=ROOT) == ()


def test_links_are_followed_within_the_machine(tmp_path: Path) -> None:
    put(tmp_path, "/usr/lib/nvidia/libnvidia-ml.so.580", "")
    link(tmp_path, f"/etc/alternatives/{NAME}", "/usr/lib/nvidia/libnvidia-ml.so.580")
    link(tmp_path, f"/usr/lib64/{NAME}", f"/etc/alternatives/{NAME}")
    assert found(tmp_path) == f"{tmp_path}/usr/lib/nvidia/libnvidia-ml.so.580"


def test_links_of_a_driver_container_are_followed_within_it(tmp_path: Path) -> None:
    current = "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550"
    put(tmp_path, f"{ROOT}{current}", "")
    put(tmp_path, current, "of the machine, and of another driver")
    link(tmp_path, f"{ROOT}/etc/alternatives/{NAME}", current)
    link(tmp_path, f"{ROOT}/usr/lib/x86_64-linux-gnu/{NAME}", f"/etc/alternatives/{NAME}")
    assert found(tmp_path) == f"{tmp_path}{ROOT}{current}"


def test_no_link_of_a_driver_container_leads_out_of_it(tmp_path: Path) -> None:
    put(tmp_path, "/usr/lib64/libnvidia-ml.so.550", "of the machine")
    link(tmp_path, f"{ROOT}/usr/lib64/{NAME}", "../../../../../usr/lib64/libnvidia-ml.so.550")
    assert found(tmp_path) == ""


def test_without_a_library_on_the_machine_the_linker_looks_for_one(tmp_path: Path) -> None:
    link(tmp_path, f"/usr/lib64/{NAME}", "/nowhere")
    assert found(tmp_path) == ""


def test_a_setting_is_final_and_names_a_library_or_its_folder(tmp_path: Path) -> None:
    put(tmp_path, f"/usr/lib64/{NAME}", "")
    assert found(tmp_path, setting="/no/such.so") == "/no/such.so"
    assert found(tmp_path, setting=str(tmp_path)) == f"{tmp_path}/{NAME}"


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("/proc/modules", "nvidia 1 0 - Live 0x0\n", True),
        ("/proc/modules", "nvidia_uvm 1 0 - Live 0x0\n", False),
        ("/proc/modules", "", False),
        ("/sys/module/nvidia/version", "580.95.05", True),
        ("/proc/driver/nvidia/version", "NVRM version: 580.95.05", True),
        ("/etc/hostname", "n1", None),
    ],
)
def test_whether_the_kernel_has_a_driver(
    tmp_path: Path, path: str, content: str, expected: bool | None
) -> None:
    put(tmp_path, path, content)
    assert is_driver_loaded(Tree(tmp_path)) is expected
