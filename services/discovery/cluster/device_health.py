"""The health of a node's GPUs as the Node's condition and as Events. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from libs.contracts.device import UNKNOWN, DeviceHealth
from libs.contracts.health import HealthState
from libs.contracts.words import first_sentences
from libs.kube.views import Condition, format_time

GPU_HEALTHY: Final = "GPUHealthy"
"""The type of the condition."""
NO_VERDICT: Final = "NoVerdict"
AGENT_SILENT: Final = "AgentSilent"

_NAMED: Final = 4
"""GPUs that the message of a condition names."""
_WORST_FIRST: Final = (HealthState.FAILED, UNKNOWN, HealthState.DEGRADED, HealthState.OK)


class JudgedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU and its health."""

    index: int
    uuid: str
    pci: str
    health: DeviceHealth

    @property
    def title(self) -> str:
        identity = ", ".join(filter(None, (self.uuid, self.pci)))
        return f"GPU {self.index}" + (f" ({identity})" if identity else "")


class GpuEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An Event about the Node."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    group: str


def condition_of(
    gpus: Sequence[JudgedGpu], before: Condition | None, *, now: float
) -> Condition | None:
    """Return the condition of a node with these GPUs, `before` itself if nothing changed.

    While a GPU was never judged, the condition changes only if another GPU failed.
    """
    by_state = {state: [gpu for gpu in gpus if gpu.health.state == state] for state in _WORST_FIRST}
    failed, unknown, degraded, _ = by_state.values()
    is_judged = not any(gpu.health.state == UNKNOWN and not gpu.health.reason for gpu in gpus)
    if not gpus or not (is_judged or failed):
        return before
    status, reason = "True", "GPUsHealthy"
    if failed:
        status, reason = "False", "GPUFailed"
    elif unknown:
        is_silent = all(gpu.health.reason == AGENT_SILENT for gpu in unknown)
        status, reason = "Unknown", AGENT_SILENT if is_silent else NO_VERDICT
    elif degraded:
        reason = "GPUDegraded"
    message = _message([*failed, *unknown, *degraded], count=len(gpus))
    if reason == AGENT_SILENT:
        health = unknown[0].health
        message = f"{len(unknown)} of {len(gpus)} GPUs: {health.message} ({health.remedy})"
    if before is not None and (before.status, before.reason, before.message) == (
        status,
        reason,
        message,
    ):
        return before
    since = format_time(now)
    if before is not None and before.status == status and before.last_transition_time:
        since = before.last_transition_time
    return Condition(
        type=GPU_HEALTHY, status=status, reason=reason, message=message, last_transition_time=since
    )


def _message(gpus: Sequence[JudgedGpu], *, count: int) -> str:
    if not gpus:
        return "the GPU is healthy" if count == 1 else f"all {count} GPUs are healthy"
    return first_sentences(map(_sentence, gpus), _NAMED)


def _sentence(gpu: JudgedGpu) -> str:
    health = gpu.health
    cause = health.message or health.reason
    text = f"{gpu.title} is {health.state}"
    text += f": {cause}" if cause else ""
    return f"{text} ({health.remedy})" if health.remedy else text


_EVENTS: Final[Mapping[str, tuple[Literal["Normal", "Warning"], str]]] = {
    HealthState.OK: ("Normal", "GPUHealthy"),
    HealthState.DEGRADED: ("Warning", "GPUDegraded"),
    HealthState.FAILED: ("Warning", "GPUFailed"),
    UNKNOWN: ("Warning", "GPUHealthUnknown"),
}


def event_of(gpu: JudgedGpu, before: DeviceHealth) -> GpuEvent | None:
    """Return the Event for a change of state; a first verdict is one only if something is wrong.

    The silence of an agent is one Event for all GPUs (`silence_event`), as is its end.
    """
    state = gpu.health.state
    if gpu.health.reason == AGENT_SILENT:
        return None
    if before.reason == AGENT_SILENT and state == HealthState.OK:
        return None
    was_judged = before.state != UNKNOWN or bool(before.reason)
    if before.state == state or (not was_judged and state == HealthState.OK):
        return None
    severity, reason = _EVENTS[state]
    message = _sentence(gpu)
    if state == HealthState.OK:
        message = f"{gpu.title} is ok again; it was {before.state}"
        message += f" since {before.since}" if before.since else ""
        message += f" ({before.reason})" if before.reason else ""
    return GpuEvent(type=severity, reason=reason, message=message, group=f"gpu-{gpu.index}")


def silence_event(before: Condition | None, after: Condition | None) -> GpuEvent | None:
    """Return the Event for a condition that begins or ends because of a silent agent."""
    if after is None:
        return None
    was_silent = before is not None and before.reason == AGENT_SILENT
    if after.reason == AGENT_SILENT and not was_silent:
        severity, reason = _EVENTS[UNKNOWN]
    elif was_silent and after.status == "True":
        severity, reason = _EVENTS[HealthState.OK]
    else:
        return None
    return GpuEvent(type=severity, reason=reason, message=after.message, group="agent")
