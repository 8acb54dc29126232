"""The gate and the swap: the three rules of docs/states.md#gate, and the kernel's word."""

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


def quiet(scene: StageScenario) -> None:
    for agent in scene.machine.agents.values():
        agent.holds_devices = False


def moved(scene: StageScenario) -> str:
    quiet(scene)
    old = scene.move_label()
    scene.run_until_gone(old)
    return old


def swapped(scene: StageScenario) -> str:
    old = moved(scene)
    scene.carry_out(scene.slot("driver", replace(SWAP, old_pod_uid=old)))
    scene.advance(60)
    (pod,) = scene.node.driver_pods
    return pod.uid


def steps(scene: StageScenario) -> list[str]:
    return [
        each.detail or each.phase.value
        for each in scene.stage.journal().entries or ()
        if each.component == "driver"
    ]


def test_a_swap_unloads_opens_the_gate_and_ends_with_a_driver_that_works() -> None:
    scene = StageScenario()
    uid = swapped(scene)
    assert steps(scene) == ["started", "unload: ok", f"gate: {uid}", "finished"]
    result = scene.result("driver")
    assert (result.command, result.outcome) == ("swap", Outcome.DONE)
    node = scene.node
    assert node.gate is not None
    assert (node.gate.admitted_pod_uid, node.gate.admitted_label) == (uid, NEW_LABEL)
    assert node.loaded is not None
    assert node.driver_pods[0].ready
    assert scene.stage.violations == ()


def test_its_progress_says_where_it_is() -> None:
    scene = StageScenario(world=SteadyWorld(pull_seconds=10.0, load_seconds=30.0, stop_seconds=5.0))
    quiet(scene)
    old = scene.move_label()
    scene.carry_out(scene.slot("driver", SWAP), wait=0.0)
    phases: list[str] = []
    while scene.node.components["driver"].result is None or scene.result("driver").token != 2:
        progress = scene.node.components["driver"].progress
        if progress is not None and progress.phase not in phases:
            phases.append(progress.phase)
        scene.stage.advance()
    assert old
    assert phases == ["old-driver", "unload", "gate", "driver-start"]


def test_rule_1_it_waits_for_a_pod_that_was_let_in_whatever_becomes_of_its_object() -> None:
    scene = StageScenario(world=SteadyWorld(stop_seconds=25.0))
    quiet(scene)
    old = scene.node.driver_pods[0].uid
    scene.users.delete_driver_pod(NODE, force=True)
    scene.carry_out(scene.write(driver_label=NEW_LABEL, lease=scene.lease(), unschedulable=True))
    scene.carry_out(scene.slot("driver", SWAP))
    scene.advance(10)
    progress = scene.node.components["driver"].progress
    assert progress is not None
    assert progress.phase == "old-driver"
    assert scene.machine.drivers[old].on_machine
    scene.advance(60)
    assert scene.result("driver").outcome is Outcome.DONE
    assert scene.stage.violations == ()


def test_rule_1_the_uid_in_the_command_is_a_hint_only() -> None:
    scene = StageScenario()
    moved(scene)
    scene.carry_out(scene.slot("driver", replace(SWAP, old_pod_uid="never-heard-of")))
    scene.advance(60)
    assert scene.result("driver").outcome is Outcome.DONE


def test_rule_2_a_swap_that_comes_again_goes_on_and_does_not_unload() -> None:
    scene = StageScenario()
    swapped(scene)
    before = scene.node.loaded
    scene.carry_out(scene.slot("driver", SWAP, op=2))
    scene.advance(5)
    assert scene.result("driver").order == Order(2, 2)
    assert scene.result("driver").outcome is Outcome.DONE
    assert scene.node.loaded == before
    assert steps(scene).count("unload: ok") == 1


def test_rule_2_to_reload_the_pod_goes_first_and_is_named_as_old() -> None:
    scene = StageScenario()
    uid = swapped(scene)
    scene.users.delete_driver_pod(NODE)
    scene.run_until_gone(uid)
    scene.carry_out(scene.slot("driver", replace(SWAP, old_pod_uid=uid), op=2))
    scene.advance(60)
    assert scene.result("driver").order == Order(2, 2)
    assert steps(scene).count("unload: ok") == 2


