"""Which GPUs have failed, as a telemetry agent reports it: its report may be anything."""

import pytest

from libs.contracts.gpus import GpuIdentity
from libs.contracts.health import GpuHealth, Health, HealthFinding, HealthRule, HealthState
from libs.contracts.message import decode, encode
from libs.rollout.failed_gpus import describe_failed_gpus
from libs.rollout.views.machine import FailedGpu, GpuVerdict
from services.scheduler.snapshot.gpu_verdict import MAX_GPUS, gpu_verdict

OK, DEGRADED, FAILED = HealthState.OK, HealthState.DEGRADED, HealthState.FAILED
UUID, PCI = "GPU-4fc7a2f1-0000-0000-0000-000000000000", "00000000:41:00.0"


def finding(state: HealthState, message: str, remedy: str = "") -> HealthFinding:
    return HealthFinding(rule=HealthRule.UNUSABLE, state=state, message=message, remedy=remedy)


def gpu(
    *findings: HealthFinding, uuid: str = UUID, pci: str = PCI, state: HealthState = FAILED
) -> GpuHealth:
    return GpuHealth(uuid=uuid, index=0, pci=pci, state=state, findings=findings)


def failed(*gpus: GpuHealth) -> tuple[FailedGpu, ...]:
    verdict = gpu_verdict("boot-1", Health(gpus=gpus))
    assert verdict.boot_id == "boot-1"
    return verdict.failed


def test_a_failed_gpu_is_named_with_its_worst_finding() -> None:
    findings = (
        finding(DEGRADED, "hot", "cool it"),
        finding(FAILED, "lost", "reboot the node"),
        finding(FAILED, "XID 79"),
    )
    assert failed(gpu(*findings)) == (
        FailedGpu(GpuIdentity(uuid=UUID, pci=PCI), "lost: reboot the node"),
    )
    assert failed(gpu(finding(FAILED, "lost")))[0].cause == "lost"


def test_only_failed_gpus_count() -> None:
    states = (OK, DEGRADED, HealthState("a state of a later release"))
    assert failed(*(gpu(finding(FAILED, "x"), state=state) for state in states)) == ()
    assert gpu_verdict("b", Health()) == GpuVerdict("b")


def test_a_failed_gpu_without_a_finding_has_failed_all_the_same() -> None:
    (found,) = failed(gpu(finding(DEGRADED, "hot")))
    assert found.cause == ""
    assert describe_failed_gpus((found,)).endswith("has failed: no cause was reported")


@pytest.mark.parametrize(
    ("uuid", "pci", "expected"),
    [
        ("GPU-\n", "../../etc", GpuIdentity()),
        ("x" * 4096, "p" * 4096, GpuIdentity()),
        ("GPU-" + "a" * 81, "0000:41:00.8", GpuIdentity()),
        ("MIG-4fc7a2f1", "41:00.0", GpuIdentity()),
        ("GPU-\N{SNOWMAN}", "0000:41:00.0\n", GpuIdentity()),
        ("", PCI, GpuIdentity(pci=PCI)),
        (UUID, "", GpuIdentity(uuid=UUID)),
        (UUID, "0000:c1:00.0", GpuIdentity(uuid=UUID, pci="0000:c1:00.0")),
    ],
)
def test_a_malformed_identity_is_left_out_and_the_gpu_has_failed(
    uuid: str, pci: str, expected: GpuIdentity
) -> None:
    (found,) = failed(gpu(finding(FAILED, "lost"), uuid=uuid, pci=pci))
    assert found == FailedGpu(expected, "lost")


def test_texts_are_made_printable_and_are_bounded() -> None:
    (found,) = failed(gpu(finding(FAILED, "a\x1b[2J\nb" * 2000, "\x00" * 4096)))
    assert found.cause.isprintable()
    assert len(found.cause) < 2048


def test_many_gpus_are_bounded() -> None:
    gpus = [gpu(finding(FAILED, "lost"), uuid=f"GPU-{number}") for number in range(5000)]
    report = decode(Health, encode(Health(gpus=tuple(gpus))))
    verdict = gpu_verdict("boot-1", report)
    assert len(verdict.failed) == MAX_GPUS
    assert describe_failed_gpus(verdict.failed).endswith("; 61 more GPUs have failed")
