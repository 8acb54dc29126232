"""Decide what to write about the GPUs of one Node. Pure.

Input are the cleaned reports and what is cached of the Node's condition and Devices. What is not
reported stays as it is. A GPU or a verdict that is missing counts as absent only when that is
confirmed (docs/invariants.md#i6).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from libs.contracts.device import UNKNOWN, DeviceHealth, DeviceSpec
from libs.contracts.health import HealthState
from libs.kube.views import Condition, OwnerReference, format_time
from services.discovery.cluster.decide import ABSENCE_CONFIRMED
from services.discovery.cluster.device_health import (
    AGENT_SILENT,
    NO_VERDICT,
    GpuEvent,
    JudgedGpu,
    condition_of,
    event_of,
    silence_event,
)
from services.discovery.cluster.devices import (
    NOT_JUDGED,
    PRODUCT,
    UUID,
    Device,
    WantedDevice,
    device_name,
)
from services.discovery.cluster.reported_gpus import ReportedGpu, ReportedGpus, Verdict
from services.discovery.cluster.resources import Node

FIRST_VERDICT: Final = 10.0
"""Seconds for which a new Device waits for the first verdict, so that one write suffices."""
NO_VERDICT_AFTER: Final = 900.0
"""Seconds without a verdict after which a health is unknown: a driver may have to be loaded."""


_UNWATCHED: Final = DeviceHealth(
    state=UNKNOWN,
    reason=AGENT_SILENT,
    message="the telemetry agent has stopped sending heartbeats",
    remedy="see the pod of the telemetry agent on the node, and its log",
)


class ApplyDevice(msgspec.Struct, frozen=True):
    """Create or change a Device."""

    wanted: WantedDevice
    event: GpuEvent | None


class ChangeHealth(msgspec.Struct, frozen=True):
    """Change the health of a Device, whose description is not known now."""

    name: str
    health: DeviceHealth
    event: GpuEvent | None


class DeleteDevice(msgspec.Struct, frozen=True):
    """Delete a Device whose GPU is gone."""

    name: str
    uid: str


DeviceWrite = ApplyDevice | ChangeHealth | DeleteDevice


class SetCondition(msgspec.Struct, frozen=True):
    """Set our condition of the Node; None removes it."""

    condition: Condition | None
    event: GpuEvent | None = None


class DeviceDecision(msgspec.Struct, frozen=True, kw_only=True):
    writes: tuple[DeviceWrite, ...] = ()
    condition: SetCondition | None = None
    again_in: float | None = None
    """Seconds after which the passing of time may change the decision."""

    @property
    def is_empty(self) -> bool:
        return not self.writes and self.condition is None


def absent_keys(node: Node, present: Sequence[Device], reported: ReportedGpus) -> frozenset[str]:
    """Return what is missing in the reports: Devices' GPUs by name, and verdicts by index."""
    owned = owned_by(node, present)
    gone = (
        [] if reported.gpus is None else [each for each in owned if _find(each, reported) is None]
    )
    verdicts = _Verdicts(reported.verdicts)
    known = reported.gpus if reported.gpus is not None else ()
    identities = {gpu.index: gpu.status.uuid for gpu in known} or {
        each.index: each.uuid for each in owned
    }
    return frozenset(each.metadata.name for each in gone) | frozenset(
        _verdict_key(index)
        for index, uuid in identities.items()
        if verdicts.find(index, uuid) is None
    )


def owned_by(node: Node, present: Sequence[Device]) -> list[Device]:
    """Return the Devices of this Node; others belong to an earlier Node, or are not ours."""
    name, uid = node.metadata.name, node.metadata.uid
    return [
        each
        for each in present
        if each.owner == uid and each.metadata.name == device_name(name, each.index)
    ]


def decide_devices(
    node: Node,
    present: Sequence[Device],
    reported: ReportedGpus,
    absent: Mapping[str, float],
    *,
    now: float,
) -> DeviceDecision:
    """`absent` are the seconds for which each of `absent_keys` has been missing."""
    rules = _Rules(node, owned_by(node, present), reported, absent, now)
    writes: list[DeviceWrite] = []
    judged: list[JudgedGpu] = []
    for gpu in reported.gpus or ():
        rules.gpu(gpu, writes, judged)
    for device in rules.devices.values():
        if _find(device, reported) is None:
            rules.unlisted(device, writes, judged)
    before = node.gpu_health
    after = condition_of(judged, before, now=now)
    if before is not None and not judged and any(isinstance(each, DeleteDevice) for each in writes):
        after = None
    waits = [limit - absent[key] for key, limit in rules.limits.items() if absent[key] < limit]
    return DeviceDecision(
        writes=tuple(writes),
        condition=None if after is before else SetCondition(after, silence_event(before, after)),
        again_in=min(waits, default=None),
    )


