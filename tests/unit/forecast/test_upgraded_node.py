"""What a node is like after a leap: as if each step had been decided about."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Proven
from libs.contracts.node import UpgradeState
from libs.contracts.reports import Evidence
from libs.forecast.fast_forward import FastForward
from libs.forecast.stage import Tenant, api
from libs.forecast.stage.field_paths import DRIVER, LEASE, STATE
from libs.forecast.world import ProcessEnd, SteadyWorld, WorldOverride
from tests.unit.forecast.deviations import only_driver_and_validator
from tests.unit.forecast.evicting_node import (
    NEW_LABEL,
    NODE,
    OLD_LABEL,
    WEB,
    EvictingNode,
    decide_and_advance,
    upgrade_stepwise,
)
from tests.unit.rollout.builders import OLD

CPU = Tenant(name="cpu", gpus=0)
TROUBLE = SteadyWorld(
    overrides=(
        WorldOverride(unload=ProcessEnd(2.0, 1), first_attempts=2),
        WorldOverride(load=ProcessEnd(5.0, 1), first_attempts=1),
    )
)


def leap(emptying: EvictingNode) -> EvictingNode:
    """To its end."""
    emptying.state.touch(NODE)
    ((_, way),) = FastForward(emptying.state).start()
    emptying.stage.run_until(way.ends_at)
    return emptying


def as_proof(evidence: Evidence | None) -> Evidence | None:
    """When it was made, and of which steps, does not matter."""
    return evidence and replace(evidence, at=0.0, steps=())


def seen(emptying: EvictingNode) -> dict[str, Any]:
    """What there is to be decided by, but for the moment and the numbers of ops."""
    machine, record = emptying.machine, emptying.record
    agents: dict[str, Any] = {}
    for part, agent in machine.agents.items():
        slot, result = emptying.state.slots[NODE, part].command, agent.published_reports.result
        assert result is not None
        assert (
            result.order
            == slot.order
            == agent.highest_order
            == agent.published_reports.highest_order
        )
        agents[part] = (
            (slot.open(), slot.epoch, slot.token, slot.node_uid, slot.boot_id),
            (
                result.epoch,
                result.outcome,
                result.command,
                as_proof(agent.published_reports.evidence),
            ),
            (agent.holds_devices, agent.proven, agent.epoch, agent.running, agent.current_op),
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
        "reported": emptying.state.driver_facts[NODE],
        "write_pending": emptying.writing,
    }


@pytest.mark.parametrize("world", [SteadyWorld(), TROUBLE])
def test_the_node_is_the_same_as_after_every_step(world: SteadyWorld) -> None:
    leapt, stepped = EvictingNode(WEB, CPU), EvictingNode(WEB, CPU)
    leapt.state.world = stepped.state.world = world
    leap(leapt)
    upgrade_stepwise(stepped)
    for each in (leapt, stepped):
        each.stage.run_until(each.stage.now + 60.0)
        assert [work.tenant for work in each.machine.tenant_pods.values()] == [CPU, WEB]
        assert each.stage.violations == ()
    assert seen(leapt) == seen(stepped)


def test_idle_slots_carry_the_proof_for_driver_and_validator() -> None:
    emptying = leap(EvictingNode(WEB))
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
    assert {part for part, agent in agents.items() if agent.published_reports.evidence} == {
        "validator"
    }
    assert {part for part, agent in agents.items() if not agent.holds_devices} == {
        "driver",
        "validator",
    }


def test_slot_sequences_increase_by_one() -> None:
    emptying = EvictingNode(WEB)
    del emptying.state.slots[NODE, "plugin"]
    before = {part: slot.sequence for (_, part), slot in emptying.state.slots.items()}
    leap(emptying)
    after = {part: slot.sequence for (_, part), slot in emptying.state.slots.items()}
    assert after == {"plugin": 1} | {part: number + 1 for part, number in before.items()}


def test_only_existing_components_get_slots() -> None:
    emptying = EvictingNode(WEB)
    only_driver_and_validator(emptying)
    emptying.state.slots.clear()
    leap(emptying)
    assert {part for _, part in emptying.state.slots} == {"driver", "validator"}


def test_the_next_upgrade_starts_from_a_fast_forwarded_node() -> None:
    emptying = leap(EvictingNode(WEB))
    token = emptying.record.token
    assert emptying.record.state == UpgradeState.UPGRADE_DONE
    emptying.pool.target = OLD
    emptying.state.touch_pool(emptying.pool.key)
    emptying.state.touch(NODE)
    while api.value(emptying.node, LEASE) is None:
        decide_and_advance(emptying.stage)
    while api.value(emptying.node, LEASE) is not None:
        decide_and_advance(emptying.stage)
    assert emptying.record.state == UpgradeState.UPGRADE_DONE
    assert emptying.driver.label == OLD_LABEL
    assert emptying.stage.violations == ()
    assert emptying.record.token > token
