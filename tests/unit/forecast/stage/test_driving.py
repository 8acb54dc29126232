"""The gate and the swap: the three rules of docs/states.md#gate, and the kernel's word."""

import pytest
from msgspec.structs import replace

from libs.contracts.commands import Idle, Install, Order, Proven, Swap
from libs.contracts.journal import EntryPhase
from libs.contracts.reports import Outcome
from libs.forecast.stage import Tenant
from libs.forecast.stage.objects import Phase
from libs.forecast.world import Ending, Oddity, Steady
from libs.policy.wanted import Method
from tests.unit.forecast.stage.hands import NEW_LABEL, NODE, OLD_LABEL, Scene
from tests.unit.rollout.building import NEW, OLD, VARIANT, build, install_of, on_host, pool

SWAP = Swap(label=NEW_LABEL, install_digest=install_of(NEW))


def quiet(scene: Scene) -> None:
    """Our components let go of the devices."""
    for agent in scene.machine.agents.values():
        agent.holds = False


def moved(scene: Scene) -> str:
    """Up to where a swap may be sent: the old pod's object is gone."""
    quiet(scene)
    old = scene.move()
    scene.until_gone(old)
    return old


def swapped(scene: Scene) -> str:
    """A whole swap; the uid of the pod that runs."""
    old = moved(scene)
    scene.do(scene.slot("driver", replace(SWAP, old_pod_uid=old)))
    scene.let(60)
    (pod,) = scene.node.driver_pods
    return pod.uid


def steps(scene: Scene) -> list[str]:
    """What the driver agent wrote down of its ops."""
    return [
        each.detail or each.phase.value
        for each in scene.stage.journal().entries or ()
        if each.component == "driver"
    ]


def test_a_swap_unloads_opens_the_gate_and_ends_with_a_driver_that_works() -> None:
    scene = Scene()
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
    scene = Scene(world=Steady(pulling=10.0, loading=30.0, stopping=5.0))
    quiet(scene)
    old = scene.move()
    scene.do(scene.slot("driver", SWAP), wait=0.0)
    phases: list[str] = []
    while scene.node.components["driver"].result is None or scene.result("driver").token != 2:
        said = scene.node.components["driver"].progress
        if said is not None and said.phase not in phases:
            phases.append(said.phase)
        scene.stage.advance()
    assert old
    assert phases == ["old-driver", "unload", "gate", "driver-start"]


def test_rule_1_it_waits_for_a_pod_that_was_let_in_whatever_becomes_of_its_object() -> None:
    scene = Scene(world=Steady(stopping=25.0))
    quiet(scene)
    old = scene.node.driver_pods[0].uid
    scene.people.delete_driver_pod(NODE, force=True)
    scene.do(scene.write(driver_label=NEW_LABEL, lease=scene.lease(), unschedulable=True))
    scene.do(scene.slot("driver", SWAP))
    scene.let(10)
    progress = scene.node.components["driver"].progress
    assert progress is not None
    assert progress.phase == "old-driver"
    assert scene.machine.drivers[old].on_machine
    scene.let(60)
    assert scene.result("driver").outcome is Outcome.DONE
    assert scene.stage.violations == ()


def test_rule_1_the_uid_in_the_command_is_a_hint_only() -> None:
    scene = Scene()
    moved(scene)
    scene.do(scene.slot("driver", replace(SWAP, old_pod_uid="never-heard-of")))
    scene.let(60)
    assert scene.result("driver").outcome is Outcome.DONE


def test_rule_2_a_swap_that_comes_again_goes_on_and_does_not_unload() -> None:
    scene = Scene()
    swapped(scene)
    before = scene.node.loaded
    scene.do(scene.slot("driver", SWAP, op=2))
    scene.let(5)
    assert scene.result("driver").order == Order(2, 2)
    assert scene.result("driver").outcome is Outcome.DONE
    assert scene.node.loaded == before
    assert steps(scene).count("unload: ok") == 1


