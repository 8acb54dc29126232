"""One node that boots while its agents do not reach NATS: which driver passes the gate?

`SimulatedState.on_gate_opened` judges every opening by what the validator proved, apart from the
agent's own disk. The last test plants faults in the agent, each of which must be found.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Command, Idle, Proven
from libs.contracts.message import raw
from libs.forecast.stage import agents, driver_agent
from libs.forecast.stage.objects import ProofOnDisk, StageAgent, StageSlot
from libs.testing.stage import SimulatedStage
from tests.component.rollout.exploration.explorer import ExplorationStart, explore
from tests.component.rollout.exploration.starts import (
    bring_up,
    disturbances,
    in_place,
    reload,
    upgrade,
)
from tests.component.rollout.simulation.disturbances import (
    REBOOT,
    DisturbanceContext,
    perform,
)

MOST = 20_000


def cut_off(*values: str) -> tuple[Any, ...]:
    return tuple(each for each in disturbances(["reboot_cut_off"]) if each.value in values)


@pytest.mark.dear("the bound on states shows that a boot strikes at every moment")
@pytest.mark.parametrize(
    ("new_stage", "values", "at_least"),
    [
        pytest.param(bring_up, ("at-once", "moved-disk"), 1000, id="bring-up"),
        pytest.param(reload, ("at-once", "failed"), 500, id="reload"),
    ],
)
def test_a_node_may_boot_cut_off_at_any_moment(
    new_stage: Callable[[], SimulatedStage], values: tuple[str, ...], at_least: int
) -> None:
    start = ExplorationStart(name="cut off", new_stage=new_stage, faults=cut_off(*values))
    found = explore(start, swaps=0, most=MOST)
    assert not found.failure, found.failure
    assert found.complete
    assert found.states >= at_least


@pytest.mark.parametrize(
    ("value", "loads"), [("at-once", True), ("at-once 6.9", False), ("moved-disk", False)]
)
def test_what_was_proven_loads_before_the_bus_is_back(value: str, loads: bool) -> None:
    stage = in_place()
    assert stage.state.machines["n1"].loaded is not None
    (fault,) = cut_off(value)
    perform(DisturbanceContext.of(stage.state), fault)
    stage.run_until(stage.now + REBOOT - 60)
    machine = stage.state.machines["n1"]
    assert not machine.connected
    assert machine.boot == 2
    assert (machine.loaded is not None) is loads


def test_a_node_that_failed_while_its_agent_was_silent_gets_the_driver_that_it_ran() -> None:
    stage = in_place()
    context = DisturbanceContext.of(stage.state)
    context.faults.disconnect_agents("n1")
    slot = stage.state.slots["n1", "driver"]
    failed = replace(slot.command, op=slot.command.op + 1, body=raw(Idle()))
    stage.state.slots["n1", "driver"] = StageSlot(slot.sequence + 1, failed)
    context.faults.reboot("n1")
    stage.run_until(stage.now + REBOOT)
    machine = stage.state.machines["n1"]
    assert machine.loaded is not None
    assert not stage.violations
    context.faults.reconnect_agents("n1")
    assert machine.agents["driver"].disk is None


def keep_without_erasing(agent: StageAgent, command: Command) -> None:
    body = command.open()
    if agent.component == "driver" and isinstance(body, Idle) and body.proven is not None:
        agent.disk = ProofOnDisk(agent.node_uid, body.proven)


def admits_any(*_machine_pod_proven: object) -> bool:
    return True


def proven_on_any_disk(agent: StageAgent) -> Proven | None:
    return agent.disk and agent.disk.proven


FAULTY: dict[str, tuple[Callable[[], SimulatedStage], str, Any, str, Any]] = {
    "a proof is not erased before a swap": (
        reload, "at-once", agents, "keep_proof", keep_without_erasing,
    ),
    "the kernel is not compared": (
        upgrade, "at-once 6.9", driver_agent, "admits", admits_any,
    ),
    "the node is not compared": (
        bring_up, "moved-disk", driver_agent, "proven_on_disk", proven_on_any_disk,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_a_faulty_agent_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new_stage, value, module, function, faulty = FAULTY[name]
    monkeypatch.setattr(module, function, faulty)
    start = ExplorationStart(name=name, new_stage=new_stage, faults=cut_off(value))
    found = explore(start, swaps=0, most=MOST)
    assert "the gate opened to " in found.failure
    assert "without a command" in found.failure
