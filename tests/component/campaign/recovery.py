"""What a person does when all faults are over: what our own waits say that only people can do.

A node that waits for a person is at rest; one that waits for anything else must come to its end by
itself.
"""

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
"""Codes that may last for ever; the last two where another node, or a cordon, holds the place."""

_RESTING: Final = ("", UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_REQUIRED)
"""States in which a person may take any cordon off: nothing is under way there."""
_ENDED: Final = (UpgradeState.UPGRADE_DONE, UpgradeState.UPGRADE_FAILED)


async def recover(town: CampaignWorld, waits: dict[str, WaitEvent]) -> list[str]:
    """Each as its wait says; what was done."""
    codes = {wait.code for wait in waits.values()}
    done: list[str] = []
    if codes & {WaitCode.PAUSED, WaitCode.FROZEN} and await user_actions.brake(town, "None"):
        done.append("lets the brake go")
    if codes & {WaitCode.HALTED, WaitCode.FAILED}:
        done += await _accept(town)
    for name in town.nodes:
        node = await town.kube.get(resources.NODES, name)
        state = node.metadata.labels.get(STATE_LABEL, "")
        if state in _RESTING and await user_actions.cordon(town, name, False):
            done.append(f"uncordons {name}")
        wait = waits.get(name)
        if wait is not None:
            done += await _by_code(town, node, wait)
    return done


async def _accept(town: CampaignWorld) -> list[str]:
    """As many failures of what is wanted as there are."""
    rollout = await town.rollout()
    known = rollout.status.targets.get(town.target) if rollout is not None else None
    if rollout is None or known is None:
        return []
    released = rollout.spec.release
    accepted = released.failures if released and released.target == town.target else 0
    failed = len(known.failed)
    if failed <= accepted:
        return []
    release = {"target": town.target, "failures": failed}
    await town.change(resources.ROLLOUTS, POOL, {"spec": {"release": release}})
    return [f"accepts {failed} failures"]


async def _by_code(town: CampaignWorld, node: resources.Node, wait: WaitEvent) -> list[str]:
    name = node.metadata.name
    match wait.code:
        case WaitCode.FAILED | WaitCode.DRIVER_RESTARTING:
            await user_actions.label(
                town, name, **{STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value}
            )
            return [f"tries {name} again"]
        case WaitCode.RECORD_LOST:
            await user_actions.annotate(town, name, **{REQUEST_ANNOTATION: "adopt"})
            return [f"has {name} adopted"]
        case WaitCode.LABEL_EDITED:
            record = record_of(node)
            if record is None:
                return []
            state = UpgradeState.UPGRADE_REQUIRED if record.state in _ENDED else record.state
            labels = {STATE_LABEL: str(state), DRIVER_LABEL: record.label or None}
            await user_actions.label(town, name, **labels)
            return [f"puts the labels of {name} back"]
        case _:
            return []


def record_of(node: resources.Node) -> NodeRecord | None:
    """What we wrote down of it, if that can be read."""
    text = node.metadata.annotations.get(RECORD_ANNOTATION, "")
    try:
        return decode(NodeRecord, text.encode()) if text else None
    except MalformedMessage:
        return None