def test_rule_2_to_reload_the_pod_goes_first_and_is_named_as_old() -> None:
    scene = Scene()
    uid = swapped(scene)
    scene.people.delete_driver_pod(NODE)
    scene.until_gone(uid)
    scene.do(scene.slot("driver", replace(SWAP, old_pod_uid=uid), op=2))
    scene.let(60)
    assert scene.result("driver").order == Order(2, 2)
    assert steps(scene).count("unload: ok") == 2


def test_rule_3_what_is_proven_opens_the_gate_without_an_op() -> None:
    scene = Scene()
    before = scene.node.driver_pods[0].uid
    scene.people.delete_driver_pod(NODE)
    scene.let(60)
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
    scene = Scene()
    scene.do(scene.slot("driver", Idle(proven=proven)))
    scene.people.delete_driver_pod(NODE)
    scene.let(100)
    (pod,) = scene.node.driver_pods
    assert scene.machine.drivers[pod.uid].phase is Phase.AT_GATE


def test_rule_3_a_swap_that_began_erases_what_was_proven() -> None:
    scene = Scene(world=Steady(oddities=(Oddity(unload=Ending(None)),)))
    moved(scene)
    scene.do(scene.slot("driver", SWAP))
    assert scene.machine.agents["driver"].proven is None


def test_rule_3_an_agent_that_cannot_read_its_slot_keeps_the_gate_shut() -> None:
    scene = Scene(world=Steady(booting=20.0))
    scene.faults.bus(False)
    scene.faults.reboot(NODE)
    scene.let(300)
    (pod,) = scene.node.driver_pods
    assert scene.machine.drivers[pod.uid].phase is Phase.AT_GATE
    scene.faults.bus(True)
    scene.let(60)
    assert scene.node.driver_pods[0].ready


def test_it_stops_before_what_cannot_be_taken_back_when_the_bus_is_away() -> None:
    scene = Scene(world=Steady(unloading=3.0, pulling=20.0))
    moved(scene)
    scene.do(scene.slot("driver", SWAP))
    scene.let(4)
    assert scene.machine.loaded is None
    scene.faults.bus(False)
    scene.let(100)
    (pod,) = scene.node.driver_pods
    assert scene.machine.drivers[pod.uid].phase is Phase.AT_GATE
    scene.faults.bus(True)
    scene.let(60)
    assert scene.result("driver").outcome is Outcome.DONE


def test_while_anything_holds_the_devices_the_modules_stay() -> None:
    scene = Scene(host_processes=2)
    before = scene.node.loaded
    moved(scene)
    scene.do(scene.slot("driver", SWAP))
    scene.let(60)
    progress = scene.node.components["driver"].progress
    assert progress is not None
    assert (progress.phase, progress.detail) == ("unload", "in use: 2 processes of the host")
    assert scene.node.loaded == before
    scene.people.host_processes(NODE, 0)
    scene.let(60)
    assert scene.result("driver").outcome is Outcome.DONE


def test_busy_until_the_deadline_is_a_failure_that_names_who() -> None:
    scene = Scene(tenants=(Tenant(name="train", stops=None),))
    moved(scene)
    scene.do(scene.slot("driver", SWAP))
    scene.let(140)
    result = scene.result("driver")
    assert (result.outcome, result.code, result.message) == (
        Outcome.FAILED, "busy", "pod work/train"
    )  # fmt: skip
    assert 120 < result.finished - result.started < 130
    assert set(steps(scene)) == {"started", "unload: busy, pod work/train", "pod work/train"}


def test_our_own_components_hold_them_too_until_they_are_quiet() -> None:
    scene = Scene()
    scene.until_gone(scene.move())
    scene.do(scene.slot("driver", SWAP))
    scene.let(20)
    progress = scene.node.components["driver"].progress
    assert progress is not None
    assert progress.detail == "in use: plugin (ours), telemetry (ours), discovery (ours)"


def test_with_keep_the_modules_stay() -> None:
    alike = {target: {VARIANT: build(target, install_digest="same")} for target in (OLD, NEW)}
    scene = Scene(pools=(pool(rollout=None, builds=alike),))
    before = scene.node.loaded
    old = scene.move()
    scene.until_gone(old)
    kept_swap = Swap(label=NEW_LABEL, install_digest="same", old_pod_uid=old, keep=True)
    scene.do(scene.slot("driver", kept_swap))
    scene.let(60)
    assert scene.result("driver").outcome is Outcome.DONE
    assert scene.node.loaded == before
    assert scene.stage.violations == ()


