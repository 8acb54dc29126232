"""Diagnoses of a machine: why a driver is not loaded, and notes."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from libs.contracts.diagnoses import MEANINGS, Diagnosis, describe
from libs.host import acs, diagnosing
from libs.host.module_log import ModuleLog, Refusal, last_refusal, unstarted_gpus
from libs.host.tree import Tree
from tests.builders.machine_files import H100, link, put

UNSIGNED = b"4,900,5000000,-;nvidia: Loading of unsigned module is rejected\n"
UNKNOWN_KEY = b"5,901,5000000,-;Loading of module with unavailable key is rejected\n"
LOCKDOWN = b"4,902,5000000,-;Lockdown: modprobe: unsigned module loading is restricted; see man\n"
MAGIC = b"3,903,5000000,-;nvidia: version magic '6.8.0-45 SMP' should be '6.8.0-48 SMP'\n"
SYMBOL = b"4,904,5000000,-;nvidia_uvm: disagrees about version of symbol module_layout\n"
LOADED = b"6,905,6000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05\n"
OF_A_PROCESS = b"12,906,5000000,-;nvidia: Loading of unsigned module is rejected\n"
UNKNOWN = b"3,916,5000000,-;nvidia: Unknown symbol drm_gem_object_free (err -2)\n"
UNKNOWN_VERSION = b"3,917,5000000,-;nvidia_uvm: Unknown symbol nvUvmInterfaceDeInit (err -22)\n"
NO_GPU = b"3,918,5000000,-;NVRM: No NVIDIA GPU found.\n"
NONE_STARTED = b"3,919,5000000,-;NVRM: None of the NVIDIA devices were initialized.\n"
ADAPTER = b"3,910,7000000,-;NVRM: GPU 0000:00:10.0: RmInitAdapter failed! (0x61:0x56:1603)\n"
FIRMWARE = b"3,909,7000000,-;NVRM: RmFetchGspRmImages: No firmware image found\n"
FOLLOWS = b"3,911,7000000,-;NVRM: GPU 0000:00:10.0: rm_init_adapter failed, device minor number 0\n"
OFF_THE_BUS = (
    b"3,912,5000000,-;NVRM: The NVIDIA GPU 0000:00:11.0 (PCI ID: 10de:20b0)\\x0aNVRM: installed in"
    b" this system has fallen off the bus and is not\\x0aNVRM: responding to commands.\n"
)
OFF_THE_BUS_535 = (
    b"3,912,5000000,-;NVRM: The NVIDIA GPU 0000:00:11.0\\x0aNVRM: (PCI ID: 10de:20b0) installed in"
    b" this system has\\x0aNVRM: fallen off the bus and is not responding to commands.\n"
)
"""As 535.309.01 writes it."""
BEGIN = (
    b"6,913,8000000,-;nvidia-nvlink: Nvlink Core is being initialized, major device number 511\n"
)
WRITTEN = b"12,914,7000000,-;NVRM: GPU 0000:00:10.0: RmInitAdapter failed! of a process\n"
HOSTILE = b"3,915,7000000,-;NVRM: GPU 0000:00:10.0: RmInitAdapter failed! \xff\x1b[2J\n"
FAILED_ADAPTER = "RmInitAdapter failed! (0x61:0x56:1603)"
NO_IMAGE = "RmFetchGspRmImages: No firmware image found"
OTHER_MODULE = b"4,907,5000000,-;zfs: version magic '6.8.0-45' should be '6.8.0-48'\n"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ModuleLog]:
    put(tmp_path, "/proc/modules", "ext4 1 0 - Live 0x0\n")
    log = ModuleLog(Tree(tmp_path))
    yield log
    log.close()


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        ((UNSIGNED,), Refusal.KEY),
        ((UNKNOWN_KEY,), Refusal.KEY),
        ((LOCKDOWN,), Refusal.KEY),
        ((MAGIC,), Refusal.KERNEL),
        ((UNSIGNED, SYMBOL), Refusal.KERNEL),
        ((UNSIGNED, LOADED), None),
        ((UNKNOWN,), Refusal.SYMBOL),
        ((SYMBOL, UNKNOWN_VERSION), Refusal.KERNEL),
        ((UNKNOWN, NO_GPU), Refusal.NO_GPU),
        ((NONE_STARTED,), Refusal.NO_GPU),
        ((NO_GPU, LOADED), None),
        ((ADAPTER, OFF_THE_BUS), None),
        ((OF_A_PROCESS, OTHER_MODULE, b"no record", b""), None),
    ],
)
def test_the_kernel_log_tells_why_a_module_was_refused(
    lines: tuple[bytes, ...], refusal: Refusal | None
) -> None:
    assert last_refusal(lines) is refusal


def test_the_log_is_read_from_its_begin_and_then_what_is_new(
    log: ModuleLog, tmp_path: Path
) -> None:
    assert (log.refusal(), log.is_readable) == (None, False)
    put(tmp_path, "/dev/kmsg", UNSIGNED.decode())
    assert (log.refusal(), log.is_readable) == (Refusal.KEY, True)
    assert log.refusal() is Refusal.KEY
    with (tmp_path / "dev/kmsg").open("ab") as file:
        file.write(LOADED + MAGIC)
    assert log.refusal() is Refusal.KERNEL


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((ADAPTER,), {"0000:00:10": FAILED_ADAPTER}),
        ((FIRMWARE, ADAPTER, FOLLOWS), {"0000:00:10": f"{NO_IMAGE}; {FAILED_ADAPTER}"}),
        (
            (BEGIN, OFF_THE_BUS, LOADED),
            {
                "0000:00:11": "(PCI ID: 10de:20b0) installed in this system has fallen off the bus"
                " and is not responding to commands."
            },
        ),
        (
            (BEGIN, OFF_THE_BUS_535, LOADED),
            {
                "0000:00:11": "(PCI ID: 10de:20b0) installed in this system has fallen off the bus"
                " and is not responding to commands."
            },
        ),
        ((ADAPTER, BEGIN, LOADED), {}),
        ((WRITTEN, SYMBOL, b"no record"), {}),
        ((HOSTILE,), {"0000:00:10": "RmInitAdapter failed! \\xff\\x1b[2J"}),
    ],
)
def test_the_kernel_log_tells_why_a_gpu_does_not_start(
    lines: tuple[bytes, ...], said: dict[str, str]
) -> None:
    assert unstarted_gpus(lines) == said


class Boot(NamedTuple):
    """What a machine tells about the start of its driver."""

    modules: str = "ext4"
    kmsg: bytes | None = b""
    secure_boot: bool = False


@pytest.mark.parametrize(
    ("boot", "diagnosis"),
    [
        (Boot(modules="nouveau"), Diagnosis.NOUVEAU),
        (Boot(), None),
        (Boot(kmsg=UNSIGNED), Diagnosis.SECURE_BOOT),
        (Boot(kmsg=MAGIC, secure_boot=True), Diagnosis.OTHER_KERNEL),
        (Boot(kmsg=LOADED, secure_boot=True), None),
        (Boot(kmsg=None, secure_boot=True), Diagnosis.SECURE_BOOT),
        (Boot(kmsg=UNKNOWN), Diagnosis.MISSING_SYMBOL),
        (Boot(kmsg=NO_GPU), Diagnosis.NO_GPU),
        (Boot(modules="nvidia", kmsg=UNSIGNED, secure_boot=True), None),
    ],
)
def test_a_driver_that_is_not_loaded_has_a_named_cause(
    log: ModuleLog, tmp_path: Path, boot: Boot, diagnosis: Diagnosis | None
) -> None:
    put(tmp_path, "/proc/modules", f"{boot.modules} 1 0 - Live 0x0\n")
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    put(tmp_path, variable, f"\x06\0\0\0{chr(boot.secure_boot)}")
    if boot.kmsg is not None:
        put(tmp_path, "/dev/kmsg", boot.kmsg.decode())
    assert diagnosing.obstacle(Tree(tmp_path), log) is diagnosis


BRIDGE, GPU = "0000:00:01.0", "0000:01:00.0"
DEVICES = "/sys/bus/pci/devices"


def config(*, redirects: bool) -> bytes:
    """Return a configuration space with two extended capabilities; the second is ACS."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0, 0b0100 if redirects else 0)
    return bytes(space)


