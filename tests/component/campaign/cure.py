"""What a person does when all faults are over: what our own waits say that only people can do.

A node that waits for a person is at rest; one that waits for anything else must come to its end by
itself.
"""

from typing import Final

from libs.contracts.events import Wait
from libs.contracts.message import Unreadable, decode
from libs.contracts.node import (
    DRIVER_LABEL,
    RECORD_ANNOTATION,
    REQUEST_ANNOTATION,
    STATE_LABEL,
    Record,
    UpgradeState,
)
from libs.contracts.waits import WaitCode
from services.scheduler import things
from tests.component.campaign import people
from tests.component.campaign.person import POOL
from tests.component.campaign.town import Town

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


async def cure(town: Town, waits: dict[str, Wait]) -> list[str]:
    """Each as its wait says; what was done."""
    codes = {wait.code for wait in waits.values()}
    done: list[str] = []
    if codes & {WaitCode.PAUSED, WaitCode.FROZEN} and await people.brake(town, "None"):
        done.append("lets the brake go")
    if codes & {WaitCode.HALTED, WaitCode.FAILED}:
        done += await _accept(town)
    for name in town.stations:
        node = await town.kube.get(things.NODES, name)
        state = node.metadata.labels.get(STATE_LABEL, "")
        if state in _RESTING and await people.cordon(town, name, False):
            done.append(f"uncordons {name}")
        wait = waits.get(name)
        if wait is not None:
            done += await _by_code(town, node, wait)
    return done


async def _accept(town: Town) -> list[str]:
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
    await town.change(things.ROLLOUTS, POOL, {"spec": {"release": release}})
    return [f"accepts {failed} failures"]


async def _by_code(town: Town, node: things.Node, wait: Wait) -> list[str]:
    name = node.metadata.name
    match wait.code:
        case WaitCode.FAILED | WaitCode.DRIVER_RESTARTING:
            await people.label(town, name, **{STATE_LABEL: UpgradeState.UPGRADE_REQUIRED.value})
            return [f"tries {name} again"]
        case WaitCode.RECORD_LOST:
            await people.annotate(town, name, **{REQUEST_ANNOTATION: "adopt"})
            return [f"has {name} adopted"]
        case WaitCode.LABEL_EDITED:
            record = record_of(node)
            if record is None:
                return []
            state = UpgradeState.UPGRADE_REQUIRED if record.state in _ENDED else record.state
            labels = {STATE_LABEL: str(state), DRIVER_LABEL: record.label or None}
            await people.label(town, name, **labels)
            return [f"puts the labels of {name} back"]
        case _:
            return []


def record_of(node: things.Node) -> Record | None:
    """What we wrote down of it, if that can be read."""
    text = node.metadata.annotations.get(RECORD_ANNOTATION, "")
    try:
        return decode(Record, text.encode()) if text else None
    except Unreadable:
        return None
