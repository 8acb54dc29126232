"""Labels of node feature discovery: PCI devices, processor, kernel and memory."""

import pytest

from libs.contracts.facts import Cpu, Facts, Kernel, LocalFeatures, Memory, PciDevice
from services.discovery.cluster.label_values import check
from services.discovery.cluster.nfd import system_labels
from tests.unit.discovery.cluster.builders import DEVICE, FEATURES, NIC


def labels_of(facts: Facts, *present: str) -> dict[str, str | None]:
    """Return labels without their prefix."""
    found = check(system_labels(facts, [f"{FEATURES}{key}" for key in present])).labels
    return {key.removeprefix(FEATURES): value for key, value in found.items()}


def device(vendor: str, device_class: str, *, vfs: int = 0) -> PciDevice:
    return PciDevice(
        address=vendor, vendor=vendor, device="1", device_class=device_class, sriov_total_vfs=vfs
    )


def test_network_and_display_controllers_are_labelled_by_vendor() -> None:
    devices = (DEVICE, NIC, device("8086", "0200", vfs=8), device("144d", "0108"))
    assert labels_of(Facts(pci=devices)) == {
        "pci-10de.present": "true",
        "pci-15b3.present": "true",
        "pci-8086.present": "true",
        "pci-8086.sriov.capable": "true",
        "rdma.capable": "true",
    }


def test_labels_of_missing_devices_are_removed_but_not_those_of_gpus() -> None:
    found = labels_of(Facts(pci=()), "pci-15b3.present", "pci-10de.present", "mine")
    assert found == {"pci-15b3.present": None}


def test_false_vendors_are_left_out_and_their_number_is_bounded() -> None:
    many = tuple(device(f"{number:04x}", "0200") for number in range(1000))
    assert len(labels_of(Facts(pci=(*many, device("x/y", "0200"))))) == 32


def test_the_processor_is_described_in_the_names_of_nfd() -> None:
    flags = ("aes", "amx_tile", "avx512_vnni", "bmi1", "cx8", "fma", "sse2", "xsave", "nonsense")
    cpu = Cpu(architecture="x86_64", vendor="GenuineIntel", family=6, model=143, flags=flags)
    features = ("AESNI", "AMXTILE", "AVX512VNNI", "CMPXCHG8", "FMA3", "OSXSAVE", "XSAVE")
    assert labels_of(Facts(cpu=cpu), "cpu-cpuid.RTM") == {
        "cpu-cpuid.RTM": None,
        "cpu-hardware_multithreading": "false",
        "cpu-model.vendor_id": "Intel",
        "cpu-model.family": "6",
        "cpu-model.id": "143",
        "cpu-model.hypervisor": "none",
        **{f"cpu-cpuid.{name}": "true" for name in features},
    }


def test_kernel_options_selinux_and_memory_are_described() -> None:
    kernel = Kernel(release="6.8.0", selinux=True, config={"NO_HZ": "y", "OTHER": "y"})
    found = labels_of(Facts(kernel=kernel, memory=Memory(bytes=1, numa_nodes=2)))
    assert {key: value for key, value in found.items() if "version" not in key} == {
        "kernel-selinux.enabled": "true",
        "rdma.available": None,
        "kernel-config.NO_HZ": "true",
        "kernel-config.NO_HZ_IDLE": None,
        "kernel-config.NO_HZ_FULL": None,
        "kernel-config.PREEMPT": None,
        "memory-numa": "true",
        "memory-swap": None,
    }


def test_an_arm_processor_is_described_in_the_names_of_nfd() -> None:
    flags = ("fp", "asimd", "sve2", "smei16i64", "avx", "nonsense")
    cpu = Cpu(architecture="aarch64", vendor="0x41", family=15, model=0xD4F0, flags=flags)
    assert labels_of(Facts(cpu=cpu)) == {
        "cpu-hardware_multithreading": "false",
        "cpu-model.vendor_id": "ARM",
        "cpu-model.family": "15",
        "cpu-model.id": "54512",
        **{f"cpu-cpuid.{name}": "true" for name in ("ASIMD", "FP", "SMEI16I64", "SVE2")},
    }


def test_the_hypervisor_of_a_guest_is_not_known() -> None:
    cpu = Cpu(architecture="x86_64", vendor="AuthenticAMD", flags=("hypervisor",))
    found = labels_of(Facts(cpu=cpu), "cpu-model.hypervisor")
    assert found["cpu-model.hypervisor"] is None
    assert found["cpu-cpuid.HYPERVISOR"] == "true"


@pytest.mark.parametrize(
    ("modules", "value"), [(("ib_uverbs", "rdma_ucm"), "true"), (("ib_uverbs",), None)]
)
def test_rdma_is_available_with_both_modules(modules: tuple[str, ...], value: str | None) -> None:
    found = labels_of(Facts(kernel=Kernel(release="6.8.0", modules=modules)))
    assert found["rdma.available"] == value


def test_labels_of_feature_files_are_those_that_discovery_does_not_describe() -> None:
    own = ("cpu-cpuid.AVX", "kernel-version.full", "memory-numa", "pci-10de.present")
    own = (*own, "rdma.capable", "system-os_release.ID")
    local = ("rack", "vendor/x")
    labels = {f"{FEATURES}{key}": "b" for key in (*own, *local)}
    checked = check(system_labels(Facts(features=LocalFeatures(labels=labels))))
    assert checked.labels == {f"{FEATURES}rack": "b"}
    assert checked.refused == (*(f"{FEATURES}{key}" for key in own), "a malformed key")


def test_a_vendors_label_is_written_and_removed_with_its_line() -> None:
    theirs = {"a.example/rack": "b", "nvidia.com/mig.config": "x", "x.kubernetes.io/a": "b"}
    checked = check(system_labels(Facts(features=LocalFeatures(labels=theirs))))
    assert checked.labels == {"a.example/rack": "b"}
    assert checked.refused == ("nvidia.com/mig.config", "a malformed key")
    gone = system_labels(Facts(features=LocalFeatures()), ["a.example/rack", "nvidia.com/x"])
    assert gone == {"a.example/rack": None}


def test_labels_of_feature_files_are_removed_with_their_lines_and_bounded() -> None:
    found = labels_of(Facts(features=LocalFeatures()), "rack", "memory-numa")
    assert found == {"rack": None}
    many = {f"{FEATURES}a{number}": "x" for number in range(1000)}
    checked = check(system_labels(Facts(features=LocalFeatures(labels=many))))
    assert (len(checked.labels), len(checked.refused)) == (64, 936)
