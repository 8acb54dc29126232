"""Failed GPUs in a validation: what hinders a proof, and what the evidence says."""

from msgspec.structs import replace

from libs.contracts.facts import Gpu, PciDevice
from libs.contracts.gpus import GpuIdentity, GpuProblem
from libs.contracts.telemetry import GpuSample
from services.validator.node.gpu_check import GpuCheck, check_gpus, listed
from tests.builders.gpus import gpu

GPUS = [gpu(index) for index in range(4)]
DEVICES = [
    PciDevice(address=f"0000:0{index}:00.0", vendor="10de", device="2330", device_class="030200")
    for index in range(4)
]
LOST = [replace(gpu, problem=GpuProblem.LOST) for gpu in GPUS]
BY_UUID = [GpuIdentity(uuid=gpu.uuid) for gpu in GPUS]
BY_PCI = [GpuIdentity(pci=device.address) for device in DEVICES]
REASON = (
    "the GPU cannot be used: it is lost: the GPU fell off the bus: reboot the node, and replace"
    " the GPU if it is lost again"
)


def check(
    *gpus: Gpu,
    before: list[GpuIdentity] | None = None,
    listed_before: list[Gpu] | None = None,
    devices: list[PciDevice] = DEVICES,
    samples: list[GpuSample] | None = None,
    said: dict[str, str] | None = None,
) -> GpuCheck:
    return check_gpus(
        gpus,
        samples or [],
        known=listed(listed_before or [], ()),
        devices=devices,
        failed_before=before or [],
        said=said or {},
    )


def test_all_gpus_work() -> None:
    found = "4 of 4 GPUs work"
    assert check(*GPUS) == GpuCheck(found=found, working=tuple(GPUS), sound=tuple(GPUS))


def test_a_gpu_that_failed_in_the_operation_hinders_the_proof() -> None:
    found = check(LOST[0], *GPUS[1:], before=BY_UUID[1:])
    assert found.problem == f"failed in this operation: GPU-0 at 00000000:00:00.0 ({REASON})"
    assert found.found == "3 of 4 GPUs work"


def test_a_gpu_that_had_failed_before_does_not_and_the_evidence_names_it() -> None:
    for before in (BY_UUID[:1], BY_PCI[:1]):
        assert check(LOST[0], *GPUS[1:], before=before) == GpuCheck(
            found="3 of 4 GPUs work; failed before this operation:"
            f" GPU-0 at 00000000:00:00.0 ({REASON})",
            working=tuple(GPUS[1:]),
            sound=tuple(GPUS[1:]),
        )


def test_a_gpu_that_had_failed_before_and_works_again_is_not_named() -> None:
    assert check(*GPUS, before=BY_UUID) == GpuCheck(found="4 of 4 GPUs work", working=tuple(GPUS))


def test_one_of_each_kind_names_both() -> None:
    found = check(LOST[0], LOST[1], *GPUS[2:], before=BY_PCI[1:2])
    assert found.problem == (
        f"failed in this operation: GPU-0 at 00000000:00:00.0 ({REASON}); 2 of 4 GPUs work;"
        f" failed before this operation: GPU-1 at 00000000:01:00.0 ({REASON})"
    )


def test_one_gpu_must_work() -> None:
    found = check(*LOST, before=BY_UUID)
    assert found.problem.startswith("no GPU works, so nothing proves the driver: 0 of 4 GPUs work;")
    assert found.problem.endswith("; and 1 more")
    assert check(devices=[]).problem == "the driver has no GPU: see the kernel log"


def test_a_gpu_that_only_the_kernel_lists_has_failed() -> None:
    found = check(*GPUS[:3])
    assert found.problem == (
        "failed in this operation: the GPU at 0000:03:00.0 (the driver does not have the GPU: see"
        " the kernel log for that address)"
    )
    assert found.found == "3 of 4 GPUs work"
    before = check(*GPUS[:3], before=[GpuIdentity(uuid="GPU-3", pci="00000000:03:00.0")])
    assert before.problem == ""


def test_what_the_kernel_log_says_of_a_gpu_that_the_driver_lacks_is_quoted() -> None:
    found = check(*GPUS[:3], said={"0000:03:00": "RmInitAdapter failed! (0x61:0x56:1603)"})
    assert found.problem == (
        "failed in this operation: the GPU at 0000:03:00.0 (the driver does not have the GPU, and"
        " the kernel log says of it: RmInitAdapter failed! (0x61:0x56:1603): see the kernel log for"
        " that address)"
    )
    other = check(*GPUS[:3], said={"0000:02:00": "RmInitAdapter failed! (0x61:0x56:1603)"})
    assert "RmInitAdapter" not in other.problem


def test_a_gpu_that_was_listed_earlier_and_is_gone_has_failed() -> None:
    found = check(*GPUS[:3], listed_before=GPUS, devices=DEVICES[:3])
    assert (
        "GPU-3 at 00000000:03:00.0 (the GPU cannot be used: the driver lists it no more"
        in found.problem
    )
    assert found.found == "3 of 4 GPUs work"
    # The kernel still lists it: it is one GPU all the same.
    assert check(*GPUS[:3], listed_before=GPUS).found == "3 of 4 GPUs work"
    assert check(*GPUS[:3], listed_before=GPUS, devices=DEVICES[:3], before=BY_UUID).problem == ""


def test_what_a_sample_shows_counts() -> None:
    sample = GpuSample("GPU-2", 2, "00000000:02:00.0", remap_failure=1)
    assert "GPU-2 at 00000000:02:00.0 (the remapping" in check(*GPUS, samples=[sample]).problem


NAMELESS = [replace(gpu, uuid="", pci="") for gpu in LOST]


def test_a_gpu_that_was_lost_before_the_load_is_known_by_the_address_that_is_left() -> None:
    found = check(NAMELESS[0], *GPUS[1:])
    assert found.problem == f"failed in this operation: the GPU at 0000:00:00.0 ({REASON})"
    assert check(NAMELESS[0], *GPUS[1:], before=BY_PCI[:1]).problem == ""
    assert check(NAMELESS[0], *GPUS[1:], before=BY_PCI[1:]).problem == found.problem


def test_two_of_them_and_one_that_is_not_listed_are_the_three_that_are_left() -> None:
    found = check(NAMELESS[0], NAMELESS[2], GPUS[1], before=BY_PCI)
    assert found.problem == ""
    assert found.found.startswith("1 of 4 GPUs work; failed before this operation: the GPU at 0000")
    assert "0000:03:00.0 (the driver does not have the GPU" in found.found


def test_one_that_was_listed_earlier_is_the_one_that_is_missing() -> None:
    found = check(*GPUS[:3], replace(NAMELESS[3], index=9), listed_before=GPUS, before=BY_UUID)
    assert found.problem == ""
    assert found.found.startswith("3 of 4 GPUs work; failed before this operation: GPU-3 at")


def test_an_identity_that_names_nothing_excuses_no_gpu() -> None:
    found = check(NAMELESS[0], *GPUS[1:], before=[GpuIdentity()], devices=[])
    assert found.problem.startswith("failed in this operation: a GPU without an identity (")


def test_the_gpus_of_this_boot_are_remembered() -> None:
    known = listed(GPUS[:2], ())
    assert [each.uuid for each in listed(GPUS[1:3], known)] == ["GPU-1", "GPU-2", "GPU-0"]
    many = [replace(GPUS[0], uuid=f"GPU-{number}") for number in range(500)]
    assert len(listed(many, known)) == 128
