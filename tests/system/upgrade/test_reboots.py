"""A node loses its power in each of the nine steps of an upgrade (docs/states.md#upgrade)."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from libs.contracts.commands import CommandKind
from libs.contracts.events import (
    CommandEvent,
    EventBody,
    EvictionEvent,
    EvidenceEvent,
    GrantEvent,
    StepEvent,
)
from libs.contracts.journal import EntryPhase
from libs.contracts.node import UpgradeState
from tests.summary import FIGURE
from tests.system.upgrade.audit import audited
from tests.system.upgrade.bus_events import new_events
from tests.system.upgrade.kills import SOAK_ONLY
from tests.system.upgrade.workload import SERVICE
from tests.system.upgrade.world import NEW, World

pytestmark = SOAK_ONLY

STEP_WITHIN, UPGRADED_WITHIN = 240.0, 420.0


def _enters(state: UpgradeState) -> Callable[[EventBody], bool]:
    return lambda body: isinstance(body, StepEvent) and body.after == state


def _begins(kind: CommandKind) -> Callable[[EventBody], bool]:
    return lambda body: (
        isinstance(body, CommandEvent)
        and (body.command, body.phase) == (kind.value, EntryPhase.STARTED)
    )


STEPS: Final[Mapping[str, Callable[[EventBody], bool]]] = {
    "1, it needs an upgrade": _enters(UpgradeState.UPGRADE_REQUIRED),
    "2, its start is granted": lambda body: isinstance(body, GrantEvent),
    "3, it is cordoned": _enters(UpgradeState.POD_DELETION_REQUIRED),
    "4, its pods are evicted": lambda body: (
        isinstance(body, EvictionEvent) and body.answer == "evicted"
    ),
    "5, its agents let the GPUs go": _begins(CommandKind.QUIESCE),
    "6, its driver label has moved": _enters(UpgradeState.POD_RESTART_REQUIRED),
    "7, the drivers are exchanged": _begins(CommandKind.SWAP),
    "8, the driver is validated": _enters(UpgradeState.VALIDATION_REQUIRED),
    "9, it is proven": lambda body: isinstance(body, EvidenceEvent) and body.passed,
}


@pytest.mark.parametrize("step", STEPS)
async def test_a_node_that_reboots_in_a_step_is_upgraded(
    world: World, step: str, record_property: Callable[[str, object], None]
) -> None:
    async with audited(world):
        began = time.monotonic()
        async with new_events(world) as events:
            await world.apply_policy(NEW)
            async with asyncio.timeout(STEP_WITHIN):
                name = await events.first_node(STEPS[step])
            state = (await world.states())[name]
            await world.ground.thread.run(world.machine(name).power_cut())
        await world.until_all_run(NEW, within=UPGRADED_WITHIN)
        seconds = time.monotonic() - began
        found = f"upgrade of two nodes, {name} reboots in step {step} ({state}): {seconds:.0f} s"
        record_property(FIGURE, found)
        assert await world.cordoned() == []
        await world.kubectl.wait("condition=Available", f"deployment/{SERVICE}")
