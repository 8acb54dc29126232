"""Read which GPUs have failed from the report of a telemetry agent, which may be anything."""

import re
from typing import Final

from libs.contracts.gpus import GpuIdentity
from libs.contracts.health import GpuHealth, Health, HealthState
from libs.contracts.words import excerpt
from libs.rollout.views.machine import FailedGpu, GpuVerdict

MAX_GPUS: Final = 64
"""The most failed GPUs of a node that are kept: those after them are left out."""

_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
_PCI: Final = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")


def gpu_verdict(boot_id: str, health: Health) -> GpuVerdict:
    failed = [gpu for gpu in health.gpus if gpu.state is HealthState.FAILED]
    return GpuVerdict(boot_id, tuple(map(_failed_gpu, failed[:MAX_GPUS])))


def _failed_gpu(gpu: GpuHealth) -> FailedGpu:
    identity = GpuIdentity(
        uuid=gpu.uuid if _UUID.fullmatch(gpu.uuid) else "",
        pci=gpu.pci if _PCI.fullmatch(gpu.pci) else "",
    )
    worst = next((finding for finding in gpu.findings if finding.state is HealthState.FAILED), None)
    if worst is None:
        return FailedGpu(identity)
    return FailedGpu(identity, ": ".join(map(excerpt, filter(None, (worst.message, worst.remedy)))))
