"""Rollout (`sluice.dev/v1alpha1`): the state of a pool's rollout, and its brake and release.

The fields are declared in `libs.contracts.rollout`, and those of the status described there. What
the API server checks and stores of them is here.
"""

from libs.contracts import rollout
from libs.policy.kinds.common import AGE, Kind, Metadata, PrinterColumn
from libs.policy.shapes import About, FieldDetails, PolicyStruct

_REQUIRED = About(required=True)
_STORED = About(stored=True)
_DETAILS: FieldDetails = {
    rollout.RolloutSpec: {
        "brake": About(
            "Pause: no node starts an upgrade. Freeze: no node changes state, and timeouts stop.",
            effect="with Pause, nodes in flight finish; with Freeze, they stay where they are",
            stored=True,
        ),
        "release": About("Accepts failures of a halted target, which ends the halt."),
    },
    rollout.Release: {
        "target": About("The halted target.", effect="the halt of this target ends", required=True),
        "failures": About(
            "How many failures of the target are accepted.",
            effect="this many failures no longer count; the target is halted again when further"
            " failures reach the threshold",
            required=True,
            minimum=0,
        ),
    },
    rollout.RolloutStatus: {
        "phase": _STORED,
        "progress": _STORED,
        "eta": _STORED,
        "because": _STORED,
        "in_flight": About(atomic=True),
        "targets": About(atomic=True),
        "counts": About(atomic=True, stored=True),
        "conditions": About(keys=("type",)),
    },
    rollout.RolloutCondition: {
        "type": _REQUIRED,
        "status": _REQUIRED,
        "reason": _REQUIRED,
        "last_transition_time": _REQUIRED,
        "message": _STORED,
    },
    rollout.InFlight: {
        "node": _REQUIRED,
        "token": _REQUIRED,
        "target": _REQUIRED,
        "since": _REQUIRED,
    },
    rollout.TargetRecord: {
        "threshold": _REQUIRED,
        "failed": About(atomic=True),
        "validated": About(atomic=True),
    },
    rollout.Vanished: {"node": _REQUIRED, "since": _REQUIRED},
    rollout.Counts: dict.fromkeys(
        (
            *("total", "done", "in_flight", "failed", "skipped", "excluded", "waiting"),
            *("unavailable", "limit"),
        ),
        _STORED,
    ),
}


class Rollout(PolicyStruct, frozen=True, kw_only=True):
    """The part of a Rollout that people write."""

    metadata: Metadata = Metadata()
    spec: rollout.RolloutSpec = rollout.RolloutSpec()


ROLLOUT = Kind(
    name=rollout.KIND,
    group=rollout.GROUP,
    version=rollout.VERSION,
    plural=rollout.PLURAL,
    singular="rollout",
    description="The state of a pool's rollout. Created by Sluice and named by the pool's key.",
    spec=rollout.RolloutSpec,
    status=rollout.RolloutStatus,
    object_type=Rollout,
    spec_stored=True,
    columns=(
        PrinterColumn("Target", ".status.version"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Done", ".status.progress"),
        PrinterColumn("In flight", ".status.counts.inFlight", "integer"),
        PrinterColumn("Failed", ".status.counts.failed", "integer"),
        PrinterColumn("Waiting", ".status.counts.waiting", "integer"),
        PrinterColumn("ETA", ".status.eta"),
        PrinterColumn("Because", ".status.because"),
        PrinterColumn("Brake", ".spec.brake", wide=True),
        PrinterColumn("Digest", ".status.shortTarget", wide=True),
        PrinterColumn("Excluded", ".status.counts.excluded", "integer", wide=True),
        AGE,
    ),
    details=_DETAILS,
)
