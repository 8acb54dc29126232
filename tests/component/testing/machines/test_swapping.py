"""A driver gives way to the next on a simulated machine, with the DaemonSets that are rendered."""

from pathlib import Path

import pytest

from libs.forecast.world import RUNS_ON, Ending, Oddity, Span, Steady
from libs.host import driver_files, gate, system
from libs.host.access import Inline
from libs.host.holders import holders
from libs.host.tree import Tree
from libs.kube.resources import NODES as WHOLE_NODES
from libs.testing.cluster.kinds import JOBS
from libs.testing.errors import SimError
from libs.testing.loop import Sim
from libs.testing.machines.incidents import Never
from tests.component.testing.cluster.town import NAMESPACE, play
from tests.component.testing.machines.yard import NEW, OLD, Yard, kept, yard


def incidents(there: Yard) -> list[Never]:
    return [each.kind for each in there.machine.oddities]


def test_the_first_driver_comes_up_when_its_gate_is_answered(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        model = Steady(pulling=2.0, preparing=1.0, loading=20.0, starting=1.0)
        async with yard(sim, tmp_path, model=model) as there:
            await there.want(OLD)
            await there.town.sleep(600)
            pod = (await there.driver_pods())[OLD]
            assert [
                each.state.running is not None for each in pod.status.init_container_statuses
            ] == [
                False,
                True,
            ]
            async with kept(there):
                # Its pull, its load, its readiness; a look of the keeper, and one of the gate.
                assert 23.0 <= await there.runs(OLD) <= 25.0
            assert there.machine.driver is not None
            assert there.machine.driver.version == OLD
            assert incidents(there) == []

    play(main)


def test_a_label_moves_and_the_next_driver_waits_for_the_job_and_the_kernel(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        model = Steady(working=10_000.0, unloading=3.0)
        async with yard(sim, tmp_path, model=model) as there, kept(there) as keeper:
            await there.bring_up()
            await there.job("train")
            (job, daemon) = sorted(holders(Tree(tmp_path)), key=lambda one: one.comm, reverse=True)
            assert (job.comm, daemon.comm) == ("python3", "nvidia-persiste")
            assert job.pod_uid == (await there.town.pod("train")).metadata.uid
            await there.want(NEW)
            await there.town.sleep(1)
            assert set(await there.driver_pods()) == {OLD, NEW}
            await there.town.sleep(100)
            assert list(await there.driver_pods()) == [NEW]
            assert len(keeper.busy) > 90
            assert there.machine.driver is not None
            assert there.machine.driver.version == OLD
            await there.town.delete(JOBS, "train", policy="Foreground")
            took = await there.runs(NEW)
            assert 3.0 + 20.0 < took < 3.0 + 20.0 + 10.0
            assert there.machine.driver.version == NEW
            digest = (await there.driver_pods())[NEW].metadata.annotations[
                "sluice.dev/install-digest"
            ]
            assert driver_files.installed_digest(Tree(tmp_path)) == digest
            assert incidents(there) == []

    play(main)


def test_an_agent_that_does_not_quiesce_is_seen_by_the_kernel(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        async with yard(sim, tmp_path) as there, kept(there) as keeper:
            await there.bring_up()
            telemetry = there.machine.host(Inline(), comm="sluice-telemetry")
            await telemetry.access.do(telemetry.gpus.open)
            await there.want(NEW)
            await there.town.sleep(60)
            assert set(keeper.busy) == {"delete_module nvidia: Resource temporarily unavailable"}
            await telemetry.access.do(telemetry.gpus.close)
            await there.runs(NEW)
            assert (await telemetry.access.do(telemetry.gpus.open)).driver_version == NEW
            assert incidents(there) == []

    play(main)


@pytest.mark.parametrize("seconds", [4.0, 15.0, 40.0])
def test_a_reboot_midway_shuts_the_gate_and_the_driver_comes_up_in_the_new_boot(
    tmp_path: Path, seconds: float
) -> None:
    async def main(sim: Sim) -> None:
        tree = Tree(tmp_path)
        async with yard(sim, tmp_path) as there:
            async with kept(there):
                await there.bring_up()
                await there.want(NEW)
                await there.town.sleep(seconds)
                before = there.machine.boot_id
                assert await there.machine.reboot(kernel="5.15.0-140-generic")
                assert there.machine.driver is None
            await there.town.sleep(60)
            info = (await there.town.kube.get(WHOLE_NODES, "n1")).status.node_info
            assert info.boot_id == there.machine.boot_id == system.boot_id(tree) != before
            assert info.kernel_version == "5.15.0-140-generic"
            pods = await there.driver_pods()
            assert list(pods) == [NEW]
            assert not pods[NEW].ready
            assert [one.pod_uid for one in gate.asked(tree)] == [pods[NEW].metadata.uid]
            assert gate.answered(tree) == ()
            async with kept(there):
                await there.runs(NEW)
            assert incidents(there) == []

    play(main)


def test_a_driver_that_fails_restarts_in_place_without_passing_the_gate(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        async with yard(sim, tmp_path) as plain:
            bad = plain.label(NEW)
            plain.machine.power_off()
        odd = Oddity(driver=bad, load=Ending(20.0, 1), attempts=2)
        async with yard(sim, tmp_path, model=Steady(oddities=(odd,))) as there:
            async with kept(there) as keeper:
                await there.want(NEW)
                await there.runs(NEW, within=300.0)
                pod = (await there.driver_pods())[NEW]
                assert [each.restart_count for each in pod.status.container_statuses] == [2]
                assert [each.restart_count for each in pod.status.init_container_statuses] == [0, 0]
                assert len(keeper.let_in) == 1
            assert incidents(there) == []

    play(main)


def test_a_driver_that_hangs_is_never_ready_and_can_be_replaced(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        async with yard(sim, tmp_path) as plain:
            bad = plain.label(NEW)
            plain.machine.power_off()
        model = Steady(oddities=(Oddity(driver=bad, load=RUNS_ON),))
        async with yard(sim, tmp_path, model=model) as there, kept(there):
            await there.want(NEW)
            await there.town.sleep(600)
            pod = (await there.driver_pods())[NEW]
            assert not pod.ready
            assert [each.state.running is not None for each in pod.status.container_statuses] == [
                True
            ]
            await there.want(OLD)
            await there.runs(OLD)
            assert incidents(there) == []

    play(main)


def test_the_same_installation_in_another_pod_keeps_the_modules_under_a_job(
    tmp_path: Path,
) -> None:
    async def main(sim: Sim) -> None:
        model = Steady(loading=20.0)
        async with yard(sim, tmp_path, model=model) as there, kept(there, keeps=True) as keeper:
            await there.bring_up(NEW)
            job = there.machine.occupy(7)
            first = (await there.driver_pods())[NEW]
            await there.delete_pod(first)
            await there.town.sleep(12)
            (second,) = (await there.driver_pods()).values()
            assert second.ready
            assert second.metadata.uid != first.metadata.uid
            assert len(keeper.let_in) == 2
            assert job in [one.pid for one in holders(Tree(tmp_path))]
            assert incidents(there) == []

    play(main)


def test_a_careless_keeper_is_found_out(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        async with yard(sim, tmp_path, model=Steady(stopping=10.0)) as there:
            async with kept(there, careless=True):
                await there.bring_up()
                await there.want(NEW)
                await there.town.sleep(60)
            assert incidents(there)[0] is Never.TWO_DRIVERS
            assert Never.OVER_ANOTHER in incidents(there)

    play(main)


def test_a_kubelet_that_was_deaf_ends_what_is_gone_before_it_starts_what_is_new(
    tmp_path: Path,
) -> None:
    async def main(sim: Sim) -> None:
        async with yard(sim, tmp_path) as there, kept(there, careless=True):
            await there.bring_up()
            kubelet = there.town.machine("n1")
            kubelet.silence()
            first = (await there.driver_pods())[OLD]
            await there.delete_pod(first, grace=0)
            await there.town.sleep(10)
            (holder,) = holders(Tree(tmp_path))
            assert holder.pod_uid == first.metadata.uid
            kubelet.speak()
            await there.runs(OLD)
            (holder,) = holders(Tree(tmp_path))
            assert holder.pod_uid == (await there.driver_pods())[OLD].metadata.uid
            assert incidents(there) == []

    play(main)


def test_a_pod_that_leaves_has_left_the_machine_when_its_object_goes(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        slow = Steady(oddities=(Oddity(container="nvidia-driver-ctr", stop=Span(25.0)),))
        async with yard(sim, tmp_path, model=slow) as there, kept(there) as keeper:
            await there.bring_up()
            begun = there.town.now
            await there.want(NEW)
            await there.runs(NEW)
            assert 25.0 <= keeper.let_in[1] - begun <= 31.0
            assert incidents(there) == []

    play(main)


def test_a_kubelet_that_is_rebooted_without_its_machine_is_a_mistake(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        async with yard(sim, tmp_path) as there:
            await there.want(NEW)
            await there.town.sleep(10)
            await there.town.machine("n1").reboot()
            await there.town.sleep(10)

    with pytest.raises(BaseExceptionGroup) as caught:
        play(main)
    assert caught.group_contains(SimError, match="reboot the machine, not its kubelet")


def test_the_same_seed_is_the_same_story_to_the_last_write(tmp_path: Path) -> None:
    def story(root: Path, seed: int) -> list[str]:
        async def main(sim: Sim) -> list[str]:
            model = Steady(seed=seed, spread=0.5)
            async with yard(sim, root, model=model) as there:
                async with kept(there):
                    await there.bring_up()
                    await there.want(NEW)
                    await there.town.sleep(10)
                    await there.machine.reboot()
                async with kept(there):
                    await there.runs(NEW)
                return [f"{each.time} {each.user} {each.verb} {each.name} {each.uid}"
                        for each in there.town.journal(namespace=NAMESPACE)]  # fmt: skip

        return play(main, seed=seed)

    first = story(tmp_path / "a", 7)
    assert len(first) > 20
    assert story(tmp_path / "b", 7) == first
    assert story(tmp_path / "c", 8) != first
