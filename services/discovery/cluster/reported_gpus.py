"""What agents report about GPUs, cleaned for objects of Kubernetes. Pure.

A node's agent may lie. A value that cannot be true is left out and counted, and a list of more GPUs
than a machine has is refused as a whole: then the GPUs are unknown.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

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

_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,58}[0-9A-Za-z]")
_MIG_UUID: Final = re.compile(r"MIG-[0-9A-Za-z/-]{1,90}")
_PCI: Final = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
_SERIAL: Final = re.compile(r"[0-9A-Za-z-]{1,32}")
_VERSION: Final = re.compile(r"[0-9A-Za-z.+-]{1,40}")
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
    refused = _LeftOut()
    return ReportedGpus(
        is_silent=is_silent,
        gpus=_gpus(facts, refused),
        driver=None if driver is None else refused.word(driver, _VERSION),
        verdicts=None if health is None else _verdicts(health.gpus, refused, now=now),
        refused=refused.count,
    )


class _LeftOut:
    """Counts the values that are left out."""

    def __init__(self) -> None:
        self.count = 0

    def word(self, text: str, form: re.Pattern[str]) -> str:
        if not text or form.fullmatch(text):
            return text
        self.count += 1
        return ""

    def number(self, value: int, *, high: int) -> int:
        if 0 <= value <= high:
            return value
        self.count += 1
        return 0


def label_value(name: str) -> str:
    """Return a product name as the value of a label."""
    return product(name[:1024])[:63].strip("-_.")


def _gpus(facts: Facts | None, refused: _LeftOut) -> tuple[ReportedGpu, ...] | None:
    if facts is None:
        return None
    if facts.pci is not None and not any(map(is_gpu, facts.pci)):
        return ()
    if facts.gpus is None:
        return None
    if len(facts.gpus) > MAX_GPUS:
        refused.count += len(facts.gpus)
        return None
    counts = Counter(gpu.uuid for gpu in facts.gpus)
    by_index: dict[int, ReportedGpu] = {}
    for gpu in facts.gpus:
        if gpu.index >= MAX_GPUS or gpu.index in by_index:
            refused.count += 1
            continue
        uuid = refused.word(gpu.uuid, _UUID)
        if uuid and counts[uuid] > 1:
            refused.count += 1
            uuid = ""
        by_index[gpu.index] = _gpu(gpu, uuid, refused)
    return tuple(by_index[index] for index in sorted(by_index))


def _gpu(gpu: Gpu, uuid: str, refused: _LeftOut) -> ReportedGpu:
    status = DeviceStatus(
        uuid=uuid,
        pci=refused.word(gpu.pci, _PCI),
        serial=refused.word(gpu.serial, _SERIAL),
        compute_capability=_capability(gpu.compute_capability, refused),
        mig=_mig(gpu, refused),
        nvlink=_nvlink(gpu, refused),
        fabric=_fabric(gpu, refused),
    )
    return ReportedGpu(
        index=gpu.index,
        product=label_value(gpu.name),
        memory=refused.number(gpu.memory_mib, high=_MAX_MEMORY),
        status=status,
        is_described=not gpu.hung and gpu.problem is None,
    )


def _capability(pair: tuple[int, int], refused: _LeftOut) -> str:
    if not pair[0]:
        return ""
    if max(pair) > 999:
        refused.count += 1
        return ""
    return f"{pair[0]}.{pair[1]}"


def _mig(gpu: Gpu, refused: _LeftOut) -> DeviceMig | None:
    if not gpu.mig_capable:
        return DeviceMig()
    if len(gpu.migs) > _MAX_MIGS:
        refused.count += len(gpu.migs)
    pending = gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_mode
    return DeviceMig(
        capable=True,
        mode=_mode(gpu.mig_mode),
        pending=_mode(not gpu.mig_mode) if pending else "",
        devices=() if len(gpu.migs) > _MAX_MIGS else _mig_devices(gpu.migs, refused),
    )


def _mode(is_enabled: bool) -> str:
    return "Enabled" if is_enabled else "Disabled"


def _mig_devices(migs: Sequence[Mig], refused: _LeftOut) -> tuple[MigDevice, ...]:
    devices = (
        MigDevice(
            uuid=refused.word(mig.uuid, _MIG_UUID),
            profile=refused.word(mig.profile, _PROFILE),
            gpu_instance=refused.number(mig.gpu_instance, high=999),
            compute_instance=refused.number(mig.compute_instance, high=999),
            memory=refused.number(mig.memory_mib, high=_MAX_MEMORY),
        )
        for mig in migs
    )
    by_uuid = {device.uuid: device for device in devices if device.uuid}
    return tuple(by_uuid[uuid] for uuid in sorted(by_uuid))


def _nvlink(gpu: Gpu, refused: _LeftOut) -> DeviceNvlink | None:
    links = refused.number(gpu.nvlinks, high=_MAX_LINKS)
    if not links:
        return None
    down = tuple(sorted({number for number in gpu.nvlinks_down if number < links}))
    return DeviceNvlink(links=links, down=down)


def _fabric(gpu: Gpu, refused: _LeftOut) -> DeviceFabric | None:
    state, clique = gpu.fabric_state, refused.word(gpu.fabric, _CLIQUE)
    known = state.value if state is not None and state.is_known else ""
    return DeviceFabric(state=known, clique=clique) if known or clique else None


def _verdicts(
    judged: Sequence[GpuHealth], refused: _LeftOut, *, now: float
) -> tuple[Verdict, ...] | None:
    if len(judged) > MAX_GPUS:
        refused.count += len(judged)
        return None
    verdicts: list[Verdict] = []
    for gpu in judged:
        uuid = refused.word(gpu.uuid, _UUID)
        if gpu.index >= MAX_GPUS or (gpu.uuid and not uuid):
            refused.count += 1
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
        refused.count += len(verdicts)
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
