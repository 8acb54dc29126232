"""Rollout (`sluice.dev/v1alpha1`): the state of a pool's rollout, and its brake and release.

The fields are declared in `libs.contracts.rollout`; their descriptions are here.
"""

from libs.contracts import rollout
from libs.policy.kinds.common import AGE, Kind, Metadata, PrinterColumn
from libs.policy.shapes import About, FieldDescriptions, PolicyStruct

_DESCRIPTIONS: FieldDescriptions = {
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
        "version": About("The version of the wanted driver."),
        "target": About("The digest of the wanted driver."),
        "short_target": About("The first digits of target."),
        "phase": About("The phase of the rollout.", stored=True),
        "progress": About("How many nodes are done of how many, such as 3/12.", stored=True),
        "eta": About(
            "When the rollout ends at its pace so far. Empty: not known, for instance while a node"
            " in flight waits for a job, a disruption budget or a person.",
            stored=True,
        ),
        "because": About(
            "Why nothing starts, or how many nodes a complete rollout left out.", stored=True
        ),
        "epoch": About("The epoch of the scheduler that wrote last."),
        "base": About("The number of nodes at the first grant, to which percentages refer."),
        "last_good": About("The most recently proven target that is not halted."),
        "frozen_since": About("When the rollout was frozen, in Unix seconds."),
        "frozen_seconds": About("Total seconds of earlier freezes."),
        "in_flight": About(
            "Nodes whose upgrade was granted and has not ended, by UID.", atomic=True
        ),
        "targets": About("All targets that are open, halted or last-good.", atomic=True),
        "counts": About("Counts of the pool's nodes by state.", atomic=True, stored=True),
        "conditions": About("The conditions of the rollout.", keys=("type",)),
        "observed_generation": About("The generation of spec that the status refers to."),
    },
    rollout.RolloutCondition: {
        "type": About("The type of the condition.", required=True),
        "status": About("Whether the condition holds.", required=True),
        "reason": About("The reason in one word.", required=True),
        "last_transition_time": About("When status last changed.", required=True),
        "message": About("The reason in a sentence.", stored=True),
        "observed_generation": About("The generation of spec that the condition refers to."),
    },
    rollout.InFlight: {
        "node": About("The node's name.", required=True),
        "token": About("The token of the operation.", required=True),
        "target": About("The target of the upgrade.", required=True),
        "since": About("When the upgrade was granted, in Unix seconds.", required=True),
        "outside": About(
            "Whether the node counts neither for its target nor toward maxParallelUpgrades."
        ),
        "validates": About("Whether the node is only validated again."),
    },
    rollout.TargetRecord: {
        "threshold": About(
            "How many nodes prove the target, and how many failures halt it.", required=True
        ),
        "accepted": About("How many failures a person accepted."),
        "failed": About("UIDs of nodes that were healthy and failed on the target.", atomic=True),
        "validated": About("UIDs of nodes that were validated, up to the threshold.", atomic=True),
        "proven": About("Whether enough nodes proved the target."),
        "proven_at": About("When the target was last proven, in Unix seconds."),
        "complete": About("Whether the target was proven and complete when it was last wanted."),
        "halted_because": About("Why no node starts on the target."),
        "vanished": About(
            "By UID: nodes whose Node was deleted after their start, before the target was proven."
        ),
    },
    rollout.Vanished: {
        "node": About("The node's name.", required=True),
        "since": About("When its upgrade was granted, in Unix seconds.", required=True),
    },
    rollout.Counts: {
        "total": About("All nodes of the pool.", stored=True),
        "done": About("Nodes with the wanted driver, validated.", stored=True),
        "in_flight": About("Nodes that are in an upgrade.", stored=True),
        "failed": About("Nodes that failed.", stored=True),
        "skipped": About("Nodes that a person excluded.", stored=True),
        "excluded": About("Nodes that cannot be upgraded.", stored=True),
        "waiting": About(
            "Nodes that have not started. Nodes in flight, which may wait too, are not among them.",
            stored=True,
        ),
        "unavailable": About("Nodes that are unavailable for any reason.", stored=True),
        "limit": About("How many nodes may be unavailable.", stored=True),
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
    descriptions=_DESCRIPTIONS,
)
