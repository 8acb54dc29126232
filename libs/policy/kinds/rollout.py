"""Rollout (`sluice.dev/v1alpha1`): the state of a pool's rollout, and its brake and release.

The fields are declared in `libs.contracts.rollout`; their descriptions are here.
"""

from libs.contracts import rollout
from libs.policy.kinds.common import Metadata
from libs.policy.kinds.kind import AGE, FieldDescriptions, Kind, PrinterColumn
from libs.policy.shapes import About, PolicyStruct

_DESCRIPTIONS: FieldDescriptions = {
    rollout.RolloutSpec: {
        "brake": About(
            "Pause: nothing starts. Freeze: nothing moves, and clocks stop.",
            effect="Pause finishes what is in flight; Freeze holds everything",
            stored=True,
        ),
        "release": About("A person accepts failures of a target; a halt ends by it."),
    },
    rollout.Release: {
        "target": About("The halted target.", effect="the halt of this target ends", required=True),
        "failures": About(
            "How many of its failures are accepted.",
            effect="so many failures are forgiven; halted again when the threshold is reached anew",
            required=True,
            minimum=0,
        ),
    },
    rollout.RolloutStatus: {
        "target": About("The digest of the wanted driver."),
        "phase": About("Where it stands."),
        "because": About("Why, when it is halted."),
        "epoch": About("Of the scheduler that wrote last."),
        "base": About("The pool's nodes at the first grant: percentages are of it."),
        "last_good": About("The newest target that was proven and is not halted."),
        "frozen_since": About("When it was frozen, in unix seconds."),
        "frozen_seconds": About("How long it was frozen before."),
        "in_flight": About("Nodes that were granted and have not ended, by uid.", atomic=True),
        "targets": About("Every target that is open, halted or last-good.", atomic=True),
        "counts": About("The pool's nodes, by where they are.", atomic=True),
        "observed_generation": About("The generation of spec that it speaks of."),
    },
    rollout.InFlight: {
        "node": About("The node's name.", required=True),
        "token": About("Of the operation.", required=True),
        "target": About("What it moves to.", required=True),
        "since": About("When it was granted, in unix seconds.", required=True),
        "outside": About("Whether it counts for and against no target, and takes no place."),
        "validates": About("Whether it is merely validated again."),
    },
    rollout.TargetRecord: {
        "threshold": About("So many nodes prove it, and so many failures halt it.", required=True),
        "accepted": About("Failures that a person accepted."),
        "failed": About("Uids of nodes that were healthy and failed on it.", atomic=True),
        "validated": About("Uids of nodes with evidence, up to the threshold.", atomic=True),
        "proven": About("Whether enough nodes proved it."),
        "proven_at": About("When they had, in unix seconds."),
        "complete": About("Whether it was proven and complete when it was wanted last."),
        "halted_because": About("Why nothing starts on it."),
    },
    rollout.Counts: {
        "total": About("All nodes of the pool."),
        "done": About("Nodes with the wanted driver, validated."),
        "in_flight": About("Nodes that are in an upgrade."),
        "failed": About("Nodes that failed."),
        "skipped": About("Nodes that a person excepted."),
        "excluded": About("Nodes that cannot take part."),
        "waiting": About("Nodes that wait."),
        "unavailable": About("Nodes that are unavailable, for whatever reason."),
        "limit": About("How many may be."),
    },
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
    description="Where the rollout of a pool stands. Named by the pool's key; made by Sluice.",
    spec=rollout.RolloutSpec,
    status=rollout.RolloutStatus,
    object_type=Rollout,
    columns=(
        PrinterColumn("Target", ".status.target"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Done", ".status.counts.done", "integer"),
        PrinterColumn("Total", ".status.counts.total", "integer"),
        PrinterColumn("Failed", ".status.counts.failed", "integer"),
        PrinterColumn("Brake", ".spec.brake"),
        PrinterColumn("In flight", ".status.counts.inFlight", "integer", wide=True),
        PrinterColumn("Because", ".status.because", wide=True),
        AGE,
    ),
    descriptions=_DESCRIPTIONS,
)
