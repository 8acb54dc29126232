"""The containers of a driver pod, under a kubelet that records events."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from libs.forecast.world import RUNS_FOREVER, ProcessEnd
from libs.host import driver_files, gate
from libs.host.gate import GateAnswer
from libs.host.holders import containers, holders
from libs.host.tree import Tree
from libs.testing.cluster.views import Pod
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.machines.state import IncidentKind
from libs.testing.simulation import Sim, run
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.support import Story, played_by
from tests.unit.testing.machines.builders import (
    FakeKubelet,
    RunningContainer,
    driver_pod,
    machine,
    uid,
)

DRIVER, GATE, BESIDE = "nvidia-driver-ctr", "gate", "nvidia-peermem-ctr"


class DriverPodScenario:
    """One machine and its kubelet; the test admits pods at the gate."""

    def __init__(self, sim: Sim, world: SimulatedMachine, root: Path) -> None:
        self.sim = sim
        self.world = world
        self.tree = Tree(root)
        self._kubelet = FakeKubelet(world)
        self._running: list[RunningContainer] = []

    def start(self, pod: Pod, container: str = DRIVER, **more: Any) -> RunningContainer:
        running = self._kubelet.start(pod, container, **more)
        self._running.append(running)
        return running

    def admit(self, pod: Pod) -> None:
        (request,) = [
            pending
            for pending in gate.list_requests(self.tree)
            if pending.pod_uid == pod.metadata.uid
        ]
        answer = GateAnswer(pod_uid=request.pod_uid, label=request.label, at=self.sim.clock.now())
        gate.put_answer(self.tree, answer)

    async def pass_gate(self, pod: Pod) -> None:
        """Run the pod's gate container until it is admitted and ends."""
        gate_container = self.start(pod, GATE)
        await self.sleep(0)
        self.admit(pod)
        await self.sleep(1)
        assert gate_container.exits == [0]
        gate_container.end()

    async def start_driver(self, pod: Pod) -> RunningContainer:
        """Admit the pod, start its driver and wait until it is ready."""
        await self.pass_gate(pod)
        driver = self.start(pod)
        await self.sleep(60)
        return driver

    async def sleep(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    def end(self) -> None:
        for running in self._running:
            running.end()


def run_scenario(
    act: Story[DriverPodScenario], *, model: SteadyWorld | None = None, **more: Any
) -> None:
    """Run the scenario in virtual time, on a machine of its own."""

    async def main(sim: Sim) -> None:
        with tempfile.TemporaryDirectory(prefix="sluice-machine-") as folder:
            root = Path(folder)
            world = DriverPodScenario(sim, machine(sim, root, model=model, **more), root)
            try:
                await act(world)
            finally:
                world.end()

    run(main, seed=1)


in_scenario = played_by(run_scenario)


def incident_kinds(world: SimulatedMachine) -> list[IncidentKind]:
    return [incident.kind for incident in world.incidents]


@in_scenario
async def test_a_gate_waits_for_an_answer_to_its_pod_and_label(scene: DriverPodScenario) -> None:
    pod = driver_pod("new", label="d-2")
    running = scene.start(pod, GATE)
    await scene.sleep(100)
    (request,) = gate.list_requests(scene.tree)
    assert (request.pod_uid, request.label) == (uid("new"), "d-2")
    assert request.started == scene.sim.clock.now() - 100
    assert scene.world.gate_request == request
    assert len(containers(scene.tree, uid("new"))) == 1
    for answer in (
        GateAnswer(pod_uid=uid("old"), label="d-2", at=0.0),
        GateAnswer(pod_uid=uid("new"), label="d-1", at=0.0),
    ):
        gate.put_answer(scene.tree, answer)
        await scene.sleep(10)
    assert running.exits == []
    assert scene.world.gate_answers == ()
    scene.admit(pod)
    admitted_at = scene.sim.clock.now()
    await scene.sleep(1)
    assert running.exits == [0]
    assert containers(scene.tree, uid("new")) == ()
    assert scene.world.gate_request is None
    assert scene.world.gate_answers == (
        GateAnswer(pod_uid=uid("new"), label="d-2", at=admitted_at),
    )


@in_scenario
async def test_a_driver_of_the_same_installation_keeps_the_modules_under_a_job(
    scene: DriverPodScenario,
) -> None:
    old = await scene.start_driver(driver_pod("old", label="d-1"))
    job = scene.world.start_process(0, comm="python3")
    old.stop()
    await scene.sleep(1.1)
    old.end()
    pod = driver_pod("new", label="d-2", version="580.95.05")
    await scene.pass_gate(pod)
    new = scene.start(pod)
    await scene.sleep(1.1)
    assert new.readiness == [True]
    assert job in [holder.pid for holder in holders(scene.tree)]
    assert scene.world.driver is not None
    assert (scene.world.driver.label, scene.world.driver.pod_uid) == ("d-2", uid("new"))
    assert incident_kinds(scene.world) == []


@pytest.mark.parametrize("digest", ["i-2", ""])
@in_scenario
async def test_a_driver_over_the_modules_of_another_is_a_violation(
    scene: DriverPodScenario, digest: str
) -> None:
    old = await scene.start_driver(driver_pod("old"))
    old.end()
    job = scene.world.start_process(0)
    pod = driver_pod("new", label="d-2", digest=digest, version="570.86.15")
    await scene.pass_gate(pod)
    new = scene.start(pod)
    await scene.sleep(60)
    assert new.exits == [1]
    assert scene.world.driver is not None
    assert scene.world.driver.version == "580.95.05"
    new.end()
    scene.world.end_process(job)
    restarted = scene.start(pod, attempt=1)
    await scene.sleep(60)
    assert restarted.readiness == [True]
    assert scene.world.driver.version == "570.86.15"
    assert incident_kinds(scene.world) == [IncidentKind.OVER_ANOTHER] * 2
    assert "is to replace the modules of d-1" in str(scene.world.incidents[0])


@pytest.mark.parametrize(
    ("load", "exits", "seconds"), [(ProcessEnd(20.0, 1), [1], 21.0), (RUNS_FOREVER, [], 3600.0)]
)
def test_a_driver_that_does_not_load_exits_or_hangs_without_modules(
    load: ProcessEnd, exits: list[int], seconds: float
) -> None:
    async def act(scene: DriverPodScenario) -> None:
        pod = driver_pod("new", label="bad")
        await scene.pass_gate(pod)
        driver = scene.start(pod)
        await scene.sleep(seconds)
        assert (driver.exits, driver.readiness) == (exits, [])
        assert scene.world.driver is None
        assert driver_files.installed_digest(scene.tree) == ""

    run_scenario(act, model=SteadyWorld(overrides=(WorldOverride(driver="bad", load=load),)))


@in_scenario
async def test_a_stopped_driver_removes_its_ready_file_and_keeps_its_modules(
    scene: DriverPodScenario,
) -> None:
    driver = await scene.start_driver(driver_pod("old"))
    driver.stop()
    assert not scene.tree.exists(driver_files.READY)
    assert holders(scene.tree) == ()
    assert len(containers(scene.tree, uid("old"))) == 1
    await scene.sleep(1.1)
    assert driver.exits == [0]
    assert containers(scene.tree, uid("old")) == ()
    assert scene.world.driver is not None
    assert scene.tree.exists(f"{driver_files.ROOT}/usr/bin/nvidia-smi")
    assert driver_files.installed_digest(scene.tree) == "i-1"


@in_scenario
async def test_two_drivers_at_once_are_a_violation_and_the_second_exits(
    scene: DriverPodScenario,
) -> None:
    old, new = driver_pod("old"), driver_pod("new", label="d-2", digest="i-2")
    first = await scene.start_driver(old)
    await scene.pass_gate(new)
    second = scene.start(new)
    await scene.sleep(60)
    assert (first.exits, second.exits) == ([], [1])
    (incident,) = scene.world.incidents
    assert incident.kind is IncidentKind.TWO_DRIVERS
    assert str(incident) == (
        "two drivers: n1: gpu-operator/new started its driver while that of d-1 runs"
    )
    second.end()
    first.stop()
    await scene.sleep(1.1)
    assert incident_kinds(scene.world) == [IncidentKind.TWO_DRIVERS]


@in_scenario
async def test_a_driver_that_loads_behind_a_closed_gate_is_a_violation(
    scene: DriverPodScenario,
) -> None:
    scene.start(driver_pod("new"))
    await scene.sleep(0)
    assert incident_kinds(scene.world) == [IncidentKind.NOT_ADMITTED]


@in_scenario
async def test_a_gate_answer_is_valid_for_one_boot(scene: DriverPodScenario) -> None:
    pod = driver_pod("new")
    await scene.start_driver(pod)
    scene.end()
    await scene.world.reboot()
    assert scene.world.driver is None
    assert scene.tree.names("/run") == ()
    scene.start(pod)
    assert incident_kinds(scene.world) == [IncidentKind.NOT_ADMITTED]
