"""Read which GPUs have failed from the report of a telemetry agent, which may be anything."""

from typing import Final

from libs.contracts.gpu_forms import PCI, UUID
from libs.contracts.gpus import GpuIdentity
from libs.contracts.health import GpuHealth, Health, HealthState
from libs.contracts.words import excerpt
from libs.rollout.views.machine import FailedGpu, GpuVerdict

MAX_GPUS: Final = 64
"""The most failed GPUs of a node that are kept: those after them are left out."""


def gpu_verdict(boot_id: str, health: Health) -> GpuVerdict:
    failed = [gpu for gpu in health.gpus if gpu.state is HealthState.FAILED]
    return GpuVerdict(boot_id, tuple(map(_failed_gpu, failed[:MAX_GPUS])))


def _failed_gpu(gpu: GpuHealth) -> FailedGpu:
    identity = GpuIdentity(
        uuid=gpu.uuid if UUID.fullmatch(gpu.uuid) else "",
        pci=gpu.pci if PCI.fullmatch(gpu.pci) else "",
    )
    worst = next((finding for finding in gpu.findings if finding.state is HealthState.FAILED), None)
    if worst is None:
        return FailedGpu(identity)
    return FailedGpu(identity, ": ".join(map(excerpt, filter(None, (worst.message, worst.remedy)))))
