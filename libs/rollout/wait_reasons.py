"""Builders of waits: code, detail, and the people who can end the wait (docs/states.md#waits)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from libs.contracts.node import BY_RETRY, ITSELF, WAITS_OF_POOLS, WaitCode, ends_by_itself
from libs.contracts.queries import WaitReason
from libs.contracts.reports import BEAT_PERIOD
from libs.contracts.rollout import BY_BRAKE, BY_BRAKE_OR_POLICY, BY_RELEASE
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Instant
from libs.rollout.views.machine import Component

_IF_IT_LASTS: Final = f"{ITSELF}; if it lasts, "
"""What precedes the people who can end a wait that usually ends by itself."""
AGENT_LATE: Final = f"{_IF_IT_LASTS}an administrator of the agent that the details name"
DRIVER_AGENT_LATE: Final = f"{_IF_IT_LASTS}an administrator of the driver agent"
DRIVER_SERVICE_LATE: Final = f"{_IF_IT_LASTS}an administrator of the driver service"
GATE_BLOCKED: Final = "an administrator of the driver agent, of the driver image or of NATS"
POD_OWNERS: Final = "the owners of the pods"
_BY_ANOTHER_DRIVER: Final = "the author of the policy, by another driver"
FAILED_AND_RELEASED: Final = (
    f"an administrator, {BY_RELEASE} (the retry follows by itself); {_BY_ANOTHER_DRIVER}"
)
"""Who ends the wait of a node that failed on a target which is halted, and has retries left."""
FAILED_AND_HALTED: Final = (
    f"an administrator, {BY_RELEASE} and then {BY_RETRY}; {_BY_ANOTHER_DRIVER}"
)
"""The same without a retry left."""
DRIVER_ADMINISTRATOR: Final = "the administrator of the machine or of the driver image"

RESOLVED_BY: Final[Mapping[WaitCode, str]] = {
    WaitCode.BUDGET: f"{ITSELF}; the author of the policy, by raising the limits",
    WaitCode.PROOF: f"{ITSELF}; an administrator, if the nodes in progress cannot go on",
    WaitCode.HALTED: f"an administrator, {BY_RELEASE}; {_BY_ANOTHER_DRIVER}",
    WaitCode.PAUSED: f"an administrator, {BY_BRAKE_OR_POLICY}",
    WaitCode.FROZEN: f"an administrator, {BY_BRAKE}",
    WaitCode.SKIPPED: "an administrator, by removing the skip label or the cordon",
    WaitCode.GPU_FAILED: (
        "the administrator of the machine, by repairing the GPU; or, if another driver may be the"
        " cure, an administrator, by the annotation nvidia.com/gpu-driver-upgrade-requested=true"
    ),
    WaitCode.BACK_OFF: f"{ITSELF}; {_BY_ANOTHER_DRIVER}",
    WaitCode.PREFLIGHT: (
        "an administrator, by removing the cause, or by the request without-preflight"
    ),
    WaitCode.AGENT_SILENT: "an administrator of the agent that the details name",
    WaitCode.NOT_READY: "the administrator of the machine",
    WaitCode.TARGET_UNSETTLED: (
        f"{_IF_IT_LASTS}an administrator of the driver service or of the DaemonSet controller"
    ),
    WaitCode.TARGET_MISSING: "the author of the policy, or of the driver artefacts",
    WaitCode.JOBS: "the owners of the jobs",
    WaitCode.EVICTION: f"{_IF_IT_LASTS}{POD_OWNERS}",
    WaitCode.PDB: "the owner of the disruption budget",
    WaitCode.OPERANDS: f"{_IF_IT_LASTS}an administrator of these operands",
    WaitCode.QUIESCE: ITSELF,
    WaitCode.OLD_DRIVER: (
        f"{_IF_IT_LASTS}the owner of a finalizer on the pod, or the administrator of the kubelet"
    ),
    WaitCode.UNLOAD: "the owners of the processes that use the GPU devices",
    WaitCode.GATE: f"{_IF_IT_LASTS}{GATE_BLOCKED}",
    WaitCode.DRIVER_START: ITSELF,
    WaitCode.VALIDATION: ITSELF,
    WaitCode.MIG: "an administrator, by another value of the label nvidia.com/mig.config",
    WaitCode.REBOOT: "the administrator of the machine, by rebooting the node",
    WaitCode.FAILED: f"an administrator, {BY_RETRY}; {_BY_ANOTHER_DRIVER}",
    WaitCode.LABEL_EDITED: (
        "the user of the field manager that the details name, by restoring the value; then an"
        " administrator, by a retry"
    ),
    WaitCode.RECORD_LOST: "an administrator, by the request adopt or forget",
    WaitCode.DRIVER_RESTARTING: "an administrator, by removing the cause and then by a retry",
    WaitCode.FOREIGN_OPERATOR: "an administrator, by removing one of the two operators",
    WaitCode.POLICY_GONE: "the author of the policy, by creating it again",
    WaitCode.STALE: f"{_IF_IT_LASTS}the administrator of the API server",
    WaitCode.BUS: f"{_IF_IT_LASTS}the administrator of NATS",
    WaitCode.REFUSED: (
        "the administrator of what refuses the request, as the details say: an admission webhook, a"
        " quota, the rights of Sluice, NATS"
    ),
}


def is_for_people(code: WaitCode, who: str) -> bool:
    """Whether a wait is of one node, and somebody has to end it."""
    return code not in WAITS_OF_POOLS and not ends_by_itself(who)


def resolver_if_it_lasts(who: str) -> str:
    """Return who can end a wait that usually ends by itself; empty: it is another wait."""
    return who.removeprefix(_IF_IT_LASTS) if who.startswith(_IF_IT_LASTS) else ""


def people_of(who: str) -> str:
    """Return the people who can end a wait; empty: it only ends by itself."""
    people = resolver_if_it_lasts(who) or who.removeprefix(f"{ITSELF}; ")
    return "" if people == ITSELF else people


def wait(
    code: WaitCode, detail: str, now: Instant, until: float | None = None, *, who: str | None = None
) -> Wait:
    """Return a wait that begins now; `who` defaults to the entry of its code."""
    resolver = RESOLVED_BY[code] if who is None else who
    return Wait(code=code, detail=detail, since=now.at, until=until, who=resolver)


def unheard_wait(name: str, component: Component | None, now: Instant) -> Wait:
    """Return the wait for an agent that has sent no heartbeat lately.

    A scheduler that has just started has heard no agent yet, and calls none silent at once.
    """
    if component is not None and not component.is_silent(now.at):
        detail = (
            f"this scheduler has not heard the {name} agent of the node yet: agents send a"
            f" heartbeat every {BEAT_PERIOD:.0f} s"
        )
        return wait(WaitCode.STALE, detail, now, who=AGENT_LATE)
    if component is not None and component.last_beat is not None:
        detail = f"the {name} agent has stopped sending heartbeats"
        if component.flood:
            detail += (
                f": it sent {component.flood:,.0f} messages a second, and such a sender is cut off"
                " NATS for a minute at a time"
            )
        return wait(WaitCode.AGENT_SILENT, detail, now)
    detail = f"the {name} agent has not reported from this node yet"
    return wait(WaitCode.AGENT_SILENT, detail, now, who=AGENT_LATE)


class BlockReason(NamedTuple):
    """Why no candidate of a pool or a queue starts."""

    code: WaitCode
    detail: str
    who: str = ""
    """Empty: the entry of its code."""


def wait_reason(wait: Wait | None) -> WaitReason | None:
    """Return the wait as answers tell it; None: there is none."""
    return None if wait is None else WaitReason(**msgspec.structs.asdict(wait))
