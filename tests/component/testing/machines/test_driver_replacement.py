"""Driver replacement on a simulated machine, with the rendered DaemonSets."""

from pathlib import Path

import pytest

from libs.forecast.world import ProcessEnd, TimeSpan
from libs.host import driver_files, gate, system
from libs.host.holders import holders
from libs.host.machine import InlineOffload
from libs.host.tree import Tree
from libs.kube.resources import NODES as WHOLE_NODES
from libs.testing.cluster.views import JOBS
from libs.testing.machines.state import IncidentKind
from libs.testing.simulation import Sim
from libs.testing.stage.worlds import SteadyWorld, WorldOverride
from tests.component.testing.cluster.world import run_world
from tests.component.testing.machines.world import (
    NEW,
    OLD,
    MachineWorld,
    machine_world,
    with_gate_agent,
)


def incidents(world: MachineWorld) -> list[IncidentKind]:
    return [each.kind for each in world.machine.incidents]


def test_the_first_driver_comes_up_when_its_gate_is_answered(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        model = SteadyWorld(
            pull_seconds=2.0, init_seconds=1.0, load_seconds=20.0, ready_seconds=1.0
        )
        async with machine_world(sim, tmp_path, model=model) as world:
            await world.select_driver(OLD)
            await world.town.sleep(600)
            pod = (await world.driver_pods())[OLD]
            assert [
                each.state.running is not None for each in pod.status.init_container_statuses
            ] == [
                False,
                True,
            ]
            async with with_gate_agent(world):
                # Its pull, its load, its readiness; a look of the keeper, and one of the gate.
                assert 23.0 <= await world.wait_for_driver(OLD) <= 25.0
            assert world.machine.driver is not None
            assert world.machine.driver.version == OLD
            assert incidents(world) == []

    run_world(main)


def test_a_label_moves_and_the_next_driver_waits_for_the_job_and_the_kernel(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        model = SteadyWorld(job_seconds=10_000.0, unload_seconds=3.0)
        async with (
            machine_world(sim, tmp_path, model=model) as world,
            with_gate_agent(world) as keeper,
        ):
            await world.install_first_driver()
            await world.job("train")
            (job, daemon) = sorted(holders(Tree(tmp_path)), key=lambda one: one.comm, reverse=True)
            assert (job.comm, daemon.comm) == ("python3", "nvidia-persiste")
            assert job.pod_uid == (await world.town.pod("train")).metadata.uid
            await world.select_driver(NEW)
            await world.town.sleep(1)
            assert set(await world.driver_pods()) == {OLD, NEW}
            await world.town.sleep(100)
            assert list(await world.driver_pods()) == [NEW]
            assert len(keeper.busy) > 90
            assert world.machine.driver is not None
            assert world.machine.driver.version == OLD
            await world.town.delete(JOBS, "train", policy="Foreground")
            took = await world.wait_for_driver(NEW)
            assert 3.0 + 20.0 < took < 3.0 + 20.0 + 10.0
            assert world.machine.driver.version == NEW
            digest = (await world.driver_pods())[NEW].metadata.annotations[
                "sluice.dev/install-digest"
            ]
            assert driver_files.installed_digest(Tree(tmp_path)) == digest
            assert incidents(world) == []

    run_world(main)


def test_an_agent_that_does_not_quiesce_blocks_the_unload(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        async with machine_world(sim, tmp_path) as world, with_gate_agent(world) as keeper:
            await world.install_first_driver()
            telemetry = world.machine.host(InlineOffload(), comm="sluice-telemetry")
            await telemetry.offload.do(telemetry.gpus.open)
            await world.select_driver(NEW)
            await world.town.sleep(60)
            assert set(keeper.busy) == {"delete_module nvidia: Resource temporarily unavailable"}
            await telemetry.offload.do(telemetry.gpus.close)
            await world.wait_for_driver(NEW)
            assert (await telemetry.offload.do(telemetry.gpus.open)).driver_version == NEW
            assert incidents(world) == []

    run_world(main)


@pytest.mark.parametrize("seconds", [4.0, 15.0, 40.0])
def test_a_reboot_closes_the_gate_and_the_driver_comes_up_in_the_new_boot(
    tmp_path: Path, seconds: float
) -> None:
    async def main(sim: Sim) -> None:
        tree = Tree(tmp_path)
        async with machine_world(sim, tmp_path) as world:
            async with with_gate_agent(world):
                await world.install_first_driver()
                await world.select_driver(NEW)
                await world.town.sleep(seconds)
                before = world.machine.boot_id
                assert await world.machine.reboot(kernel="5.15.0-140-generic")
                assert world.machine.driver is None
            await world.town.sleep(60)
            info = (await world.town.kube.get(WHOLE_NODES, "n1")).status.node_info
            assert info.boot_id == world.machine.boot_id == system.boot_id(tree) != before
            assert info.kernel_version == "5.15.0-140-generic"
            pods = await world.driver_pods()
            assert list(pods) == [NEW]
            assert not pods[NEW].ready
            assert [one.pod_uid for one in gate.list_requests(tree)] == [pods[NEW].metadata.uid]
            assert gate.list_answers(tree) == ()
            async with with_gate_agent(world):
                await world.wait_for_driver(NEW)
            assert incidents(world) == []

    run_world(main)


def test_a_driver_that_fails_restarts_in_place_without_passing_the_gate(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        async with machine_world(sim, tmp_path) as plain:
            bad = plain.label(NEW)
            plain.machine.power_off()
        odd = WorldOverride(driver=bad, load=ProcessEnd(20.0, 1), first_attempts=2)
        async with machine_world(sim, tmp_path, model=SteadyWorld(overrides=(odd,))) as world:
            async with with_gate_agent(world) as keeper:
                await world.select_driver(NEW)
                await world.wait_for_driver(NEW, within=300.0)
                pod = (await world.driver_pods())[NEW]
                assert [each.restart_count for each in pod.status.container_statuses] == [2]
                assert [each.restart_count for each in pod.status.init_container_statuses] == [0, 0]
                assert len(keeper.admitted) == 1
            assert incidents(world) == []

    run_world(main)


def test_the_same_installation_in_another_pod_keeps_the_modules_under_a_job(
    tmp_path: Path,
) -> None:
    async def main(sim: Sim) -> None:
        model = SteadyWorld(load_seconds=20.0)
        async with (
            machine_world(sim, tmp_path, model=model) as world,
            with_gate_agent(world, keeps=True) as keeper,
        ):
            await world.install_first_driver(NEW)
            job = world.machine.start_process(7)
            first = (await world.driver_pods())[NEW]
            await world.delete_pod(first)
            await world.town.sleep(12)
            (second,) = (await world.driver_pods()).values()
            assert second.ready
            assert second.metadata.uid != first.metadata.uid
            assert len(keeper.admitted) == 2
            assert job in [one.pid for one in holders(Tree(tmp_path))]
            assert incidents(world) == []

    run_world(main)


def test_a_gate_opened_too_early_is_a_violation(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        async with machine_world(sim, tmp_path, model=SteadyWorld(stop_seconds=10.0)) as world:
            async with with_gate_agent(world, careless=True):
                await world.install_first_driver()
                await world.select_driver(NEW)
                await world.town.sleep(60)
            assert incidents(world)[0] is IncidentKind.TWO_DRIVERS
            assert IncidentKind.OVER_ANOTHER in incidents(world)

    run_world(main)


def test_a_reconnected_kubelet_ends_old_pods_before_it_starts_new_ones(
    tmp_path: Path,
) -> None:
    async def main(sim: Sim) -> None:
        async with machine_world(sim, tmp_path) as world, with_gate_agent(world, careless=True):
            await world.install_first_driver()
            kubelet = world.town.machine("n1")
            kubelet.disconnect()
            first = (await world.driver_pods())[OLD]
            await world.delete_pod(first, grace=0)
            await world.town.sleep(10)
            (holder,) = holders(Tree(tmp_path))
            assert holder.pod_uid == first.metadata.uid
            kubelet.reconnect()
            await world.wait_for_driver(OLD)
            (holder,) = holders(Tree(tmp_path))
            assert holder.pod_uid == (await world.driver_pods())[OLD].metadata.uid
            assert incidents(world) == []

    run_world(main)


def test_a_pod_object_goes_after_its_processes(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        slow = SteadyWorld(
            overrides=(WorldOverride(container="nvidia-driver-ctr", stop=TimeSpan(25.0)),)
        )
        async with (
            machine_world(sim, tmp_path, model=slow) as world,
            with_gate_agent(world) as keeper,
        ):
            await world.install_first_driver()
            begun = world.town.now
            await world.select_driver(NEW)
            await world.wait_for_driver(NEW)
            assert 25.0 <= keeper.admitted[1] - begun <= 31.0
            assert incidents(world) == []

    run_world(main)
