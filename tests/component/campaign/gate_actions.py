"""Slow machines, and a proof that is withdrawn while a driver pod waits at the gate."""

from collections.abc import Mapping
from typing import Final

from libs.contracts.node import (
    DRIVER_LABEL,
    LEASE_ANNOTATION,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
)
from libs.kube.errors import NotFound
from services.scheduler import resources
from tests.component.campaign.fault_actions import FAULT_ACTIONS
from tests.component.campaign.recovery import record_of
from tests.component.campaign.user_actions import ActionKind, ScheduledAction, annotate, on_node
from tests.component.campaign.world import CampaignWorld

SLOW_FOR: Final = 30.0
"""Seconds for which the blocking calls of a machine's agents are slow."""
WITHIN: Final = 60.0
"""Seconds to wait until the node is at rest with a proof, and again until a pod is at the gate."""
POLL_INTERVAL: Final = 0.05
"""Seconds between two looks at the gate; its keeper looks every second."""


def _slow_down(world: CampaignWorld, action: ScheduledAction) -> None:
    offload = world.offloads[action.node]
    offload.seconds = action.value
    world.run_after(SLOW_FOR, lambda: setattr(offload, "seconds", 0.0))


async def _slow_machine(world: CampaignWorld, action: ScheduledAction) -> bool:
    """Let each blocking call of the machine's agents take a while."""
    _slow_down(world, action)
    return True


async def _unprove_at_gate(world: CampaignWorld, action: ScheduledAction) -> bool:
    world.run_in_background(_unprove(world, action))
    return True


async def _unprove(world: CampaignWorld, action: ScheduledAction) -> None:
    """Delete the driver pod of a proven node; when the next one waits at the gate, drop the proof.

    A person removes the record and requests to adopt the node: the slot of the driver agent, which
    is slow from then on, changes from `idle` with the proven label to `idle` without one. Nothing
    of this happens once all faults are over: the run may then end at any time.
    """
    machine = world.nodes[action.node].machine

    async def is_proven() -> bool:
        return await _is_proven(world, action.node)

    async def pod_waits() -> bool:
        return machine.gate_request is not None

    if not await world.until(is_proven, within=WITHIN) or world.faults_are_over:
        return
    await FAULT_ACTIONS["delete-driver-pod"].perform(world, action)
    reached_gate = await world.until(pod_waits, within=WITHIN, every=POLL_INTERVAL)
    if not reached_gate or world.faults_are_over:
        return
    _slow_down(world, action)
    await annotate(world, action.node, **{RECORD_ANNOTATION: None, REQUEST_ANNOTATION: "adopt"})


async def _is_proven(world: CampaignWorld, name: str) -> bool:
    """Report whether the node is at rest, and its record proves the driver of its label."""
    try:
        node = await world.kube.get(resources.NODES, name)
    except NotFound:
        return False
    record, meta = record_of(node), node.metadata
    if record is None or record.evidence is None or LEASE_ANNOTATION in meta.annotations:
        return False
    return record.evidence.passed and record.evidence.label == meta.labels.get(DRIVER_LABEL)


GATE_ACTIONS: Final[Mapping[str, ActionKind]] = {
    "slow-machine": on_node(_slow_machine, values=(0.1, 8.0)),
    "unprove-at-gate": on_node(_unprove_at_gate, values=(2.0, 8.0)),
}
