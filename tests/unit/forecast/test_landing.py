"""What a node is like after a leap: as if each step had been decided about."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Proven
from libs.contracts.node import UpgradeState
from libs.contracts.reports import Evidence
from libs.forecast.leaping import Leaps
from libs.forecast.stage import Tenant, api
from libs.forecast.stage.paths import DRIVER, LEASE, STATE
from libs.forecast.world import Ending, Oddity, Steady
from tests.unit.forecast.emptying import (
    NEW_LABEL,
    NODE,
    OLD_LABEL,
    WEB,
    Emptying,
    live_on,
    step_on,
)
from tests.unit.forecast.otherwise import only_driver_and_validator
from tests.unit.rollout.building import OLD

CPU = Tenant(name="cpu", gpus=0)
TROUBLE = Steady(
    oddities=(
        Oddity(unload=Ending(2.0, 1), attempts=2),
        Oddity(load=Ending(5.0, 1), attempts=1),
    )
)


def leap(emptying: Emptying) -> Emptying:
    """To its end."""
    emptying.state.touch(NODE)
    ((_, way),) = Leaps(emptying.state).begun()
    emptying.stage.until(way.ends)
    return emptying


def as_proof(evidence: Evidence | None) -> Evidence | None:
    """When it was made, and of which steps, does not matter."""
    return evidence and replace(evidence, at=0.0, steps=())


def seen(emptying: Emptying) -> dict[str, Any]:
    """What there is to be decided by, but for the moment and the numbers of ops."""
    machine, record = emptying.machine, emptying.record
    agents: dict[str, Any] = {}
    for part, agent in machine.agents.items():
        slot, result = emptying.state.slots[NODE, part].command, agent.said.result
        assert result is not None
        assert result.order == slot.order == agent.highest == agent.said.highest
        agents[part] = (
            (slot.open(), slot.epoch, slot.token, slot.node_uid, slot.boot_id),
            (result.epoch, result.outcome, result.command, as_proof(agent.said.evidence)),
            (agent.holds, agent.proven, agent.epoch, agent.running, agent.begun),
        )
    return {
        "record": replace(record, since=0.0, evidence=as_proof(record.evidence)),
        "fields": {path: api.value(emptying.node, path) for path in (STATE, DRIVER, LEASE)},
        "owners": {path: held.managers for path, held in emptying.node.fields.items()},
        "taint": emptying.node.taint,
        "agents": agents,
        "loaded": machine.loaded,
        "drivers": [replace(pod, run=0) for pod in machine.drivers.values()],
        "admitted": machine.admitted,
        "counts": machine.counts,
        "reported": emptying.state.reported[NODE],
        "writing": emptying.writing,
    }


@pytest.mark.parametrize("world", [Steady(), TROUBLE])
def test_it_is_as_step_by_step(world: Steady) -> None:
    leapt, stepped = Emptying(WEB, CPU), Emptying(WEB, CPU)
    leapt.state.world = stepped.state.world = world
    leap(leapt)
    step_on(stepped)
    for each in (leapt, stepped):
        each.stage.until(each.stage.now + 60.0)
        assert [work.tenant for work in each.machine.works.values()] == [CPU, WEB]
        assert each.stage.violations == ()
    assert seen(leapt) == seen(stepped)


def test_what_is_proven_is_told_to_whom_it_concerns() -> None:
    emptying = leap(Emptying(WEB))
    bodies = {part: slot.command.open() for (_, part), slot in emptying.state.slots.items()}
    proven = Idle(proven=Proven(label=NEW_LABEL, kernel=emptying.machine.kernel))
    assert bodies == {
        "driver": proven,
        "validator": proven,
        "plugin": Idle(),
        "telemetry": Idle(),
        "discovery": Idle(),
    }
    agents = emptying.machine.agents
    assert {part for part, agent in agents.items() if agent.said.evidence} == {"validator"}
    assert {part for part, agent in agents.items() if not agent.holds} == {"driver", "validator"}


def test_a_slot_is_written_once_more_or_for_the_first_time() -> None:
    emptying = Emptying(WEB)
    del emptying.state.slots[NODE, "plugin"]
    before = {part: slot.sequence for (_, part), slot in emptying.state.slots.items()}
    leap(emptying)
    after = {part: slot.sequence for (_, part), slot in emptying.state.slots.items()}
    assert after == {"plugin": 1} | {part: number + 1 for part, number in before.items()}


def test_where_no_other_component_belongs_nobody_else_is_told() -> None:
    emptying = Emptying(WEB)
    only_driver_and_validator(emptying)
    emptying.state.slots.clear()
    leap(emptying)
    assert {part for _, part in emptying.state.slots} == {"driver", "validator"}


def test_from_there_the_next_upgrade_begins() -> None:
    emptying = leap(Emptying(WEB))
    token = emptying.record.token
    assert emptying.record.state == UpgradeState.UPGRADE_DONE
    emptying.pool.target = OLD
    emptying.state.touch_pool(emptying.pool.key)
    emptying.state.touch(NODE)
    while api.value(emptying.node, LEASE) is None:
        live_on(emptying.stage)
    while api.value(emptying.node, LEASE) is not None:
        live_on(emptying.stage)
    assert emptying.record.state == UpgradeState.UPGRADE_DONE
    assert emptying.driver.label == OLD_LABEL
    assert emptying.stage.violations == ()
    assert emptying.record.token > token