def test_rule_3_what_is_proven_opens_the_gate_without_an_op() -> None:
    scene = StageScenario()
    before = scene.node.driver_pods[0].uid
    scene.users.delete_driver_pod(NODE)
    scene.advance(60)
    (pod,) = scene.node.driver_pods
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
def test_rule_3_nothing_else_opens_it(proven: Proven | None) -> None:
    scene = StageScenario()
    scene.carry_out(scene.slot("driver", Idle(proven=proven)))
    scene.users.delete_driver_pod(NODE)
    scene.advance(100)
    (pod,) = scene.node.driver_pods
    assert scene.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE


def test_rule_3_a_swap_that_began_erases_what_was_proven() -> None:
    scene = StageScenario(world=SteadyWorld(overrides=(WorldOverride(unload=ProcessEnd(None)),)))
    moved(scene)
    scene.carry_out(scene.slot("driver", SWAP))
    assert scene.machine.agents["driver"].proven is None


def test_rule_3_an_agent_that_cannot_read_its_slot_keeps_the_gate_shut() -> None:
    scene = StageScenario(world=SteadyWorld(boot_seconds=20.0))
    scene.faults.set_bus_up(False)
    scene.faults.reboot(NODE)
    scene.advance(300)
    (pod,) = scene.node.driver_pods
    assert scene.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE
    scene.faults.set_bus_up(True)
    scene.advance(60)
    assert scene.node.driver_pods[0].ready


def test_it_stops_before_what_cannot_be_taken_back_when_the_bus_is_away() -> None:
    scene = StageScenario(world=SteadyWorld(unload_seconds=3.0, pull_seconds=20.0))
    moved(scene)
    scene.carry_out(scene.slot("driver", SWAP))
    scene.advance(4)
    assert scene.machine.loaded is None
    scene.faults.set_bus_up(False)
    scene.advance(100)
    (pod,) = scene.node.driver_pods
    assert scene.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE
    scene.faults.set_bus_up(True)
    scene.advance(60)
    assert scene.result("driver").outcome is Outcome.DONE


def test_while_anything_holds_the_devices_the_modules_stay() -> None:
    scene = StageScenario(host_processes=2)
    before = scene.node.loaded
    moved(scene)
    scene.carry_out(scene.slot("driver", SWAP))
    scene.advance(60)
    progress = scene.node.components["driver"].progress
    assert progress is not None
    assert (progress.phase, progress.detail) == ("unload", "in use: 2 processes of the host")
    assert scene.node.loaded == before
    scene.users.set_host_processes(NODE, 0)
    scene.advance(60)
    assert scene.result("driver").outcome is Outcome.DONE


def test_ebusy_until_the_deadline_fails_with_the_holders() -> None:
    scene = StageScenario(tenants=(Tenant(name="train", stop_seconds=None),))
    moved(scene)
    scene.carry_out(scene.slot("driver", SWAP))
    scene.advance(140)
    result = scene.result("driver")
    assert (result.outcome, result.code, result.message) == (
        Outcome.FAILED, "busy", "pod work/train"
    )  # fmt: skip
    assert 120 < result.finished - result.started < 130
    assert set(steps(scene)) == {"started", "unload: busy, pod work/train", "pod work/train"}


def test_our_own_components_hold_them_too_until_they_are_quiet() -> None:
    scene = StageScenario()
    scene.run_until_gone(scene.move_label())
    scene.carry_out(scene.slot("driver", SWAP))
    scene.advance(20)
    progress = scene.node.components["driver"].progress
    assert progress is not None
    assert progress.detail == "in use: plugin (ours), telemetry (ours), discovery (ours)"


def test_with_keep_the_modules_stay() -> None:
    alike = {target: {VARIANT: build(target, install_digest="same")} for target in (OLD, NEW)}
    scene = StageScenario(pools=(pool(rollout=None, builds=alike),))
    before = scene.node.loaded
    old = scene.move_label()
    scene.run_until_gone(old)
    kept_swap = Swap(label=NEW_LABEL, install_digest="same", old_pod_uid=old, keep=True)
    scene.carry_out(scene.slot("driver", kept_swap))
    scene.advance(60)
    assert scene.result("driver").outcome is Outcome.DONE
    assert scene.node.loaded == before
    assert scene.stage.violations == ()


