"""Driver pods: creation, start and end, and what the gate prevents."""

from itertools import pairwise

from libs.contracts.paths import SAFE_LOAD
from libs.forecast.stage import driver_pods
from libs.forecast.stage.objects import DriverPodPhase
from libs.forecast.world import NEVER, ProcessEnd
from libs.rollout.decision import DeleteDriverPod, PodRef
from libs.rollout.views.machine import DriverPod
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.unit.forecast.stage.scenario import NEW_LABEL, NODE, OLD_LABEL, StageScenario


def pods(scenario: StageScenario) -> dict[str, DriverPod]:
    return {pod.label: pod for pod in scenario.node.driver_pods}


def ref(pod: DriverPod) -> PodRef:
    return PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)


def test_after_a_label_change_both_pods_exist_until_the_old_one_ends() -> None:
    scenario = StageScenario(world=SteadyWorld(stop_seconds=20.0))
    old = scenario.move_label()
    assert [(pod.uid == old, pod.deleting) for pod in scenario.node.driver_pods] == [
        (True, True), (False, False)
    ]  # fmt: skip
    scenario.run_until_gone(old)
    assert 20.0 < scenario.elapsed < 20.5
    assert [pod.label for pod in scenario.node.driver_pods] == [NEW_LABEL]


def test_a_pod_that_ignores_the_stop_signal_ends_after_its_grace_period() -> None:
    scenario = StageScenario(world=SteadyWorld(overrides=(WorldOverride(stop=NEVER),)))
    old = scenario.move_label()
    scenario.run_until_gone(old)
    assert 30.0 < scenario.elapsed < 30.5


def test_a_new_pod_waits_at_the_gate() -> None:
    scenario = StageScenario()
    scenario.run_until_gone(scenario.move_label())
    scenario.advance(60)
    (pod,) = scenario.node.driver_pods
    assert (pod.started, pod.ready, pod.label) == (None, False, NEW_LABEL)
    assert scenario.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE
    assert scenario.node.gate is not None
    assert (scenario.node.gate.waiting_pod_uid, scenario.node.gate.admitted_pod_uid) == (
        pod.uid,
        "",
    )


def test_a_deleted_pod_is_replaced_after_its_end() -> None:
    scenario = StageScenario(world=SteadyWorld(stop_seconds=10.0))
    before = pods(scenario)[OLD_LABEL]
    scenario.carry_out(DeleteDriverPod(pod=ref(before)))
    assert [pod.uid for pod in scenario.node.driver_pods] == [before.uid]
    scenario.run_until_gone(before.uid)
    scenario.advance(0.5)
    (after,) = scenario.node.driver_pods
    assert after.uid != before.uid
    assert after.label == OLD_LABEL


def test_a_repeated_deletion_does_not_delete_the_next_pod() -> None:
    scenario = StageScenario()
    before = pods(scenario)[OLD_LABEL]
    scenario.users.delete_driver_pod(NODE)
    scenario.run_until_gone(before.uid)
    scenario.advance(1)
    (after,) = scenario.node.driver_pods
    scenario.carry_out(DeleteDriverPod(pod=ref(before)))
    assert [pod.uid for pod in scenario.node.driver_pods if not pod.deleting] == [after.uid]


def test_a_label_without_daemon_set_has_no_pod() -> None:
    scenario = StageScenario()
    scenario.run_until_gone(scenario.move_label("no-such-label"))
    scenario.advance(10)
    assert scenario.node.driver_pods == ()
    assert scenario.node.loaded is not None


def test_a_failed_image_pull_is_reported() -> None:
    scenario = StageScenario(
        world=SteadyWorld(overrides=(WorldOverride(workload=NEW_LABEL, pull=NEVER),))
    )
    scenario.run_until_gone(scenario.move_label())
    scenario.advance(100)
    assert pods(scenario)[NEW_LABEL].trouble.startswith("ImagePullBackOff")


def admit(scenario: StageScenario) -> DriverPod:
    (pod,) = (
        driver
        for driver in scenario.machine.drivers.values()
        if driver.phase is DriverPodPhase.AT_GATE
    )
    driver_pods.admit(scenario.stage.state, scenario.machine, pod)
    scenario.advance(0.5)
    return pods(scenario)[pod.view.label]


def test_a_crashing_driver_is_restarted_with_a_growing_back_off() -> None:
    crash = WorldOverride(driver=NEW_LABEL, load=ProcessEnd(5.0, 1), first_attempts=3)
    scenario = StageScenario(world=SteadyWorld(overrides=(crash,)))
    scenario.run_until_gone(scenario.move_label())
    scenario.machine.loaded = None
    scenario.advance(10)
    uid = admit(scenario).uid
    starts: list[float] = []
    while not pods(scenario)[NEW_LABEL].ready:
        started = pods(scenario)[NEW_LABEL].started
        if started is not None and started not in starts:
            starts.append(started)
        scenario.stage.advance()
    waits = [round(later - earlier) for earlier, later in pairwise(starts)]
    assert waits == [15, 25, 45]
    assert pods(scenario)[NEW_LABEL].restarts == 3
    assert pods(scenario)[NEW_LABEL].uid == uid
    assert scenario.stage.violations == ()


def test_two_drivers_on_one_machine_are_a_violation() -> None:
    scenario = StageScenario(world=SteadyWorld(stop_seconds=20.0))
    scenario.move_label()
    scenario.advance(5)
    admit(scenario)
    (_, _, text), *_ = scenario.stage.violations
    assert "while" in text


def test_a_driver_over_the_modules_of_another_is_a_violation() -> None:
    scenario = StageScenario()
    scenario.run_until_gone(scenario.move_label())
    scenario.advance(5)
    admit(scenario)
    ((_, name, text),) = scenario.stage.violations
    assert name == NODE
    assert "over the modules of install-target-old" in text


def test_after_a_reboot_the_same_pod_passes_the_gate_again() -> None:
    scenario = StageScenario(world=SteadyWorld(boot_seconds=60.0))
    before = pods(scenario)[OLD_LABEL]
    boot = scenario.node.boot_id
    scenario.faults.reboot(NODE)
    scenario.advance(61)
    assert scenario.node.boot_id != boot
    assert not scenario.node.modules_reported
    after = pods(scenario)[OLD_LABEL]
    assert (after.uid, after.started, after.restarts) == (before.uid, None, 1)
    scenario.advance(40)
    assert pods(scenario)[OLD_LABEL].ready, "the slot of a done node opens the gate"
    assert scenario.node.loaded is not None


def test_a_driver_that_waits_for_safe_load_loads_when_released() -> None:
    scenario = StageScenario()
    scenario.users.set_safe_load(NODE)
    before = pods(scenario)[OLD_LABEL]
    scenario.users.delete_driver_pod(NODE)
    scenario.run_until_gone(before.uid)
    scenario.advance(200)
    waiting = pods(scenario)[OLD_LABEL]
    assert (waiting.started is not None, waiting.ready) == (True, False)
    scenario.users.edit(NODE, {SAFE_LOAD: None})
    scenario.advance(30)
    assert pods(scenario)[OLD_LABEL].ready
