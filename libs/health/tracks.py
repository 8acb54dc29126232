"""What counts against a GPU until it is back: XIDs and errors of NVSwitches; what they struck."""

from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.health import HealthFinding, HealthRule, HealthState
from libs.health.rules import Reading
from libs.health.xids import meaning, struck_instance

_ANEW: Final = "destroy the instance once no pod has it, and divide the GPU anew"


class XidTrack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An XID that counts."""

    since: float
    last: float = 0.0
    """The monotonic time at which it was reported last."""
    ending: float | None = None
    """The monotonic time from which on the GPU is back in each reading."""
    gpu_instances: tuple[int, ...] = ()
    """Those that it struck; empty: the whole GPU."""


class SwitchTrack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fatal error of an NVSwitch (SXid) that counts."""

    switch: str
    """Its PCI slot."""
    code: int
    since: float
    ending: float | None = None


def xid_finding(code: int, track: XidTrack) -> HealthFinding:
    found, instances = meaning(code), track.gpu_instances
    if not instances:
        where, state, remedy = "", found.state, found.remedy
    else:
        where = f" of GPU instance {', '.join(map(str, instances))}"
        state = HealthState.DEGRADED
        remedy = _ANEW
    return HealthFinding(
        rule=HealthRule.XID,
        state=state,
        message=f"XID {code}{where}: {found.cause}",
        remedy=remedy,
        since=track.since,
        xid=code,
        gpu_instances=instances if found.state is HealthState.FAILED else (),
    )


def switch_finding(track: SwitchTrack) -> HealthFinding:
    return HealthFinding(
        rule=HealthRule.NVLINK,
        state=HealthState.DEGRADED,
        message=f"NVSwitch {track.switch} reported the fatal error SXid {track.code}",
        remedy="see the log of the fabric manager; drain the node, then reset all its GPUs and"
        " switches",
        since=track.since,
    )


def _instances(reading: Reading) -> frozenset[int]:
    """Return the GPU instances that a reading shows."""
    migs = reading.gpu.migs if reading.gpu is not None else ()
    return frozenset(mig.gpu_instance for mig in migs)


def struck(before: XidTrack | None, code: int, reading: Reading) -> tuple[int, ...]:
    """Return the instances that an XID struck, now and before; empty: the whole GPU."""
    instance = struck_instance(code)
    # An instance that is not there is none that could be withdrawn.
    instance = instance if instance in _instances(reading) else None
    if instance is None or (before is not None and not before.gpu_instances):
        return ()
    return tuple(sorted({instance, *(before.gpu_instances if before is not None else ())}))


def without_gone(track: XidTrack, reading: Reading) -> XidTrack | None:
    """Return the track without instances that are destroyed; None if it struck no other."""
    if not track.gpu_instances or not reading.is_usable:
        return track
    there = _instances(reading)
    left = tuple(number for number in track.gpu_instances if number in there)
    return replace(track, gpu_instances=left) if left else None