def test_without_a_label_the_driver_is_removed() -> None:
    scene = StageScenario()
    quiet(scene)
    scene.run_until_gone(scene.move_label(""))
    scene.carry_out(scene.slot("driver", Swap(label="")))
    scene.advance(10)
    assert scene.result("driver").outcome is Outcome.DONE
    assert scene.node.loaded is None
    assert scene.node.driver_pods == ()


def test_an_op_that_is_replaced_ends_as_superseded() -> None:
    scene = StageScenario(host_processes=1)
    moved(scene)
    scene.carry_out(scene.slot("driver", SWAP))
    scene.advance(5)
    scene.carry_out(scene.slot("driver", Idle(), op=2))
    ended = [
        (each.op, each.result.outcome.value)
        for each in scene.stage.journal().entries or ()
        if each.component == "driver" and each.phase is EntryPhase.FINISHED and each.result
    ]
    assert ended == [(1, "superseded"), (2, "done")]
    scene.users.set_host_processes(NODE, 0)
    scene.advance(100)
    assert scene.node.loaded is not None, "nothing goes on with an op that ended"


def test_a_call_in_the_kernel_ends_although_its_op_did() -> None:
    scene = StageScenario(world=SteadyWorld(unload_seconds=10.0))
    moved(scene)
    scene.carry_out(scene.slot("driver", SWAP))
    scene.carry_out(scene.slot("driver", Idle(), op=2))
    scene.advance(20)
    assert scene.node.loaded is None
    (pod,) = scene.node.driver_pods
    assert scene.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE


def test_after_a_restart_of_its_agent_a_swap_goes_on_once() -> None:
    scene = StageScenario(world=SteadyWorld(pull_seconds=30.0))
    moved(scene)
    scene.carry_out(scene.slot("driver", SWAP))
    scene.faults.restart_agent(NODE, "driver")
    scene.advance(60)
    assert scene.result("driver").outcome is Outcome.DONE
    assert steps(scene).count("started") == 1
    assert steps(scene).count("unload: ok") == 1


def test_without_its_journal_the_answers_under_run_take_its_place() -> None:
    scene = StageScenario(world=SteadyWorld(load_seconds=30.0))
    moved(scene)
    scene.carry_out(scene.slot("driver", SWAP))
    scene.advance(10)
    forgot = scene.stage.now
    scene.faults.restart_agent(NODE, "driver", loses_journal=True)
    scene.advance(60)
    assert scene.result("driver").outcome is Outcome.DONE
    assert steps(scene).count("unload: ok") == 1
    assert scene.stage.violations == ()
    (lost,) = scene.stage.journal().lost_journals
    assert (lost.component, lost.time) == ("driver", forgot)


@pytest.fixture
def host() -> StageScenario:
    scene = StageScenario(pools=(replace(on_host(pool(rollout=None)), method=InstallMethod.HOST),))
    quiet(scene)
    return scene


def test_an_installation_unloads_and_loads(host: StageScenario) -> None:
    before = host.node.loaded
    host.carry_out(host.slot("driver", Install(label=NEW_LABEL, install_digest=install_of(NEW))))
    host.advance(60)
    assert host.result("driver").outcome is Outcome.DONE
    assert host.node.loaded not in (before, None)
    assert host.node.driver_pods == ()


def test_a_failed_installer_is_reported(host: StageScenario) -> None:
    host.stage.state.world = SteadyWorld(overrides=(WorldOverride(load=ProcessEnd(7.0, 1)),))
    host.carry_out(host.slot("driver", Install(label=NEW_LABEL, install_digest=install_of(NEW))))
    host.advance(60)
    result = host.result("driver")
    assert (result.outcome, result.code) == (Outcome.FAILED, "driver-start")
    assert host.node.loaded is None


def test_an_installed_driver_is_not_installed_again(host: StageScenario) -> None:
    before = host.node.loaded
    host.carry_out(host.slot("driver", Install(label=OLD_LABEL, install_digest=install_of(OLD))))
    assert host.result("driver").outcome is Outcome.DONE
    assert host.node.loaded == before