class _Rules:
    """One decision on one Node."""

    def __init__(
        self,
        node: Node,
        present: Sequence[Device],
        reported: ReportedGpus,
        absent: Mapping[str, float],
        now: float,
    ) -> None:
        self.devices = {each.index: each for each in present}
        self.limits: dict[str, float] = {}
        """Seconds by key after which an absence changes something."""
        self._node = node
        self._driver = reported.driver
        self._verdicts = _Verdicts(reported.verdicts)
        self._is_silent = reported.is_silent
        self._absent = absent
        self._now = now

    def gpu(self, gpu: ReportedGpu, writes: list[DeviceWrite], judged: list[JudgedGpu]) -> None:
        """Decide on a GPU that is reported."""
        before, status = self.devices.get(gpu.index), gpu.status
        replaced = before is not None and _differ(before.uuid, status.uuid)
        known = NOT_JUDGED if before is None or replaced else before.health
        health = self._health(gpu.index, status.uuid, known)
        current = JudgedGpu(index=gpu.index, uuid=status.uuid, pci=status.pci, health=health)
        judged.append(current)
        if before is not None and not gpu.is_described and not replaced:
            # What NVML does not say of a GPU that fails stays as it was.
            self._change_health(before, current, writes)
            return
        if before is None and health == NOT_JUDGED:
            key = _verdict_key(gpu.index)
            if self._absent[key] < FIRST_VERDICT:
                self.limits[key] = FIRST_VERDICT
                return
        wanted = self._wanted(gpu, before, health)
        if before is None or (before.digest, before.health) != (wanted.digest, health):
            event = event_of(current, known)
            writes.append(ApplyDevice(wanted, event))

    def unlisted(self, device: Device, writes: list[DeviceWrite], judged: list[JudgedGpu]) -> None:
        """Decide on a Device whose GPU is not reported."""
        name = device.metadata.name
        if name in self._absent:
            if self._absent[name] >= ABSENCE_CONFIRMED:
                writes.append(DeleteDevice(name, device.metadata.uid))
                return
            self.limits[name] = ABSENCE_CONFIRMED
        health = self._health(device.index, device.uuid, device.health)
        current = JudgedGpu(index=device.index, uuid=device.uuid, pci=device.pci, health=health)
        judged.append(current)
        self._change_health(device, current, writes)

    def _change_health(self, before: Device, current: JudgedGpu, writes: list[DeviceWrite]) -> None:
        if before.health != current.health:
            event = event_of(current, before.health)
            writes.append(ChangeHealth(before.metadata.name, current.health, event))

    def _health(self, index: int, uuid: str, known: DeviceHealth) -> DeviceHealth:
        verdict = self._verdicts.find(index, uuid)
        if self._is_unwatched(known if verdict is None else verdict.health, known):
            return self._since(_UNWATCHED, known, None)
        if verdict is not None:
            return self._since(verdict.health, known, verdict.since)
        key = _verdict_key(index)
        if key not in self._absent or (known == NOT_JUDGED and not self._verdicts.are_reported):
            return known
        if self._absent[key] < NO_VERDICT_AFTER:
            self.limits[key] = NO_VERDICT_AFTER
            return known
        missing = DeviceHealth(
            state=UNKNOWN,
            reason=NO_VERDICT,
            message="the telemetry agent reports no verdict on this GPU since the node's boot",
            remedy="see the log of the telemetry agent on the node",
        )
        return self._since(missing, known, None)

    def _is_unwatched(self, health: DeviceHealth, known: DeviceHealth) -> bool:
        """Whether nothing is known, because the agent is silent. What failed remains failed."""
        if health.state not in (HealthState.OK, HealthState.DEGRADED):
            return health.reason == AGENT_SILENT and self._is_silent is not False
        if self._is_silent is None:
            return known.reason == AGENT_SILENT
        return self._is_silent

    def _since(
        self, health: DeviceHealth, before: DeviceHealth, since: float | None
    ) -> DeviceHealth:
        """Return the health with its beginning, which stays while the state lasts."""
        if health.state == before.state and before.since:
            text = before.since
        else:
            text = format_time(self._now if since is None else since)
        return msgspec.structs.replace(health, since=text)

    def _wanted(
        self, gpu: ReportedGpu, before: Device | None, health: DeviceHealth
    ) -> WantedDevice:
        name, status = self._node.metadata.name, gpu.status
        driver = self._driver
        if driver is None:
            driver = "" if before is None else before.driver
        labels = {PRODUCT: gpu.product, UUID: status.uuid}
        return WantedDevice(
            name=device_name(name, gpu.index),
            owner=owner_of(self._node),
            labels={key: value for key, value in labels.items() if value},
            spec=DeviceSpec(
                node=name,
                index=gpu.index,
                product=gpu.product or "unknown",
                memory=gpu.memory,
            ),
            status=msgspec.structs.replace(status, driver=driver, health=health),
        )


def owner_of(node: Node) -> OwnerReference:
    return OwnerReference(kind="Node", name=node.metadata.name, uid=node.metadata.uid)


class _Verdicts:
    """The verdicts by GPU; that of a GPU without a UUID is found by index."""

    def __init__(self, verdicts: Sequence[Verdict] | None) -> None:
        self.are_reported = verdicts is not None
        self._by_uuid = {each.uuid: each for each in verdicts or () if each.uuid}
        self._by_index = {each.index: each for each in verdicts or ()}

    def find(self, index: int, uuid: str) -> Verdict | None:
        if uuid and uuid in self._by_uuid:
            return self._by_uuid[uuid]
        verdict = self._by_index.get(index)
        return None if verdict is None or (uuid and verdict.uuid) else verdict


def _find(device: Device, reported: ReportedGpus) -> ReportedGpu | None:
    return next((gpu for gpu in reported.gpus or () if gpu.index == device.index), None)


def _differ(before: str, after: str) -> bool:
    return bool(before and after) and before != after


def _verdict_key(index: int) -> str:
    return f"verdict {index}"
