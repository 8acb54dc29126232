"""The readers of a machine's files, as kernels write these files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.contracts.facts import Cpu, Kernel, Memory, OperatingSystem, PciDevice
from libs.host import holders, modules, pci, system
from libs.host.tree import Tree, Unreadable
from libs.runtime.fatal import Fatal
from tests.builders import machine_files
from tests.builders.machine_files import link, put, put_device, tree

H100 = {**machine_files.H100, "numa_node": "1"}
POD = "0f5b7a0e-3333-4c1d-8f2e-0a1b2c3d4e03"
CONTAINER = "ab" * 32


def found(machine: Tree) -> tuple[PciDevice, ...]:
    devices = pci.devices(machine)
    assert devices is not None
    return devices


def with_device(root: Path, address: str, files: dict[str, str]) -> Tree:
    put_device(root, address, files)
    return Tree(root)


def test_a_pci_device_is_read_from_sysfs(tmp_path: Path) -> None:
    path = "/sys/bus/pci/devices/0000:1b:00.0"
    link(tmp_path, f"{path}/driver", "../../../../bus/pci/drivers/nvidia")
    link(tmp_path, f"{path}/iommu_group", "../../../../kernel/iommu_groups/42")
    machine = with_device(tmp_path, "0000:1b:00.0", {**H100, "sriov_totalvfs": "16"})
    device = found(machine)[0]
    assert device == PciDevice(
        address="0000:1b:00.0",
        vendor="10de",
        device="2330",
        device_class="0302",
        subsystem_vendor="10de",
        subsystem_device="16c1",
        driver="nvidia",
        numa_node=1,
        sriov_total_vfs=16,
        iommu_group="42",
    )
    assert pci.is_gpu(device)


@pytest.mark.parametrize(
    "lacking", ["class", "vendor", "device", "subsystem_vendor", "subsystem_device"]
)
def test_a_device_with_a_missing_file_is_left_out(tmp_path: Path, lacking: str) -> None:
    files = {name: text for name, text in H100.items() if name != lacking}
    assert pci.devices(with_device(tmp_path, "0000:1b:00.0", files)) == ()


@pytest.mark.parametrize(
    ("vendor", "kind", "gpu"),
    [
        ("0x10de", "0x030000", True),
        ("0x10de", "0x030200", True),
        ("0x10de", "0x040300", False),
        ("0x10de", "0x068000", False),
        ("0x1002", "0x030200", False),
    ],
)
def test_which_devices_are_gpus(tmp_path: Path, vendor: str, kind: str, gpu: bool) -> None:
    machine = with_device(tmp_path, "a", {**H100, "vendor": vendor, "class": kind})
    device = found(machine)[0]
    assert pci.is_gpu(device) is gpu


def test_a_missing_bus_is_none_and_an_empty_bus_is_empty(tmp_path: Path) -> None:
    assert pci.devices(tree(tmp_path)) is None
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    assert pci.devices(tree(tmp_path)) == ()


def test_modules_are_read_with_users_and_version(tmp_path: Path) -> None:
    machine = tree(
        tmp_path,
        {
            "/proc/modules": (
                "nvidia_uvm 4956160 2 - Live 0x0000000000000000 (OE)\n"
                "nvidia 62738432 34 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)\n"
                "half a line\n"
            ),
            "/sys/module/nvidia/version": "570.86.15\n",
        },
    )
    assert modules.loaded(machine) == {
        "nvidia_uvm": modules.Module(name="nvidia_uvm", references=2),
        "nvidia": modules.Module(
            name="nvidia",
            references=34,
            users=("nvidia_uvm", "nvidia_modeset"),
            version="570.86.15",
        ),
    }


def test_an_unreadable_module_list_is_fatal(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=f"/proc/modules cannot be read below {tmp_path}: mount"):
        modules.loaded(tree(tmp_path))
    assert modules.loaded(tree(tmp_path, {"/proc/modules": ""})) == {}


def test_a_kernel_without_modules_has_none_loaded(tmp_path: Path) -> None:
    assert modules.loaded(tree(tmp_path, {"/proc/version": "Linux version 6.18\n"})) == {}


def test_modules_are_unloaded_before_those_that_they_use() -> None:
    order = modules.UNLOAD_ORDER
    assert order[-1] == modules.DRIVER
    assert order.index("nvidia_drm") < order.index("nvidia_modeset")
    assert {"nvidia_uvm", "nvidia_peermem", "nvidia_fs", "gdrdrv"} < set(order)


SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
OS_RELEASE = "ID=rhel\nVERSION_ID=\"9.4\"\nPRETTY_NAME='Red Hat'\nOSTREE_VERSION=417\n\nnonsense\n"
RHEL = OperatingSystem(id="rhel", version_id="9.4", name="Red Hat", ostree_version="417")
AMD = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nflags\t\t: sse avx\n\n"
ARM = (
    "processor\t: 0\nFeatures\t: fp asimd sve2\nCPU implementer\t: 0x41\n"
    "CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd4f\nCPU revision\t: 2\n\n"
)
DESCRIBED: dict[str, tuple[Callable[[Tree], object], dict[str, str], object]] = {
    "the kernel": (
        system.kernel,
        {
            "/proc/sys/kernel/osrelease": "6.8.0-48-generic\n",
            "/proc/modules": "".join(
                f"{name} 1 0 - Live 0x0\n" for name in ("nouveau", "ext4", "rdma_ucm")
            ),
            "/sys/fs/selinux/enforce": "1",
            SECURE_BOOT: "\x06\x00\x00\x00\x01",
            "/boot/config-6.8.0-48-generic": (
                "CONFIG_NO_HZ=y\n# CONFIG_PREEMPT is not set\nCONFIG_HZ=250\n"
            ),
        },
        Kernel(
            release="6.8.0-48-generic",
            selinux=True,
            secure_boot=True,
            config={"NO_HZ": "y"},
            modules=("nouveau", "rdma_ucm"),
        ),
    ),
    "a kernel with few files": (
        system.kernel,
        {"/proc/sys/kernel/osrelease": "6.1", "/proc/modules": ""},
        Kernel(release="6.1"),
    ),
    "no kernel": (system.kernel, {}, None),
    "the boot id": (system.boot_id, {"/proc/sys/kernel/random/boot_id": "6a1d\n"}, "6a1d"),
    "no boot id": (system.boot_id, {}, ""),
    "the system in /etc": (system.operating_system, {"/etc/os-release": OS_RELEASE}, RHEL),
    "the system in /usr": (system.operating_system, {"/usr/lib/os-release": OS_RELEASE}, RHEL),
    "a system without an id": (system.operating_system, {"/etc/os-release": "NAME=x\n"}, None),
    "the processors": (
        system.cpu,
        {
            "/proc/sys/kernel/arch": "riscv64\n",
            "/proc/cpuinfo": f"processor\t: 0\n{AMD}processor\t: 1\n{AMD}",
            "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0,96\n",
            "/sys/devices/system/cpu/cpufreq/x": "",
        },
        Cpu(
            architecture="riscv64",
            vendor="AuthenticAMD",
            family=25,
            model=17,
            count=2,
            multithreading=True,
            flags=("avx", "sse"),
        ),
    ),
    "an Arm processor, by its register": (
        system.cpu,
        {"/proc/sys/kernel/arch": "aarch64\n", "/proc/cpuinfo": ARM},
        Cpu(
            architecture="aarch64",
            vendor="0x41",
            family=0x1F,
            model=0xD4F2,
            count=1,
            flags=("asimd", "fp", "sve2"),
        ),
    ),
    "no processor": (system.cpu, {}, None),
    "the memory": (
        system.memory,
        {
            "/proc/meminfo": "MemTotal:       2113407800 kB\nMemFree: 1 kB\n",
            "/proc/swaps": "Filename Type\n/swapfile file\n",
            "/sys/devices/system/node/node0/x": "",
            "/sys/devices/system/node/node1/x": "",
            "/sys/devices/system/node/online": "0-1",
        },
        Memory(bytes=2113407800 * 1024, numa_nodes=2, swap=True),
    ),
    "no memory": (system.memory, {}, None),
    "the product": (system.machine, {"/sys/class/dmi/id/product_name": "DGX H100 \n"}, "DGX H100"),
    "no product": (system.machine, {}, ""),
}
"""A reader, the files that it finds, and what it returns."""


@pytest.mark.parametrize("what", DESCRIBED)
def test_a_machine_is_described_by_its_files(tmp_path: Path, what: str) -> None:
    read, files, expected = DESCRIBED[what]
    assert read(tree(tmp_path, files)) == expected


def test_the_architecture_defaults_to_that_of_this_process(tmp_path: Path) -> None:
    found = system.cpu(tree(tmp_path, {"/proc/cpuinfo": "processor\t: 0\n"}))
    assert found is not None
    assert found.architecture == os.uname().machine


def process(root: Path, pid: int, comm: str, cgroup: str, *open_files: str) -> None:
    put(root, f"/proc/{pid}/comm", f"{comm}\n")
    put(root, f"/proc/{pid}/cgroup", f"0::{cgroup}\n")
    for number, path in enumerate(open_files):
        link(root, f"/proc/{pid}/fd/{number}", path)


CGROUPS = [
    f"/kubepods/burstable/pod{POD}/{CONTAINER}",
    f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
    f"/../../kubepods/besteffort/pod{POD}/{CONTAINER}",
]


@pytest.mark.parametrize("cgroup", CGROUPS)
def test_a_holder_in_a_pod_is_found_with_its_container(tmp_path: Path, cgroup: str) -> None:
    process(tmp_path, 4711, "python", cgroup, "/dev/nvidia0", "/dev/nvidiactl", "/dev/null")
    process(tmp_path, 12, "sshd", "/system.slice/ssh.service", "/dev/null")
    (holder,) = holders.holders(Tree(tmp_path))
    assert (holder.pid, holder.comm) == (4711, "python")
    assert holder.devices == ("/dev/nvidia0", "/dev/nvidiactl")
    assert (holder.pod_uid, holder.container_id) == (POD, CONTAINER)


@pytest.mark.parametrize(
    ("cgroup", "pod_uid", "container_id"),
    [
        ("/user.slice/session-1.scope", "", ""),
        (f"/kubepods/pod{'0a' * 16}/{CONTAINER}", "0a" * 16, CONTAINER),
    ],
    ids=["outside of pods", "a static pod, whose uid is a hash"],
)
def test_a_holder_elsewhere_is_found(
    tmp_path: Path, cgroup: str, pod_uid: str, container_id: str
) -> None:
    process(tmp_path, 900, "Xorg", cgroup, "/dev/nvidia-uvm")
    (holder,) = holders.holders(Tree(tmp_path))
    assert (holder.comm, holder.pod_uid, holder.container_id) == ("Xorg", pod_uid, container_id)


@pytest.mark.parametrize(
    ("cgroup", "pod_uid"),
    [
        (f"/kubepods/pod{POD}/{CONTAINER}/kubepods/pod{'0a' * 16}/{'cd' * 32}", POD),
        (f"/kubelet/kubepods/burstable/pod{POD}/{CONTAINER}", POD),
        (f"/user.slice/pod{POD}/{CONTAINER}", ""),
        (f"/system.slice/tool-pod{POD}.service", ""),
        (f"/kubepods/pod{POD}x/{CONTAINER}", ""),
    ],
    ids=["named by a container", "nested kubelet", "a user's slice", "a service", "no uid"],
)
def test_only_a_cgroup_of_the_kubelet_names_a_pod(
    tmp_path: Path, cgroup: str, pod_uid: str
) -> None:
    process(tmp_path, 5, "x", cgroup, "/dev/nvidia0")
    assert [holder.pod_uid for holder in holders.holders(Tree(tmp_path))] == [pod_uid]


def test_a_process_whose_cgroup_cannot_be_read_may_be_of_any_pod(tmp_path: Path) -> None:
    process(tmp_path, 5, "x", "/")
    (tmp_path / "proc/5/cgroup").unlink()
    os.mkfifo(tmp_path / "proc/5/cgroup")
    with pytest.raises(Unreadable, match="/proc/5/cgroup"):
        holders.containers(Tree(tmp_path), POD)


def test_holders_are_sorted_by_pid(tmp_path: Path) -> None:
    for pid in (100, 9, 20):
        process(tmp_path, pid, "x", "/", "/dev/nvidia0")
    assert [holder.pid for holder in holders.holders(Tree(tmp_path))] == [9, 20, 100]


def test_live_containers_of_a_pod_are_listed(tmp_path: Path) -> None:
    other = "cd" * 32
    process(tmp_path, 1, "a", f"/kubepods/pod{POD}/{CONTAINER}")
    process(tmp_path, 2, "b", f"/kubepods/pod{POD}/{CONTAINER}")
    process(tmp_path, 3, "c", f"/kubepods/pod{POD}/{other}")
    process(tmp_path, 4, "d", f"/kubepods/pod{POD.replace('3333', '4444')}/{CONTAINER}")
    assert holders.containers(Tree(tmp_path), POD) == (CONTAINER, other)
    assert holders.containers(Tree(tmp_path), "missing") == ()


def put_start(root: Path, pid: int, comm: str, ticks: int) -> None:
    fields = " ".join(["S", *["0"] * 18, str(ticks), *["0"] * 10])
    put(root, f"/proc/{pid}/stat", f"{pid} ({comm}) {fields}\n")


def test_container_starts_are_those_of_their_first_processes(tmp_path: Path) -> None:
    other = "cd" * 32
    put(tmp_path, "/proc/stat", "cpu 1 2 3\nbtime 1790000000\nprocesses 9\n")
    for pid, container, ticks in ((1, CONTAINER, 5025), (2, CONTAINER, 9000), (3, other, 100)):
        process(tmp_path, pid, "a", f"/kubepods/pod{POD}/{container}")
        put_start(tmp_path, pid, "odd) (name", ticks)
    process(tmp_path, 4, "without a stat", f"/kubepods/pod{POD}/{CONTAINER}")
    assert holders.container_starts(Tree(tmp_path), POD) == {
        CONTAINER: 1790000050.25,
        other: 1790000001.0,
    }
    assert holders.container_starts(Tree(tmp_path), "missing") == {}


def test_container_starts_are_empty_without_a_boot_time(tmp_path: Path) -> None:
    process(tmp_path, 1, "a", f"/kubepods/pod{POD}/{CONTAINER}")
    put_start(tmp_path, 1, "a", 100)
    assert holders.container_starts(Tree(tmp_path), POD) == {}


def test_a_required_boot_id_that_is_missing_is_fatal(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="mount the host's root there"):
        system.require_boot_id(tree(tmp_path))