def add_gpu(root: Path, *, group: str, redirects: bool) -> None:
    real = f"/sys/devices/pci0000:00/{BRIDGE}"
    for name, text in H100.items():
        put(root, f"{real}/{GPU}/{name}", text)
    link(root, f"{real}/{GPU}/iommu_group", "../../../../kernel/iommu_groups/7")
    put(root, "/sys/kernel/iommu_groups/7/type", f"{group}\n")
    (root / f"{real}/config"[1:]).write_bytes(config(redirects=redirects))
    link(root, f"{DEVICES}/{BRIDGE}", f"../../../devices/pci0000:00/{BRIDGE}")
    link(root, f"{DEVICES}/{GPU}", f"../../../devices/pci0000:00/{BRIDGE}/{GPU}")


@pytest.mark.parametrize(
    ("group", "redirects", "found"),
    [
        ("identity", False, ()),
        ("DMA-FQ", False, (Diagnosis.IOMMU,)),
        ("identity", True, (Diagnosis.ACS,)),
    ],
)
def test_what_slows_copies_between_gpus_is_noted(
    tmp_path: Path, group: str, redirects: bool, found: tuple[Diagnosis, ...]
) -> None:
    (tmp_path / diagnosing.SHARED_MEMORY[1:]).mkdir(parents=True)
    add_gpu(tmp_path, group=group, redirects=redirects)
    assert diagnosing.notes(Tree(tmp_path)) == found


def test_missing_and_small_shared_memory_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert diagnosing.notes(Tree(tmp_path)) == (Diagnosis.SHARED_MEMORY,)
    (tmp_path / diagnosing.SHARED_MEMORY[1:]).mkdir(parents=True)
    assert diagnosing.notes(Tree(tmp_path)) == ()
    monkeypatch.setattr(diagnosing, "LEAST_SHARED_MEMORY", 1 << 80)
    assert diagnosing.notes(Tree(tmp_path)) == (Diagnosis.SHARED_MEMORY,)


def test_a_configuration_space_that_is_cut_off_or_circular_redirects_nothing() -> None:
    circular = bytearray(4096)
    struct.pack_into("<I", circular, 0x100, 0x0001 | 0x100 << 20)
    for space in (b"", config(redirects=True)[:64], bytes(circular), bytes(4096)):
        assert not acs.is_redirecting(space)


def test_each_diagnosis_has_a_meaning_and_a_remedy() -> None:
    assert set(MEANINGS) == set(Diagnosis)
    assert describe(Diagnosis.NOUVEAU).endswith(": blacklist nouveau on this machine and reboot it")
    assert describe(None) == describe(Diagnosis("of-a-newer-release")) == ""