def test_without_a_label_the_driver_is_removed() -> None:
    scene = Scene()
    quiet(scene)
    scene.until_gone(scene.move(""))
    scene.do(scene.slot("driver", Swap(label="")))
    scene.let(10)
    assert scene.result("driver").outcome is Outcome.DONE
    assert scene.node.loaded is None
    assert scene.node.driver_pods == ()


def test_an_op_that_is_replaced_ends_as_superseded() -> None:
    scene = Scene(host_processes=1)
    moved(scene)
    scene.do(scene.slot("driver", SWAP))
    scene.let(5)
    scene.do(scene.slot("driver", Idle(), op=2))
    ended = [
        (each.op, each.result.outcome.value)
        for each in scene.stage.journal().entries or ()
        if each.component == "driver" and each.phase is EntryPhase.FINISHED and each.result
    ]
    assert ended == [(1, "superseded"), (2, "done")]
    scene.people.host_processes(NODE, 0)
    scene.let(100)
    assert scene.node.loaded is not None, "nothing goes on with an op that ended"


def test_a_call_in_the_kernel_ends_although_its_op_did() -> None:
    scene = Scene(world=Steady(unloading=10.0))
    moved(scene)
    scene.do(scene.slot("driver", SWAP))
    scene.do(scene.slot("driver", Idle(), op=2))
    scene.let(20)
    assert scene.node.loaded is None
    (pod,) = scene.node.driver_pods
    assert scene.machine.drivers[pod.uid].phase is Phase.AT_GATE


def test_after_a_restart_of_its_agent_a_swap_goes_on_once() -> None:
    scene = Scene(world=Steady(pulling=30.0))
    moved(scene)
    scene.do(scene.slot("driver", SWAP))
    scene.faults.agent_restarts(NODE, "driver")
    scene.let(60)
    assert scene.result("driver").outcome is Outcome.DONE
    assert steps(scene).count("started") == 1
    assert steps(scene).count("unload: ok") == 1


def test_without_its_journal_the_answers_under_run_take_its_place() -> None:
    scene = Scene(world=Steady(loading=30.0))
    moved(scene)
    scene.do(scene.slot("driver", SWAP))
    scene.let(10)
    forgot = scene.stage.now
    scene.faults.agent_restarts(NODE, "driver", forgets=True)
    scene.let(60)
    assert scene.result("driver").outcome is Outcome.DONE
    assert steps(scene).count("unload: ok") == 1
    assert scene.stage.violations == ()
    (lost,) = scene.stage.journal().forgot
    assert (lost.component, lost.time) == ("driver", forgot)


@pytest.fixture
def host() -> Scene:
    """A node of a pool with the host method."""
    scene = Scene(pools=(replace(on_host(pool(rollout=None)), method=Method.HOST),))
    quiet(scene)
    return scene


def test_an_installation_unloads_and_loads(host: Scene) -> None:
    before = host.node.loaded
    host.do(host.slot("driver", Install(label=NEW_LABEL, install_digest=install_of(NEW))))
    host.let(60)
    assert host.result("driver").outcome is Outcome.DONE
    assert host.node.loaded not in (before, None)
    assert host.node.driver_pods == ()


def test_an_installer_that_fails_is_told(host: Scene) -> None:
    host.stage.state.world = Steady(oddities=(Oddity(load=Ending(7.0, 1)),))
    host.do(host.slot("driver", Install(label=NEW_LABEL, install_digest=install_of(NEW))))
    host.let(60)
    result = host.result("driver")
    assert (result.outcome, result.code) == (Outcome.FAILED, "driver-start")
    assert host.node.loaded is None


def test_what_is_installed_already_is_not_installed_again(host: Scene) -> None:
    before = host.node.loaded
    host.do(host.slot("driver", Install(label=OLD_LABEL, install_digest=install_of(OLD))))
    assert host.result("driver").outcome is Outcome.DONE
    assert host.node.loaded == before
