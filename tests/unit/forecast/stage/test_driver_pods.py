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


def pods(scene: StageScenario) -> dict[str, DriverPod]:
    return {pod.label: pod for pod in scene.node.driver_pods}


def ref(pod: DriverPod) -> PodRef:
    return PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)


def test_a_label_that_moves_has_both_pods_side_by_side_until_the_old_one_ended() -> None:
    scene = StageScenario(world=SteadyWorld(stop_seconds=20.0))
    old = scene.move_label()
    assert [(pod.uid == old, pod.deleting) for pod in scene.node.driver_pods] == [
        (True, True), (False, False)
    ]  # fmt: skip
    scene.run_until_gone(old)
    assert 20.0 < scene.elapsed < 20.5
    assert [pod.label for pod in scene.node.driver_pods] == [NEW_LABEL]


def test_a_pod_ends_with_its_grace_if_it_does_not_listen() -> None:
    scene = StageScenario(world=SteadyWorld(overrides=(WorldOverride(stop=NEVER),)))
    old = scene.move_label()
    scene.run_until_gone(old)
    assert 30.0 < scene.elapsed < 30.5


def test_a_new_pod_waits_at_the_gate_and_does_not_run() -> None:
    scene = StageScenario()
    scene.run_until_gone(scene.move_label())
    scene.advance(60)
    (pod,) = scene.node.driver_pods
    assert (pod.started, pod.ready, pod.label) == (None, False, NEW_LABEL)
    assert scene.machine.drivers[pod.uid].phase is DriverPodPhase.AT_GATE
    assert scene.node.gate is not None
    assert (scene.node.gate.waiting_pod_uid, scene.node.gate.admitted_pod_uid) == (pod.uid, "")


def test_a_deleted_pod_is_replaced_only_when_it_is_gone() -> None:
    scene = StageScenario(world=SteadyWorld(stop_seconds=10.0))
    before = pods(scene)[OLD_LABEL]
    scene.carry_out(DeleteDriverPod(pod=ref(before)))
    assert [pod.uid for pod in scene.node.driver_pods] == [before.uid]
    scene.run_until_gone(before.uid)
    scene.advance(0.5)
    (after,) = scene.node.driver_pods
    assert after.uid != before.uid
    assert after.label == OLD_LABEL


def test_a_deletion_names_its_pod_and_leaves_the_next_one_alone() -> None:
    scene = StageScenario()
    before = pods(scene)[OLD_LABEL]
    scene.users.delete_driver_pod(NODE)
    scene.run_until_gone(before.uid)
    scene.advance(1)
    (after,) = scene.node.driver_pods
    scene.carry_out(DeleteDriverPod(pod=ref(before)))
    assert [pod.uid for pod in scene.node.driver_pods if not pod.deleting] == [after.uid]


def test_a_label_without_daemon_set_has_no_pod() -> None:
    scene = StageScenario()
    scene.run_until_gone(scene.move_label("no-such-label"))
    scene.advance(10)
    assert scene.node.driver_pods == ()
    assert scene.node.loaded is not None


def test_a_failed_image_pull_is_reported() -> None:
    scene = StageScenario(
        world=SteadyWorld(overrides=(WorldOverride(workload=NEW_LABEL, pull=NEVER),))
    )
    scene.run_until_gone(scene.move_label())
    scene.advance(100)
    assert pods(scene)[NEW_LABEL].trouble.startswith("ImagePullBackOff")


def admit(scene: StageScenario) -> DriverPod:
    (pod,) = (
        each for each in scene.machine.drivers.values() if each.phase is DriverPodPhase.AT_GATE
    )
    driver_pods.admit(scene.stage.state, scene.machine, pod)
    scene.advance(0.5)
    return pods(scene)[pod.label]


def test_a_driver_that_crashes_is_started_again_in_place_later_each_time() -> None:
    crash = WorldOverride(driver=NEW_LABEL, load=ProcessEnd(5.0, 1), first_attempts=3)
    scene = StageScenario(world=SteadyWorld(overrides=(crash,)))
    scene.run_until_gone(scene.move_label())
    scene.machine.loaded = None
    scene.advance(10)
    uid = admit(scene).uid
    starts: list[float] = []
    while not pods(scene)[NEW_LABEL].ready:
        started = pods(scene)[NEW_LABEL].started
        if started is not None and started not in starts:
            starts.append(started)
        scene.stage.advance()
    waits = [round(later - earlier) for earlier, later in pairwise(starts)]
    assert waits == [15, 25, 45]
    assert pods(scene)[NEW_LABEL].restarts == 3
    assert pods(scene)[NEW_LABEL].uid == uid
    assert scene.stage.violations == ()


def test_two_drivers_on_one_machine_are_noticed() -> None:
    scene = StageScenario(world=SteadyWorld(stop_seconds=20.0))
    scene.move_label()
    scene.advance(5)
    admit(scene)
    (_, _, text), *_ = scene.stage.violations
    assert "while" in text


def test_a_driver_over_the_modules_of_another_is_noticed() -> None:
    scene = StageScenario()
    scene.run_until_gone(scene.move_label())
    scene.advance(5)
    admit(scene)
    ((_, name, text),) = scene.stage.violations
    assert name == NODE
    assert "over the modules of install-target-old" in text


def test_a_reboot_starts_the_same_pod_again_before_the_gate() -> None:
    scene = StageScenario(world=SteadyWorld(boot_seconds=60.0))
    before = pods(scene)[OLD_LABEL]
    boot = scene.node.boot_id
    scene.faults.reboot(NODE)
    scene.advance(61)
    assert scene.node.boot_id != boot
    assert not scene.node.modules_reported
    after = pods(scene)[OLD_LABEL]
    assert (after.uid, after.started, after.restarts) == (before.uid, None, 1)
    scene.advance(40)
    assert pods(scene)[OLD_LABEL].ready, "the slot of a done node opens the gate"
    assert scene.node.loaded is not None


def test_a_driver_that_waits_for_a_safe_load_loads_when_it_may() -> None:
    scene = StageScenario()
    scene.users.set_safe_load(NODE)
    before = pods(scene)[OLD_LABEL]
    scene.users.delete_driver_pod(NODE)
    scene.run_until_gone(before.uid)
    scene.advance(200)
    waiting = pods(scene)[OLD_LABEL]
    assert (waiting.started is not None, waiting.ready) == (True, False)
    scene.users.edit(NODE, {SAFE_LOAD: None})
    scene.advance(30)
    assert pods(scene)[OLD_LABEL].ready
