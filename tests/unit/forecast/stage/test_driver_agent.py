"""The gate and the swap: the three rules of docs/states.md#gate, and the answers of the kernel."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Install, Order, Proven, Swap
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome
from libs.forecast.stage.objects import DriverPodPhase
from libs.forecast.world import ProcessEnd
from libs.policy.wanted import InstallMethod
from libs.testing.stage import Tenant
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.forecast.stage.scenario import NEW_LABEL, NODE, OLD_LABEL, StageScenario
from tests.unit.rollout.builders import NEW, OLD, VARIANT, build, install_of, on_host, pool

SWAP = Swap(label=NEW_LABEL, install_digest=install_of(NEW))


def release_devices(scenario: StageScenario) -> None:
    for agent in scenario.machine.agents.values():
        agent.holds_devices = False


def move_label(scenario: StageScenario) -> str:
    release_devices(scenario)
    old = scenario.move_label()
    scenario.run_until_gone(old)
    return old


def swap_driver(scenario: StageScenario) -> str:
    old = move_label(scenario)
    scenario.command("driver", replace(SWAP, old_pod_uid=old), advance=60)
    (pod,) = scenario.node.driver_pods
    return pod.uid


def steps(scenario: StageScenario) -> list[str]:
    return [
        entry.detail or entry.phase.value
        for entry in scenario.stage.journal().entries or ()
        if entry.component == "driver"
    ]


def test_a_swap_unloads_opens_the_gate_and_ends_with_a_running_driver() -> None:
    scenario = StageScenario()
    uid = swap_driver(scenario)
    assert steps(scenario) == ["started", "unload: ok", f"gate: {uid}", "finished"]
    result = scenario.result("driver")
    assert (result.command, result.outcome) == ("swap", Outcome.DONE)
    node = scenario.node
    assert node.gate is not None
    assert (node.gate.admitted_pod_uid, node.gate.admitted_label) == (uid, NEW_LABEL)
    assert node.loaded is not None
    assert node.driver_pods[0].ready
    assert scenario.stage.violations == ()


def test_progress_names_the_phase_of_a_swap() -> None:
    scenario = StageScenario(
        world=SteadyWorld(pull_seconds=10.0, load_seconds=30.0, stop_seconds=5.0)
    )
    release_devices(scenario)
    old = scenario.move_label()
    scenario.carry_out(scenario.slot("driver", SWAP), wait=0.0)
    phases: list[str] = []
    while scenario.node.components["driver"].result is None or scenario.result("driver").token != 2:
        progress = scenario.node.components["driver"].progress
        if progress is not None and progress.phase not in phases:
            phases.append(progress.phase)
        scenario.stage.advance()
    assert old
    assert phases == ["old-driver", "unload", "gate", "driver-start"]


def test_rule_1_a_swap_waits_for_an_admitted_pod_even_if_its_object_is_deleted() -> None:
    scenario = StageScenario(world=SteadyWorld(stop_seconds=25.0))
    release_devices(scenario)
    old = scenario.node.driver_pods[0].uid
    scenario.users.delete_driver_pod(NODE, force=True)
    scenario.carry_out(
        scenario.write(driver_label=NEW_LABEL, lease=scenario.lease(), unschedulable=True)
    )
    scenario.command("driver", SWAP, advance=10)
    progress = scenario.progress("driver")
    assert progress.phase == "old-driver"
    assert scenario.machine.drivers[old].on_machine
    scenario.advance(60)
    assert scenario.result("driver").outcome is Outcome.DONE
    assert scenario.stage.violations == ()


def test_rule_1_the_uid_in_the_command_is_a_hint_only() -> None:
    scenario = StageScenario()
    move_label(scenario)
    scenario.command("driver", replace(SWAP, old_pod_uid="unknown-uid"), advance=60)
    assert scenario.result("driver").outcome is Outcome.DONE


def test_rule_2_a_repeated_swap_does_not_unload_again() -> None:
    scenario = StageScenario()
    swap_driver(scenario)
    before = scenario.node.loaded
    scenario.command("driver", SWAP, op=2, advance=5)
    assert scenario.result("driver").order == Order(2, 2)
    assert scenario.result("driver").outcome is Outcome.DONE
    assert scenario.node.loaded == before
    assert steps(scenario).count("unload: ok") == 1


def test_rule_2_a_reload_needs_the_end_of_the_pod_that_is_named_as_old() -> None:
    scenario = StageScenario()
    uid = swap_driver(scenario)
    scenario.users.delete_driver_pod(NODE)
    scenario.run_until_gone(uid)
    scenario.command("driver", replace(SWAP, old_pod_uid=uid), op=2, advance=60)
    assert scenario.result("driver").order == Order(2, 2)
    assert steps(scenario).count("unload: ok") == 2


def test_rule_3_a_proven_label_opens_the_gate_without_an_op() -> None:
    scenario = StageScenario()
    before = scenario.node.driver_pods[0].uid
    scenario.users.delete_driver_pod(NODE)
    scenario.advance(60)
    (pod,) = scenario.node.driver_pods
    assert pod.uid != before
    assert pod.ready


@pytest.mark.parametrize(
    "proven",
    [
        None,
        Proven(label=NEW_LABEL, kernel="6.8.0-31-generic"),
        Proven(label=OLD_LABEL, kernel="another"),
    ],
)
def test_rule_3_no_other_label_or_kernel_opens_the_gate(proven: Proven | None) -> None:
    scenario = StageScenario()
    scenario.command("driver", Idle(proven=proven))
    scenario.users.delete_driver_pod(NODE)
    scenario.advance(100)
    (pod,) = scenario.node.driver_pods
    assert scenario.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE


def test_rule_3_the_begin_of_a_swap_erases_the_proven_label() -> None:
    scenario = StageScenario(world=SteadyWorld(overrides=(WorldOverride(unload=ProcessEnd(None)),)))
    move_label(scenario)
    scenario.command("driver", SWAP)
    assert scenario.machine.agents["driver"].proven is None


def test_rule_3_an_agent_that_cannot_read_its_slot_uses_what_the_disk_proves() -> None:
    scenario = StageScenario(world=SteadyWorld(boot_seconds=20.0))
    scenario.faults.set_bus_up(False)
    scenario.faults.reboot(NODE)
    scenario.advance(300)
    assert scenario.node.driver_pods[0].ready


def test_rule_3_an_agent_without_slot_and_disk_keeps_the_gate_shut() -> None:
    scenario = StageScenario(world=SteadyWorld(boot_seconds=20.0))
    scenario.machine.agents["driver"].disk = None
    scenario.faults.set_bus_up(False)
    scenario.faults.reboot(NODE)
    scenario.advance(300)
    (pod,) = scenario.node.driver_pods
    assert scenario.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE
    scenario.faults.set_bus_up(True)
    scenario.advance(60)
    assert scenario.node.driver_pods[0].ready


def test_the_gate_stays_shut_during_a_bus_outage() -> None:
    scenario = StageScenario(world=SteadyWorld(unload_seconds=3.0, pull_seconds=20.0))
    move_label(scenario)
    scenario.command("driver", SWAP, advance=4)
    assert scenario.machine.loaded is None
    scenario.faults.set_bus_up(False)
    scenario.advance(100)
    (pod,) = scenario.node.driver_pods
    assert scenario.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE
    scenario.faults.set_bus_up(True)
    scenario.advance(60)
    assert scenario.result("driver").outcome is Outcome.DONE


def test_modules_stay_loaded_while_a_process_holds_the_devices() -> None:
    scenario = StageScenario(host_processes=2)
    before = scenario.node.loaded
    move_label(scenario)
    scenario.command("driver", SWAP, advance=60)
    progress = scenario.progress("driver")
    assert (progress.phase, progress.detail) == ("unload", "in use: 2 processes of the host")
    assert scenario.node.loaded == before
    scenario.users.set_host_processes(NODE, 0)
    scenario.advance(60)
    assert scenario.result("driver").outcome is Outcome.DONE


def test_an_unload_that_is_busy_until_the_deadline_fails_with_the_holders() -> None:
    scenario = StageScenario(tenants=(Tenant(name="train", stop_seconds=None),))
    move_label(scenario)
    scenario.command("driver", SWAP, advance=140)
    result = scenario.result("driver")
    assert (result.outcome, result.code, result.message) == (
        Outcome.FAILED, "busy", "pod work/train"
    )  # fmt: skip
    assert 120 < result.finished - result.started < 130
    assert set(steps(scenario)) == {"started", "unload: busy, pod work/train", "pod work/train"}


def test_our_components_hold_the_devices_until_they_are_quiesced() -> None:
    scenario = StageScenario()
    scenario.run_until_gone(scenario.move_label())
    scenario.command("driver", SWAP, advance=20)
    progress = scenario.progress("driver")
    assert progress.detail == "in use: plugin (ours), telemetry (ours), discovery (ours)"


def test_a_swap_with_keep_leaves_the_modules_loaded() -> None:
    builds = {target: {VARIANT: build(target, install_digest="same")} for target in (OLD, NEW)}
    scenario = StageScenario(pools=(pool(rollout=None, builds=builds),))
    before = scenario.node.loaded
    old = scenario.move_label()
    scenario.run_until_gone(old)
    kept_swap = Swap(label=NEW_LABEL, install_digest="same", old_pod_uid=old, keep=True)
    scenario.command("driver", kept_swap, advance=60)
    assert scenario.result("driver").outcome is Outcome.DONE
    assert scenario.node.loaded == before
    assert scenario.stage.violations == ()


def test_a_swap_without_a_label_removes_the_driver() -> None:
    scenario = StageScenario()
    release_devices(scenario)
    scenario.run_until_gone(scenario.move_label(""))
    scenario.command("driver", Swap(label=""), advance=10)
    assert scenario.result("driver").outcome is Outcome.DONE
    assert scenario.node.loaded is None
    assert scenario.node.driver_pods == ()


def test_an_op_that_is_replaced_ends_as_superseded() -> None:
    scenario = StageScenario(host_processes=1)
    move_label(scenario)
    scenario.command("driver", SWAP, advance=5)
    scenario.command("driver", Idle(), op=2)
    outcomes = [
        (entry.op, entry.result.outcome.value)
        for entry in scenario.stage.journal().entries or ()
        if entry.component == "driver" and entry.phase is EntryPhase.FINISHED and entry.result
    ]
    assert outcomes == [(1, "superseded"), (2, "done")]
    scenario.users.set_host_processes(NODE, 0)
    scenario.advance(100)
    assert scenario.node.loaded is not None, "a superseded op must not continue"


def test_an_unload_in_the_kernel_finishes_after_its_op_was_superseded() -> None:
    scenario = StageScenario(world=SteadyWorld(unload_seconds=10.0))
    move_label(scenario)
    scenario.command("driver", SWAP)
    scenario.command("driver", Idle(), op=2, advance=20)
    assert scenario.node.loaded is None
    (pod,) = scenario.node.driver_pods
    assert scenario.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE


def test_a_swap_continues_once_after_a_restart_of_its_agent() -> None:
    scenario = StageScenario(world=SteadyWorld(pull_seconds=30.0))
    move_label(scenario)
    scenario.command("driver", SWAP)
    scenario.faults.restart_agent(NODE, "driver")
    scenario.advance(60)
    assert scenario.result("driver").outcome is Outcome.DONE
    assert steps(scenario).count("started") == 1
    assert steps(scenario).count("unload: ok") == 1


def test_a_swap_continues_after_the_agent_lost_its_journal() -> None:
    scenario = StageScenario(world=SteadyWorld(load_seconds=30.0))
    move_label(scenario)
    scenario.command("driver", SWAP, advance=10)
    lost_at = scenario.stage.now
    scenario.faults.restart_agent(NODE, "driver", loses_journal=True)
    scenario.advance(60)
    assert scenario.result("driver").outcome is Outcome.DONE
    assert steps(scenario).count("unload: ok") == 1
    assert scenario.stage.violations == ()
    (lost_journal,) = scenario.stage.journal().lost_journals
    assert (lost_journal.component, lost_journal.time) == ("driver", lost_at)


@pytest.fixture
def host() -> StageScenario:
    scenario = StageScenario(
        pools=(replace(on_host(pool(rollout=None)), method=InstallMethod.HOST),)
    )
    release_devices(scenario)
    return scenario


def test_an_installation_unloads_and_loads(host: StageScenario) -> None:
    before = host.node.loaded
    host.command("driver", Install(label=NEW_LABEL, install_digest=install_of(NEW)), advance=60)
    assert host.result("driver").outcome is Outcome.DONE
    assert host.node.loaded not in (before, None)
    assert host.node.driver_pods == ()


def test_a_failed_installer_is_reported(host: StageScenario) -> None:
    host.stage.state.world = SteadyWorld(overrides=(WorldOverride(load=ProcessEnd(7.0, 1)),))
    host.command("driver", Install(label=NEW_LABEL, install_digest=install_of(NEW)), advance=60)
    result = host.result("driver")
    assert (result.outcome, result.code) == (Outcome.FAILED, "driver-start")
    assert host.node.loaded is None


def test_an_installed_driver_is_not_installed_again(host: StageScenario) -> None:
    before = host.node.loaded
    host.command("driver", Install(label=OLD_LABEL, install_digest=install_of(OLD)))
    assert host.result("driver").outcome is Outcome.DONE
    assert host.node.loaded == before
