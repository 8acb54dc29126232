"""Containers with GPUs: they hold what they were given, for as long as the world says."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from libs.forecast.world import NEVER, RUNS_FOREVER, ProcessEnd, SteadyWorld, WorldOverride
from libs.host.holders import holders
from libs.host.tree import Tree
from libs.testing.machines.machine import SimulatedMachine
from libs.testing.machines.system import System
from libs.testing.simulation import Sim, run
from tests.unit.testing.machines.builders import (
    FakeKubelet,
    RunningContainer,
    job_pod,
    machine,
    uid,
)

Act = Callable[[Sim, SimulatedMachine, Callable[..., RunningContainer]], Coroutine[Any, Any, None]]


def play(
    root: Path, act: Act, *, model: SteadyWorld | None = None, driver: str = "580.95.05"
) -> None:
    async def main(sim: Sim) -> None:
        there = machine(sim, root, model=model, gpus=4, system=System(driver=driver))
        kubelet, running = FakeKubelet(there), list[RunningContainer]()

        def start(*args: Any, **more: Any) -> RunningContainer:
            running.append(kubelet.start(*args, **more))
            return running[-1]

        try:
            await act(sim, there, start)
        finally:
            for each in running:
                each.end()

    run(main, seed=1)


def devices(root: Path) -> dict[str, list[str]]:
    """By pod uid: the GPUs it has open."""
    found = holders(Tree(root))
    return {one.pod_uid: [path for path in one.devices if path[-1].isdigit()] for one in found}


def test_a_job_holds_its_gpus_until_it_ends(tmp_path: Path) -> None:
    async def act(
        sim: Sim, there: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        first = start(job_pod("a", gpus=2), "main")
        second = start(job_pod("b"), "main")
        await sim.clock.sleep(2)
        assert devices(tmp_path) == {
            uid("a"): ["/dev/nvidia0", "/dev/nvidia1"],
            uid("b"): ["/dev/nvidia2"],
        }
        (holder, _) = holders(Tree(tmp_path))
        assert "/dev/nvidia-uvm" in holder.devices
        await sim.clock.sleep(57.9)
        assert (first.readiness, first.exits) == ([True], [])
        await sim.clock.sleep(0.2)
        assert (first.exits, second.exits) == ([0], [0])
        assert devices(tmp_path) == {}

    play(tmp_path, act, model=SteadyWorld(job_seconds=60.0))


@pytest.mark.parametrize(("wanted", "driver"), [(1, ""), (5, "580.95.05")])
def test_work_that_gets_no_gpus_fails_at_once(tmp_path: Path, wanted: int, driver: str) -> None:
    async def act(
        sim: Sim, there: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        job = start(job_pod("a", gpus=wanted), "main")
        await sim.clock.sleep(0)
        assert (job.readiness, job.exits) == ([], [1])
        assert devices(tmp_path) == {}

    play(tmp_path, act, driver=driver)


def test_nobody_computes_where_somebody_else_does(tmp_path: Path) -> None:
    async def act(
        sim: Sim, there: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        pid = there.start_process(0, 1)
        start(job_pod("a"), "main")
        await sim.clock.sleep(0)
        assert devices(tmp_path)[uid("a")] == ["/dev/nvidia2"]
        there.end_process(pid)
        start(job_pod("b", gpus=2), "main")
        await sim.clock.sleep(0)
        assert devices(tmp_path)[uid("b")] == ["/dev/nvidia0", "/dev/nvidia1"]

    play(tmp_path, act)


def test_a_job_that_is_asked_to_stop_holds_until_it_has(tmp_path: Path) -> None:
    async def act(
        sim: Sim, there: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        job = start(job_pod("a"), "main")
        await sim.clock.sleep(5)
        job.stop()
        await sim.clock.sleep(0.9)
        assert devices(tmp_path) == {uid("a"): ["/dev/nvidia0"]}
        await sim.clock.sleep(0.2)
        assert job.exits == [0]
        assert devices(tmp_path) == {}

    play(tmp_path, act, model=SteadyWorld(stop_seconds=1.0))


def test_a_job_that_does_not_listen_holds_until_it_is_killed(tmp_path: Path) -> None:
    async def act(
        sim: Sim, there: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        job = start(job_pod("a"), "main")
        await sim.clock.sleep(5)
        job.stop()
        await sim.clock.sleep(30)
        assert devices(tmp_path) == {uid("a"): ["/dev/nvidia0"]}
        job.end()
        assert (job.exits, devices(tmp_path)) == ([], {})

    odd = WorldOverride(stop=NEVER, job=RUNS_FOREVER)
    play(tmp_path, act, model=SteadyWorld(overrides=(odd,)))


@pytest.mark.parametrize(
    ("policy", "container", "exits"),
    [("Never", "main", [7]), ("Always", "main", [8]), ("Never", "warm", [9])],
)
def test_each_kind_of_container_ends_as_its_own_question_says(
    tmp_path: Path, policy: str, container: str, exits: list[int]
) -> None:
    async def act(
        sim: Sim, there: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        work = start(job_pod("a", policy=policy), container)
        await sim.clock.sleep(30.1)
        assert work.exits == exits
        assert work.readiness == ([] if container == "warm" else [True])

    odd = WorldOverride(job=ProcessEnd(30.0, 7), run=ProcessEnd(30.0, 8), init=ProcessEnd(30.0, 9))
    play(tmp_path, act, model=SteadyWorld(overrides=(odd,)))


def test_one_that_ends_before_it_is_ready_was_never_ready(tmp_path: Path) -> None:
    async def act(
        sim: Sim, there: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        work = start(job_pod("a"), "main")
        await sim.clock.sleep(10)
        assert (work.readiness, work.exits) == ([], [3])

    play(
        tmp_path,
        act,
        model=SteadyWorld(ready_seconds=5.0, overrides=(WorldOverride(job=ProcessEnd(2.0, 3)),)),
    )


def test_containers_without_gpus_are_the_worlds(tmp_path: Path) -> None:
    async def act(
        sim: Sim, there: SimulatedMachine, start: Callable[..., RunningContainer]
    ) -> None:
        assert there.process_for(job_pod("a"), "logs") is None
        assert there.process_for(job_pod("a", gpus=0), "main") is None
        assert there.process_for(job_pod("a"), "nobody") is None

    play(tmp_path, act)
