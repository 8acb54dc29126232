"""A node after a fast-forward is as if each step had been decided."""

from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Proven
from libs.contracts.node import UpgradeState
from libs.contracts.paths import DRIVER, LEASE, STATE
from libs.contracts.reports import Evidence
from libs.forecast.fast_forward import FastForward
from libs.forecast.stage import api
from libs.forecast.world import ProcessEnd
from libs.testing.stage import Tenant
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
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
from tests.unit.rollout.builders import OLD, POOL

CPU = Tenant(name="cpu", gpus=0)
TROUBLE = SteadyWorld(
    overrides=(
        WorldOverride(unload=ProcessEnd(2.0, 1), first_attempts=2),
        WorldOverride(load=ProcessEnd(5.0, 1), first_attempts=1),
    )
)


def run_fast_forward(node_stage: EvictingNode) -> EvictingNode:
    node_stage.state.touch(NODE)
    ((_, estimate),) = FastForward(node_stage.state).start()
    node_stage.stage.run_until(estimate.upgrade.at)
    return node_stage


def as_proof(evidence: Evidence | None) -> Evidence | None:
    return evidence and replace(evidence, at=0.0, steps=())


def snapshot_of(node_stage: EvictingNode) -> dict[str, Any]:
    machine, record = node_stage.machine, node_stage.record
    agents: dict[str, Any] = {}
    for part, agent in machine.agents.items():
        slot, result = node_stage.state.slots[NODE, part].command, agent.published_reports.result
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
        "record": replace(record, since=0.0, took={}, evidence=as_proof(record.evidence)),
        "fields": {path: api.value(node_stage.node, path) for path in (STATE, DRIVER, LEASE)},
        "owners": {path: held.managers for path, held in node_stage.node.fields.items()},
        "taint": node_stage.node.view.cordon_taint,
        "agents": agents,
        "loaded": machine.loaded,
        "drivers": [replace(pod, run=0) for pod in machine.drivers.values()],
        "admitted": machine.admitted,
        "counts": machine.counts,
        "reported": node_stage.state.driver_facts[NODE],
        "write_pending": node_stage.writing,
    }


@pytest.mark.parametrize("world", [SteadyWorld(), TROUBLE])
def test_the_node_is_the_same_as_after_every_step(world: SteadyWorld) -> None:
    fast_forwarded, stepped = EvictingNode(WEB, CPU), EvictingNode(WEB, CPU)
    fast_forwarded.state.world = stepped.state.world = world
    run_fast_forward(fast_forwarded)
    upgrade_stepwise(stepped)
    for each in (fast_forwarded, stepped):
        each.stage.run_until(each.stage.now + 60.0)
        assert [work.tenant for work in each.machine.tenant_pods.values()] == [CPU, WEB]
        assert each.stage.violations == ()
    assert snapshot_of(fast_forwarded) == snapshot_of(stepped)


def test_idle_slots_carry_the_proof_for_driver_and_validator() -> None:
    node_stage = run_fast_forward(EvictingNode(WEB))
    bodies = {part: slot.command.open() for (_, part), slot in node_stage.state.slots.items()}
    digest, kernel = "install-target-new", node_stage.machine.kernel
    proven = Idle(proven=Proven(label=NEW_LABEL, kernel=kernel, install_digest=digest))
    assert bodies == {
        "driver": proven,
        "validator": proven,
        "plugin": Idle(),
        "telemetry": Idle(),
        "discovery": Idle(),
    }
    agents = node_stage.machine.agents
    assert {part for part, agent in agents.items() if agent.published_reports.evidence} == {
        "validator"
    }
    assert {part for part, agent in agents.items() if not agent.holds_devices} == {
        "driver",
        "validator",
    }


def test_slot_sequences_increase_by_one() -> None:
    node_stage = EvictingNode(WEB)
    del node_stage.state.slots[NODE, "plugin"]
    before = {part: slot.sequence for (_, part), slot in node_stage.state.slots.items()}
    run_fast_forward(node_stage)
    after = {part: slot.sequence for (_, part), slot in node_stage.state.slots.items()}
    assert after == {"plugin": 1} | {part: number + 1 for part, number in before.items()}


def test_only_existing_components_get_slots() -> None:
    node_stage = EvictingNode(WEB)
    only_driver_and_validator(node_stage)
    node_stage.state.slots.clear()
    run_fast_forward(node_stage)
    assert {part for _, part in node_stage.state.slots} == {"driver", "validator"}


def test_the_next_upgrade_starts_from_a_fast_forwarded_node() -> None:
    node_stage = run_fast_forward(EvictingNode(WEB))
    token = node_stage.record.token
    assert node_stage.record.state == UpgradeState.UPGRADE_DONE
    node_stage.state.change_pool(POOL, target=OLD)
    node_stage.state.touch(NODE)
    while api.value(node_stage.node, LEASE) is None:
        decide_and_advance(node_stage.stage)
    while api.value(node_stage.node, LEASE) is not None:
        decide_and_advance(node_stage.stage)
    assert node_stage.record.state == UpgradeState.UPGRADE_DONE
    assert node_stage.driver.label == OLD_LABEL
    assert node_stage.stage.violations == ()
    assert node_stage.record.token > token
