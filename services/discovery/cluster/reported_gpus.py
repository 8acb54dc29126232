"""What agents report about GPUs, cleaned for objects of Kubernetes. Pure.

A node's agent may lie. A value that cannot be true is left out and counted, and a list of more GPUs
than a machine has is refused as a whole: then the GPUs are unknown.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts import gpu_forms as forms
from libs.contracts.device import (
    UNKNOWN,
    DeviceFabric,
    DeviceHealth,
    DeviceMig,
    DeviceNvlink,
    DeviceStatus,
    MigDevice,
)
from libs.contracts.facts import Facts, Gpu, Mig
from libs.contracts.gpu_forms import Complaints
from libs.contracts.health import GpuHealth, Health, HealthFinding, HealthRule, HealthState
from libs.contracts.words import one_line, shorten
from libs.host.pci import is_gpu
from services.discovery.cluster.label_values import product

MAX_GPUS: Final = 32
"""GPUs of a machine."""
MAX_TEXT: Final = 256
"""Characters of a message or a remedy."""
_MAX_MIGS: Final = 16
_MAX_LINKS: Final = 64
_MAX_MEMORY: Final = 1 << 24
"""In MiB."""
_MAX_AGE: Final = 365 * 86_400.0
"""Seconds before now in which a finding may have begun."""

_SERIAL: Final = re.compile(r"[0-9A-Za-z-]{1,32}")
_PROFILE: Final = re.compile(r"[0-9a-z.+-]{1,32}")
_CLIQUE: Final = re.compile(r"[0-9A-Fa-f-]{36}\.[0-9]{1,10}")

_REASONS: Final[Mapping[HealthRule, str]] = {
    HealthRule.UNUSABLE: "Unusable",
    HealthRule.RECOVERY_ACTION: "RecoveryAction",
    HealthRule.XID: "Xid",
    HealthRule.ECC: "Ecc",
    HealthRule.ROW_REMAP: "RowRemap",
    HealthRule.NVLINK: "Nvlink",
    HealthRule.THERMAL: "Thermal",
    HealthRule.POWER: "Power",
}


class ReportedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as facts describe it."""

    index: int
    product: str = ""
    memory: int = 0
    status: DeviceStatus
    """Without driver and health."""
    is_described: bool = True
    """False if it cannot be used: then only what was known of it is reported, or nothing."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a GPU, and since when, in Unix seconds; None: not said credibly."""

    uuid: str
    index: int
    health: DeviceHealth
    since: float | None = None


