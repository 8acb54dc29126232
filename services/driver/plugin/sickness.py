"""Which GPUs are not to be used, by the verdict of `libs.health` and the switches of NVIDIA's.

An XID counts against a GPU as `libs.health` judges it, without those that NVIDIA's device plugin
skips by default, or by `DP_DISABLE_HEALTHCHECKS`. One that `DP_ENABLE_HEALTHCHECKS` names, or each
by `all` there, counts whatever it means, until the driver is loaded anew. Pure.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.contracts.gpus import XidCode
from libs.contracts.health import HealthFinding, HealthState
from libs.health.node import Records, Sweep, after_sweep, node_health
from libs.health.record import Moment

SKIPPED: Final = frozenset((13, 31, 43, 45, 68))
"""XIDs that an application causes. NVIDIA's device plugin skips 109, too, after which NVIDIA's own
catalogue asks for a reset of the GPU."""
_ALL: Final = frozenset(("all", "xids"))


class XidSwitches(msgspec.Struct, frozen=True, kw_only=True):
    """Which XIDs count."""

    off: bool = False
    """No XID counts."""
    skipped: frozenset[int] = SKIPPED
    enabled: frozenset[int] = frozenset()
    """These count whatever they mean."""
    every: bool = False
    """Each counts whatever it means."""

    def counted(self, xids: Iterable[int]) -> tuple[int, ...]:
        return () if self.off else tuple(each for each in xids if each not in self.skipped)

    def forces(self, xid: int) -> bool:
        """Return whether this XID counts whatever it means."""
        return self.every or xid in self.enabled


def switches(disable: str, enable: str) -> XidSwitches:
    """Read the two comma-separated lists of numbers and words; what is neither is ignored."""
    disabled, enabled = _words(disable), _words(enable)
    numbers = _numbers(enabled)
    if "all" in enabled:
        return XidSwitches(skipped=frozenset(), every=True)
    # As with NVIDIA's, single XIDs cannot be switched on when all are off.
    if _ALL & disabled:
        return XidSwitches(off=True)
    return XidSwitches(skipped=(SKIPPED | _numbers(disabled)) - numbers, enabled=numbers)


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.lower().split(","))


def _numbers(words: Iterable[str]) -> frozenset[int]:
    return frozenset(int(word) for word in words if word.isascii() and word.isdigit())


class Sickness(msgspec.Struct, frozen=True, kw_only=True):
    """What is known against the GPUs of a node."""

    records: Records = ()
    forced: Mapping[str, int] = {}
    """The XID of each GPU that counts whatever it means, by UUID."""

    def after(self, sweep: Sweep, at: Moment, xids: XidSwitches) -> "Sickness":
        """Return what is known after a sweep."""
        forced = {} if sweep.reloaded else dict(self.forced)
        for gpu, codes in sweep.xids.items():
            for code in xids.counted(codes):
                if xids.forces(code):
                    instance = code.gpu_instance if isinstance(code, XidCode) else None
                    struck = () if instance is None else _parts(sweep.gpus or (), gpu, (instance,))
                    forced.update((uuid, int(code)) for uuid in struck or (gpu,))
        return Sickness(records=after_sweep(self.records, sweep, at), forced=forced)

    def reasons(self, xids: XidSwitches, gpus: Sequence[Gpu] = ()) -> dict[str, str]:
        """Return why GPUs and MIG devices are not to be used, by UUID; `gpus` are those listed."""
        counted = (
            replace(record, xids={code: record.xids[code] for code in xids.counted(record.xids)})
            for record in self.records
        )
        found: dict[str, str] = {}
        for gpu in node_health(tuple(counted)).gpus:
            if gpu.uuid and gpu.state is HealthState.FAILED:
                found[gpu.uuid] = _reason(gpu.findings[0])
            for finding in gpu.findings:
                for uuid in _parts(gpus, gpu.uuid, finding.gpu_instances):
                    found.setdefault(uuid, _reason(finding))
        return {uuid: f"XID {code}" for uuid, code in self.forced.items()} | found


def _parts(gpus: Iterable[Gpu], uuid: str, instances: Collection[int]) -> tuple[str, ...]:
    """Return the UUIDs of the MIG devices in these GPU instances of a GPU."""
    return tuple(
        mig.uuid
        for gpu in gpus
        if gpu.uuid == uuid
        for mig in gpu.migs
        if mig.gpu_instance in instances
    )


def _reason(finding: HealthFinding) -> str:
    return f"{finding.message}: {finding.remedy}" if finding.remedy else finding.message
