"""What a person does when all faults are over: resolve the waits that only people can resolve."""

from typing import Final

from libs.contracts.events import WaitEvent
from libs.contracts.message import MalformedMessage, decode
from libs.contracts.node import (
    DRIVER_LABEL,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    STATE_LABEL,
    NodeRecord,
    UpgradeState,
)
from libs.contracts.waits import WaitCode
from services.scheduler import resources
from tests.component.campaign import user_actions
from tests.component.campaign.admin import POOL
from tests.component.campaign.world import CampaignWorld

FOR_PEOPLE: Final = frozenset(
    {
        WaitCode.FAILED,
        WaitCode.HALTED,
        WaitCode.PAUSED,
        WaitCode.FROZEN,
        WaitCode.LABEL_EDITED,
        WaitCode.RECORD_LOST,
        WaitCode.DRIVER_RESTARTING,
        WaitCode.BUDGET,
        WaitCode.PROOF,
    }
)
"""Codes that may last forever; the last two where another node or a cordon uses up the budget."""

_RESTING: Final = ("", UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_REQUIRED)
"""States in which a person may remove any cordon: no upgrade is under way there."""
_ENDED: Final = (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)


async def recover(world: CampaignWorld, waits: dict[str, WaitEvent]) -> list[str]:
    """Act on each wait; return what was done."""
    codes = {wait.code for wait in waits.values()}
    done: list[str] = []
    if codes & {WaitCode.PAUSED, WaitCode.FROZEN} and await user_actions.brake(world, "None"):
        done.append("releases the brake")
    if codes & {WaitCode.HALTED, WaitCode.FAILED}:
        done += await _accept(world)
    for name in world.nodes:
        node = await world.kube.get(resources.NODES, name)
        state = node.metadata.labels.get(STATE_LABEL, "")
        if state in _RESTING and await user_actions.cordon(world, name, False):
            done.append(f"uncordons {name}")
        wait = waits.get(name)
        if wait is not None:
            done += await _resolve_wait(world, node, wait)
    return done


async def _accept(world: CampaignWorld) -> list[str]:
    """Accept all failures of the current target, and the nodes of it that vanished."""
    rollout = await world.rollout()
    status = rollout.status.targets.get(world.target) if rollout is not None else None
    if rollout is None or status is None:
        return []
    released = rollout.spec.release
    accepted = released.failures if released and released.target == world.target else 0
    failed = len(status.harmed)
    if failed <= accepted:
        return []
    release = {"target": world.target, "failures": failed}
    await world.change(resources.ROLLOUTS, POOL, {"spec": {"release": release}})
    return [f"accepts {failed} failures"]


async def _resolve_wait(world: CampaignWorld, node: resources.Node, wait: WaitEvent) -> list[str]:
    name = node.metadata.name
    match wait.code:
        case WaitCode.FAILED | WaitCode.DRIVER_RESTARTING:
            await user_actions.label(
                world, name, **{STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value}
            )
            return [f"tries {name} again"]
        case WaitCode.RECORD_LOST:
            await user_actions.annotate(world, name, **{REQUEST_ANNOTATION: "adopt"})
            return [f"adopts {name}"]
        case WaitCode.LABEL_EDITED:
            record = record_of(node)
            if record is None:
                return []
            state = UpgradeState.UPGRADE_REQUIRED if record.state in _ENDED else record.state
            labels = {STATE_LABEL: str(state), DRIVER_LABEL: record.label or None}
            await user_actions.label(world, name, **labels)
            return [f"restores the labels of {name}"]
        case _:
            return []


def record_of(node: resources.Node) -> NodeRecord | None:
    """Return the node's record, if it is readable."""
    return decode_record(node.metadata.annotations.get(RECORD_ANNOTATION))


def decode_record(text: str | None) -> NodeRecord | None:
    """Return a record, if it is readable."""
    try:
        return decode(NodeRecord, text.encode()) if text else None
    except MalformedMessage:
        return None
