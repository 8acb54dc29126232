"""How a wait is put: its code, and who can end it, as docs/states.md#waits has them.

Must not know when anything waits.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from libs.contracts.waits import WaitCode
from libs.rollout.decision import Wait
from libs.rollout.views.fleet import Instant

NO_ACTION_NEEDED: Final = "nobody has to"

RESOLVED_BY: Final[Mapping[WaitCode, str]] = {
    WaitCode.BUDGET: "nobody has to; whoever edits the limits",
    WaitCode.PROOF: "whoever frees the node that holds up the proof",
    WaitCode.HALTED: "a person, by spec.release of the Rollout; whoever writes the policy",
    WaitCode.PAUSED: "whoever set the brake, or turned autoUpgrade off",
    WaitCode.FROZEN: "whoever set the brake",
    WaitCode.SKIPPED: "whoever set the skip label or the cordon",
    WaitCode.BACK_OFF: "time; whoever writes the policy",
    WaitCode.PREFLIGHT: "whoever removes what was found; the request without-preflight",
    WaitCode.AGENT_SILENT: "whoever looks after that pod",
    WaitCode.NOT_READY: "whoever looks after the machine",
    WaitCode.TARGET_UNSETTLED: NO_ACTION_NEEDED,
    WaitCode.TARGET_MISSING: "whoever writes the policy, or names an artefact",
    WaitCode.JOBS: "the owners of the jobs",
    WaitCode.EVICTION: "the owners of the pods",
    WaitCode.PDB: "the owner of the disruption budget",
    WaitCode.OPERANDS: "whoever runs those operands",
    WaitCode.QUIESCE: NO_ACTION_NEEDED,
    WaitCode.OLD_DRIVER: "whoever holds the pod by a finalizer, or looks after the kubelet",
    WaitCode.UNLOAD: "the owners of what holds the devices",
    WaitCode.GATE: "whoever looks after the driver agent, the image or NATS",
    WaitCode.DRIVER_START: NO_ACTION_NEEDED,
    WaitCode.VALIDATION: NO_ACTION_NEEDED,
    WaitCode.FAILED: "a person, by a retry; the strategy's retries; a new target",
    WaitCode.LABEL_EDITED: "the manager that edits, then a retry",
    WaitCode.RECORD_LOST: "a person, by the request adopt or forget",
    WaitCode.DRIVER_RESTARTING: "whoever finds out why; a retry",
    WaitCode.FOREIGN_OPERATOR: "whoever removes one of the two operators",
    WaitCode.POLICY_GONE: "whoever writes policies",
    WaitCode.STALE: "whoever looks after the API server, if it lasts",
    WaitCode.BUS: "whoever looks after NATS, if it lasts",
    WaitCode.REFUSED: "whoever looks after what refuses it",
}


def wait(
    code: WaitCode,
    detail: str,
    now: Instant,
    until: float | None = None,
    *,
    who: str | None = None,
) -> Wait:
    """A wait that begins now, to be ended by those whom its code names."""
    said = RESOLVED_BY[code] if who is None else who
    return Wait(code=code, detail=detail, since=now.at, until=until, who=said)


def first_few(names: Iterable[str], shown: int = 5) -> str:
    """The first of them, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - shown} more" if len(every) > shown else ""
    return ", ".join(every[:shown]) + more
