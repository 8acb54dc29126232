"""What the readings of one GPU come to: its findings, with the hysteresis of each.

A condition counts once it has held for its `start` in every reading, and counts no longer once it
has not held for its `end` in every reading. A reading that does not say changes nothing, and begins
the count of seconds anew.

XIDs are told once, so that no reading says when one is over. One that breaks a rule ends when the
GPU came back `XID_END` seconds ago: it answers, its driver asks for no recovery, and since the XID

- the driver was loaded anew, the GPU was lost or waited for a reset, or its volatile ECC errors
  fell, which only a reset does; or
- the GPU could not be used or its driver asked for a recovery, and now says that it needs none.

One that only degrades the GPU ends also `WARNING` seconds after it was last reported. A fatal error
of an NVSwitch ends as an XID does that fails a GPU.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from libs.contracts.gpus import GpuIdentity, GpuProblem, RecoveryAction
from libs.contracts.health import GpuHealth, HealthFinding, HealthState
from libs.health.readable import count
from libs.health.rules import CONDITIONS, Breach, Condition, Reading
from libs.health.tracks import (
    SwitchTrack,
    XidTrack,
    struck,
    switch_finding,
    without_gone,
    xid_finding,
)
from libs.health.xids import meaning

XID_END: Final = 30.0
WARNING: Final = 3600.0
MAX_XIDS: Final = 16
"""The most numbers of XIDs that are kept of a GPU; those reported last."""
MAX_FINDINGS: Final = 8
"""The most findings of a GPU that are reported; the worst."""
XID_PLACE: Final = 3
"""The place of XIDs among the conditions."""
_RESETTING: Final = frozenset((GpuProblem.LOST, GpuProblem.RESET_REQUIRED))
"""A GPU that answers again after one of these was reset."""
_RANK: Final[Mapping[HealthState, int]] = {
    HealthState.FAILED: 0,
    HealthState.DEGRADED: 1,
    HealthState.OK: 2,
}


class Moment(msgspec.Struct, frozen=True):
    """Now, by two clocks: that of people may be set, and that of waits is never."""

    now: float
    """Unix seconds, for people."""
    monotonic: float
    """Seconds of a clock that no one adjusts."""


class Track(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition of one GPU that counts, or may soon."""

    counts: bool = False
    since: float = 0.0
    """Unix seconds since when it counts."""
    changing: float | None = None
    """The monotonic time from which on each reading speaks against `counts`."""
    message: str = ""
    remedy: str = ""


_NOTHING: Final = Track()
_KEYED: Final = tuple((each.key, each) for each in CONDITIONS)


class GpuRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one GPU since the machine was booted."""

    uuid: str
    index: int
    pci: str = ""
    tracks: dict[str, Track] = {}
    """By key of the condition."""
    xids: dict[int, XidTrack] = {}
    switch_error: SwitchTrack | None = None
    links: frozenset[int] = frozenset()
    """The NVLinks that were active at some time."""
    was_away: bool = False
    """Since the last XID, the GPU could not be used, or its driver asked for a recovery."""
    was_reset: bool = False
    """Since the last XID, the GPU was reset or its driver loaded anew."""
    ecc: int | None = None
    """The volatile ECC errors of the last reading that had them."""

    @property
    def identity(self) -> GpuIdentity:
        return GpuIdentity(uuid=self.uuid, pci=self.pci)


def after_reading(
    record: GpuRecord,
    reading: Reading,
    *,
    xids: Iterable[int] = (),
    switch_error: tuple[str, int] | None = None,
    at: Moment,
    reloaded: bool = False,
) -> GpuRecord:
    """Return the record after a reading.

    `switch_error`: the PCI slot and the SXid of an NVSwitch's fatal error. `reloaded`: the driver
    was, since the last reading.
    """
    if reloaded:  # errors of an earlier load are not read any more: these came after it
        record = replace(record, was_reset=True)
    record = _with_xids(record, xids, at, reading)
    if switch_error is not None:
        slot, code = switch_error
        track = SwitchTrack(switch=slot, code=code, since=at.now)
        record = replace(record, switch_error=track, was_away=False, was_reset=False)
    record = _with_evidence(record, reading)
    judged = replace(reading, links_seen=record.links)
    tracks = {
        key: track
        for key, condition in _KEYED
        if (track := _next_track(record.tracks.get(key), condition, judged, at)) is not None
    }
    return replace(
        record,
        tracks=tracks,
        xids=_remaining_xids(record, reading, at),
        switch_error=_remaining_switch_error(record, reading, at),
    )


def verdict(record: GpuRecord) -> GpuHealth:
    """Return the verdict on a GPU: its findings, the worst first, and the state of that."""
    findings: list[tuple[int, HealthFinding]] = []
    for place, (key, condition) in enumerate(_KEYED):
        track = record.tracks.get(key)
        if track is not None and track.counts:
            finding = HealthFinding(
                rule=condition.rule,
                state=condition.state,
                message=track.message,
                remedy=track.remedy,
                since=track.since,
            )
            findings.append((place, finding))
    findings += [(XID_PLACE, xid_finding(code, each)) for code, each in record.xids.items()]
    if record.switch_error is not None:
        findings.append((len(CONDITIONS), switch_finding(record.switch_error)))
    findings.sort(key=lambda each: (_RANK[each[1].state], each[0], each[1].xid or 0))
    ordered = tuple(finding for _, finding in findings[:MAX_FINDINGS])
    return GpuHealth(
        uuid=record.uuid,
        index=record.index,
        pci=record.pci,
        state=ordered[0].state if ordered else HealthState.OK,
        findings=ordered,
    )


def resumed(record: GpuRecord, at: Moment) -> GpuRecord:
    """Return a record of an earlier process, whose monotonic times mean nothing here."""
    return replace(
        record,
        tracks={key: replace(each, changing=None) for key, each in record.tracks.items()},
        xids={
            code: replace(each, last=at.monotonic, ending=None)
            for code, each in record.xids.items()
        },
        switch_error=_without_ending(record.switch_error),
    )


def durable(record: GpuRecord) -> GpuRecord:
    """Return the record without what a later process must not know."""
    return replace(
        record,
        tracks={
            key: replace(each, changing=None) for key, each in record.tracks.items() if each.counts
        },
        xids={code: replace(each, last=0.0, ending=None) for code, each in record.xids.items()},
        switch_error=_without_ending(record.switch_error),
    )


def _without_ending(track: SwitchTrack | None) -> SwitchTrack | None:
    return None if track is None else replace(track, ending=None)


def _with_xids(record: GpuRecord, codes: Iterable[int], at: Moment, reading: Reading) -> GpuRecord:
    bad = [code for code in codes if count(code) and meaning(code).state is not HealthState.OK]
    if not bad:
        return record
    xids = dict(record.xids)
    for code in bad:
        before = xids.pop(code, None)
        since = at.now if before is None else before.since
        instances = struck(before, code, reading)
        xids[int(code)] = XidTrack(since=since, last=at.monotonic, gpu_instances=instances)
    kept = list(xids.items())[-MAX_XIDS:]
    return replace(record, xids=dict(kept), was_away=False, was_reset=False)


def _with_evidence(record: GpuRecord, reading: Reading) -> GpuRecord:
    """Note what shows that the GPU was reset or away, and which links are active."""
    gpu = reading.gpu
    errors = count(reading.sample and reading.sample.ecc_volatile_uncorrected)
    fell = errors is not None and record.ecc is not None and errors < record.ecc
    problem = gpu.problem if gpu is not None else reading.problem
    asks = reading.recovery not in (None, RecoveryAction.NONE)
    links = record.links
    if gpu is not None and reading.is_usable:
        links = links | (frozenset(range(min(gpu.nvlinks, 64))) - frozenset(gpu.nvlinks_down))
    return replace(
        record,
        links=links,
        ecc=record.ecc if errors is None else errors,
        was_away=record.was_away or reading.is_usable is False or asks,
        was_reset=record.was_reset or fell or problem in _RESETTING,
    )


def _is_back(record: GpuRecord, reading: Reading) -> bool:
    if not reading.is_usable:
        return False
    if reading.recovery is RecoveryAction.NONE:
        return record.was_away or record.was_reset
    return reading.recovery is None and record.was_reset


def _ending(record: GpuRecord, reading: Reading, ending: float | None, at: Moment) -> float | None:
    """Return from when on the GPU is back in each reading; None if it is not."""
    if not _is_back(record, reading):
        return None
    return at.monotonic if ending is None else ending


def _remaining_switch_error(record: GpuRecord, reading: Reading, at: Moment) -> SwitchTrack | None:
    track = record.switch_error
    if track is None:
        return None
    ending = _ending(record, reading, track.ending, at)
    if ending is not None and at.monotonic - ending >= XID_END:
        return None
    return replace(track, ending=ending)


def _remaining_xids(record: GpuRecord, reading: Reading, at: Moment) -> dict[int, XidTrack]:
    remaining: dict[int, XidTrack] = {}
    for code, known in record.xids.items():
        track = without_gone(known, reading)
        if track is None:
            continue
        ending = _ending(record, reading, track.ending, at)
        is_warning = meaning(code).state is HealthState.DEGRADED
        is_old = is_warning and at.monotonic - track.last >= WARNING and bool(reading.is_usable)
        if not is_old and (ending is None or at.monotonic - ending < XID_END):
            remaining[code] = replace(track, ending=ending)
    return remaining


def _next_track(
    track: Track | None, condition: Condition, reading: Reading, at: Moment
) -> Track | None:
    """Return the track after a reading; None if the condition neither counts nor may soon."""
    found, track = condition.check(reading), track or _NOTHING
    if found is None or (found is not False) is track.counts:
        settled = replace(track, changing=None)
        return settled if track.counts else None
    changing = at.monotonic if track.changing is None else track.changing
    needed = condition.end if track.counts else condition.start
    if at.monotonic - changing < needed:
        return replace(track, changing=changing)
    if not isinstance(found, Breach):
        return None
    return Track(counts=True, since=at.now, message=found.message, remedy=found.remedy)