class ReportedGpus(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node's GPUs; None: not reported credibly."""

    gpus: tuple[ReportedGpu, ...] | None = None
    driver: str | None = None
    verdicts: tuple[Verdict, ...] | None = None
    is_silent: bool | None = False
    """The telemetry agent has stopped sending heartbeats; None: that is not known yet."""
    refused: int = 0
    """Number of values that were left out."""


def read_gpus(
    facts: Facts | None,
    driver: str | None,
    health: Health | None,
    *,
    now: float,
    is_silent: bool | None = False,
) -> ReportedGpus:
    """Clean what the agents of a node reported about its present boot."""
    refused = Complaints()
    return ReportedGpus(
        is_silent=is_silent,
        gpus=_gpus(facts, refused),
        driver=None if driver is None else refused.word("driver", driver, forms.VERSION),
        verdicts=None if health is None else _verdicts(health.gpus, refused, now=now),
        refused=refused.count,
    )


def label_value(name: str) -> str:
    """Return a product name as the value of a label."""
    return product(name[:1024])[:63].strip("-_.")


def _gpus(facts: Facts | None, refused: Complaints) -> tuple[ReportedGpu, ...] | None:
    if facts is None:
        return None
    if facts.pci is not None and not any(map(is_gpu, facts.pci)):
        return ()
    if facts.gpus is None:
        return None
    if len(facts.gpus) > MAX_GPUS:
        refused.add("gpus", len(facts.gpus), count=len(facts.gpus))
        return None
    counts = Counter(gpu.uuid for gpu in facts.gpus)
    by_index: dict[int, ReportedGpu] = {}
    for gpu in facts.gpus:
        if gpu.index >= MAX_GPUS or gpu.index in by_index:
            refused.add("index", gpu.index)
            continue
        uuid = refused.word("uuid", gpu.uuid, forms.LABEL_UUID)
        if uuid and counts[uuid] > 1:
            refused.add("uuid", uuid)
            uuid = ""
        by_index[gpu.index] = _gpu(gpu, uuid, refused)
    return tuple(by_index[index] for index in sorted(by_index))


def _gpu(gpu: Gpu, uuid: str, refused: Complaints) -> ReportedGpu:
    status = DeviceStatus(
        uuid=uuid,
        pci=refused.word("pci", gpu.pci, forms.PCI),
        serial=refused.word("serial", gpu.serial, _SERIAL),
        compute_capability=_capability(gpu.compute_capability, refused),
        mig=_mig(gpu, refused),
        nvlink=_nvlink(gpu, refused),
        fabric=_fabric(gpu, refused),
    )
    return ReportedGpu(
        index=gpu.index,
        product=label_value(gpu.name),
        memory=_number("memory", gpu.memory_mib, refused, high=_MAX_MEMORY),
        status=status,
        is_described=gpu.trouble is None,
    )


def _number(name: str, value: int, refused: Complaints, *, high: int) -> int:
    return refused.integer(name, value, high=high) or 0


def _capability(pair: tuple[int, int], refused: Complaints) -> str:
    if not pair[0]:
        return ""
    if max(pair) > 999:
        refused.add("compute capability", pair)
        return ""
    return f"{pair[0]}.{pair[1]}"


def _mig(gpu: Gpu, refused: Complaints) -> DeviceMig | None:
    if not gpu.mig_capable:
        return DeviceMig()
    if len(gpu.migs) > _MAX_MIGS:
        refused.add("migs", len(gpu.migs), count=len(gpu.migs))
    pending = gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_mode
    return DeviceMig(
        capable=True,
        mode=_mode(gpu.mig_mode),
        pending=_mode(not gpu.mig_mode) if pending else "",
        devices=() if len(gpu.migs) > _MAX_MIGS else _mig_devices(gpu.migs, refused),
    )


def _mode(is_enabled: bool) -> str:
    return "Enabled" if is_enabled else "Disabled"


def _mig_devices(migs: Sequence[Mig], refused: Complaints) -> tuple[MigDevice, ...]:
    devices = (
        MigDevice(
            uuid=refused.word("mig uuid", mig.uuid, forms.MIG_UUID),
            profile=refused.word("profile", mig.profile, _PROFILE),
            gpu_instance=_number("mig", mig.gpu_instance, refused, high=999),
            compute_instance=_number("mig", mig.compute_instance, refused, high=999),
            memory=_number("mig", mig.memory_mib, refused, high=_MAX_MEMORY),
        )
        for mig in migs
    )
    by_uuid = {device.uuid: device for device in devices if device.uuid}
    return tuple(by_uuid[uuid] for uuid in sorted(by_uuid))


def _nvlink(gpu: Gpu, refused: Complaints) -> DeviceNvlink | None:
    links = _number("nvlinks", gpu.nvlinks, refused, high=_MAX_LINKS)
    if not links:
        return None
    down = tuple(sorted({number for number in gpu.nvlinks_down if number < links}))
    return DeviceNvlink(links=links, down=down)


def _fabric(gpu: Gpu, refused: Complaints) -> DeviceFabric | None:
    state, clique = gpu.fabric_state, refused.word("fabric", gpu.fabric, _CLIQUE)
    known = state.value if state is not None and state.is_known else ""
    return DeviceFabric(state=known, clique=clique) if known or clique else None


def _verdicts(
    judged: Sequence[GpuHealth], refused: Complaints, *, now: float
) -> tuple[Verdict, ...] | None:
    if len(judged) > MAX_GPUS:
        refused.add("verdicts", len(judged), count=len(judged))
        return None
    verdicts: list[Verdict] = []
    for gpu in judged:
        uuid = refused.word("uuid", gpu.uuid, forms.LABEL_UUID)
        if gpu.index >= MAX_GPUS or (gpu.uuid and not uuid):
            refused.add("verdict", gpu.index)
            continue
        finding = gpu.findings[0] if gpu.findings else None
        verdicts.append(
            Verdict(
                uuid=uuid,
                index=gpu.index,
                health=_health(gpu.state, finding),
                since=None if finding is None else _credible(finding.since, now),
            )
        )
    if len({(verdict.uuid, verdict.index) for verdict in verdicts}) < len(verdicts):
        refused.add("verdicts", len(verdicts), count=len(verdicts))
        return None
    return tuple(verdicts)


def _health(state: HealthState, finding: HealthFinding | None) -> DeviceHealth:
    """Return the health without `since`."""
    if not state.is_known:
        return DeviceHealth(state=UNKNOWN, reason="UnknownState")
    if state is HealthState.OK:
        return DeviceHealth(state=state.value)
    if finding is None:
        return DeviceHealth(state=state.value, reason="NoFinding")
    reason = _REASONS.get(finding.rule, "OtherRule")
    if finding.xid is not None and finding.rule is HealthRule.XID:
        reason += str(finding.xid) if finding.xid <= 9999 else ""
    return DeviceHealth(
        state=state.value,
        reason=reason,
        message=health_text(finding.message),
        remedy=health_text(finding.remedy),
    )


def health_text(text: str) -> str:
    """Return a text that can be printed on one line."""
    return shorten(" ".join(one_line(text, 2 * MAX_TEXT).split()), MAX_TEXT)


def _credible(since: float, now: float) -> float | None:
    """Return the time if a finding of this boot may have begun then."""
    # NaN is within no bounds.
    return since if now - _MAX_AGE <= since <= now else None
