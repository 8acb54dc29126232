"""Kubelets on a server: reboots, devices, occupants, evictions, and a server that troubles them."""

from typing import Any

from libs.forecast.world import NEVER, ProcessEnd, SteadyWorld, TimeSpan, WorldOverride
from libs.kube.client import Evicted, PodGone
from libs.kube.resources import NODES as WHOLE_NODES
from libs.testing.apiserver.faults import Cut, Fault, RefuseRequest
from libs.testing.cluster.kubelet.container_process import ContainerInstance, ProcessEvents
from libs.testing.cluster.kubelet.hardware import LEASES_IN
from libs.testing.cluster.views import DAEMON_SETS, LEASES, NODES, PODS, Pod
from libs.testing.simulation import Sim
from tests.component.testing.cluster.builders import daemon_set
from tests.component.testing.cluster.world import NAMESPACE, ClusterWorld, cluster_world, run_world


async def _info(there: ClusterWorld, node: str) -> tuple[str, str]:
    info = (await there.kube.get(WHOLE_NODES, node)).status.node_info
    return info.boot_id, info.kernel_version


def _bare(name: str, **spec: object) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "x:1"}], **spec},
    }


def test_a_reboot_gives_a_new_boot_id_and_restarts_every_container_in_place() -> None:
    async def main(sim: Sim) -> float:
        async with cluster_world(sim, model=SteadyWorld(boot_seconds=40.0)) as there:
            await there.create(DAEMON_SETS, daemon_set(init=("gate",)))
            await there.ready("d", 1)
            before, info = await there.pod("d"), await _info(there, "n1")
            begun = there.now
            assert await there.machine("n1").reboot(kernel="5.15.0-140-generic")
            await there.ready("d", 1)

            async def restarted() -> bool:
                pod = await there.pod("d")
                return pod.ready and pod.status.container_statuses[0].restart_count == 1

            await there.until(restarted)
            after = await there.pod("d")
            boot_id, kernel = await _info(there, "n1")
            assert boot_id != info[0]
            assert boot_id == there.machine("n1").boot_id
            assert (info[1], kernel) == ("5.15.0-139-generic", "5.15.0-140-generic")
            assert after.metadata.uid == before.metadata.uid
            assert after.status.init_container_statuses[0].restart_count == 1
            old, new = (pod.status.container_statuses[0] for pod in (before, after))
            assert old.container_id != new.container_id
            assert old.state.running is not None
            assert new.state.running is not None
            assert old.state.running.started_at < new.state.running.started_at
            return there.now - begun

    assert 42.0 <= run_world(main) <= 44.0


def test_a_machine_that_never_comes_back_says_so_and_stays_silent() -> None:
    async def main(sim: Sim) -> None:
        model = SteadyWorld(overrides=(WorldOverride(node="n1", first_attempts=1, boot=NEVER),))
        async with cluster_world(sim, model=model) as there:
            machine = there.machine("n1")
            info = await _info(there, "n1")
            assert await machine.reboot() is False
            machine.reconnect()
            await there.sleep(120)
            ready = (await there.node("n1")).condition("Ready")
            assert ready is not None
            assert ready.status == "Unknown"
            assert await _info(there, "n1") == info
            machine.power_on()
            await there.sleep(10)
            ready = (await there.node("n1")).condition("Ready")
            assert ready is not None
            assert ready.status == "True"
            assert (await _info(there, "n1"))[0] != info[0]

    run_world(main)


def test_devices_are_what_the_plugin_says_and_a_reboot_takes_them() -> None:
    async def main(sim: Sim) -> list[str]:
        async with cluster_world(sim, gpus=0, model=SteadyWorld(boot_seconds=10.0)) as there:
            counts = [(await there.node("n1")).status.allocatable["nvidia.com/gpu"]]
            machine = there.machine("n1")
            for count in (8, 7):
                machine.set_devices("nvidia.com/gpu", count)
                await there.sleep(1)
                counts.append((await there.node("n1")).status.allocatable["nvidia.com/gpu"])
            await machine.reboot()
            await there.sleep(1)
            counts.append((await there.node("n1")).status.allocatable["nvidia.com/gpu"])
            return counts

    assert run_world(main) == ["0", "8", "7", "0"]


def test_leases_are_renewed_every_ten_seconds_and_statuses_every_five_minutes() -> None:
    async def main(sim: Sim) -> tuple[int, int]:
        async with cluster_world(sim, 3) as there:
            await there.sleep(3_600)
            leases = there.journal(user="system:node:n1", kind="Lease", verb="update")
            statuses = there.journal(user="system:node:n1", kind="Node", verb="patch")
            lease = await there.kube.get(LEASES, "n1", namespace=LEASES_IN)
            assert lease.spec.lease_duration_seconds == 40
            return len(leases), len(statuses)

    leases, statuses = run_world(main)
    assert leases in (360, 361)
    assert 10 <= statuses <= 14


def test_a_large_fleet_may_renew_less_often_and_is_not_taken_for_silent() -> None:
    async def main(sim: Sim) -> int:
        async with cluster_world(sim, 2, lease_every=60.0) as there:
            await there.sleep(3_600)
            for name in ("n1", "n2"):
                lease = await there.kube.get(LEASES, name, namespace=LEASES_IN)
                assert lease.spec.lease_duration_seconds == 240
                ready = (await there.node(name)).condition("Ready")
                assert ready is not None
                assert ready.status == "True"
            there.machine("n2").disconnect()
            await there.sleep(200)
            ready = (await there.node("n2")).condition("Ready")
            assert ready is not None
            assert ready.status == "True"
            await there.sleep(60)
            ready = (await there.node("n2")).condition("Ready")
            assert ready is not None
            assert ready.status == "Unknown"
            first = there.journal(user="system:node:n1", kind="Lease", verb="update")
            return len([each for each in first if each.time < sim.clock.now() - 260])

    assert run_world(main) in (60, 61)


def test_a_late_eviction_never_kills_the_replacement_of_the_same_name() -> None:
    async def main(sim: Sim) -> None:
        async with cluster_world(sim) as there:
            first = await there.kube.create(PODS, _bare("p"), namespace=NAMESPACE)
            await there.ready("p", 1)
            uid = first.metadata.uid
            await there.kube.delete(PODS, "p", uid=uid, namespace=NAMESPACE)

            async def gone() -> bool:
                return not await there.pods("p")

            await there.until(gone)
            second = await there.kube.create(PODS, _bare("p"), namespace=NAMESPACE)
            await there.ready("p", 1)
            late = await there.kube.evict("p", namespace=NAMESPACE, uid=uid)
            assert late == PodGone()
            await there.sleep(60)
            assert (await there.pod("p")).metadata.uid == second.metadata.uid
            assert (await there.pod("p")).ready

    run_world(main)


def test_a_pod_that_is_replaced_under_its_name_while_the_machine_is_silent() -> None:
    """Whatever ran of the first one is gone when the kubelet hears of the second."""

    async def main(sim: Sim) -> None:
        async with cluster_world(sim) as there:
            first = await there.kube.create(PODS, _bare("p"), namespace=NAMESPACE)
            await there.ready("p", 1)
            there.machine("n1").disconnect()
            await there.kube.delete(PODS, "p", uid=first.metadata.uid, namespace=NAMESPACE, grace=0)
            second = await there.kube.create(PODS, _bare("p"), namespace=NAMESPACE)
            await there.sleep(20)
            assert list(there.machine("n1").pods) == [first.metadata.uid]
            there.machine("n1").reconnect()
            await there.ready("p", 1)
            assert list(there.machine("n1").pods) == [second.metadata.uid]

    run_world(main)


def test_an_evicted_pod_has_its_grace_and_no_more() -> None:
    async def main(sim: Sim) -> list[float]:
        model = SteadyWorld(overrides=(WorldOverride(workload="slow", stop=TimeSpan(300.0)),))
        async with cluster_world(sim, model=model) as there:
            took: list[float] = []
            for name in ("quick", "slow"):
                pod = await there.kube.create(
                    PODS, _bare(name, terminationGracePeriodSeconds=20), namespace=NAMESPACE
                )
                await there.ready(name, 1)
                uid = pod.metadata.uid
                answer = await there.kube.evict(name, namespace=NAMESPACE, uid=uid)
                assert answer == Evicted()

                async def gone(name: str = name) -> bool:
                    return not await there.pods(name)

                took.append(round(await there.until(gone)))
            return took

    assert run_world(main) == [1, 20]


def test_a_crash_loop_is_seen_as_one() -> None:
    async def main(sim: Sim) -> Pod:
        model = SteadyWorld(
            overrides=(WorldOverride(workload="d", ready=TimeSpan(1.0), run=ProcessEnd(5.0, 139)),)
        )
        async with cluster_world(sim, model=model) as there:
            await there.create(DAEMON_SETS, daemon_set())
            await there.sleep(200)
            return await there.pod("d")

    pod = run_world(main)
    (status,) = pod.status.container_statuses
    # At 3.15, 8, 23, 48, 93 and 178 seconds.
    assert status.restart_count == 5
    assert status.state.waiting is not None
    assert status.state.waiting.reason == "CrashLoopBackOff"
    assert not pod.ready


class FakeProcess:
    """Lives in the gate and in the driver of each machine, and does as the test says."""

    def __init__(self) -> None:
        self.events: dict[str, ProcessEvents] = {}
        self.calls: list[str] = []

    def begin(self, instance: ContainerInstance, voice: ProcessEvents) -> None:
        self.events[instance.container] = voice
        self.calls.append(f"begin {instance.container} {instance.attempt}")

    def stop(self, instance: ContainerInstance) -> None:
        self.calls.append(f"stop {instance.container} {instance.attempt}")

    def end(self, instance: ContainerInstance) -> None:
        self.calls.append(f"end {instance.container} {instance.attempt}")


def test_a_gate_opens_when_told_and_the_driver_is_ready_when_told() -> None:
    agent = FakeProcess()

    async def main(sim: Sim) -> None:
        async with cluster_world(sim, processes=lambda _pod, _container: agent) as there:
            await there.create(DAEMON_SETS, daemon_set(init=("gate",), grace=15))
            await there.sleep(3_600)
            pod = await there.pod("d")
            assert pod.status.phase == "Pending"
            assert pod.status.init_container_statuses[0].state.running is not None
            agent.events["gate"].exit(0)
            await there.sleep(60)
            assert (await there.pod("d")).status.phase == "Running"
            assert not (await there.pod("d")).ready
            agent.events["main"].ready(True)
            assert await there.ready("d", 1) < 0.06
            agent.events["main"].ready(False)
            await there.sleep(0.1)
            assert not (await there.pod("d")).ready
            meta = (await there.pod("d")).metadata
            await there.kube.delete(PODS, meta.name, uid=meta.uid, namespace=NAMESPACE)
            await there.sleep(14)
            assert (await there.pod("d")).metadata.uid == meta.uid
            await there.sleep(2)
            assert (await there.pod("d")).metadata.uid != meta.uid

    run_world(main)
    assert agent.calls[:5] == [
        "begin gate 0",
        "end gate 0",
        "begin main 0",
        "stop main 0",
        "end main 0",
    ]


def test_what_runs_in_a_pod_that_is_taken_away_by_force_is_killed() -> None:
    agent = FakeProcess()

    async def main(sim: Sim) -> None:
        async with cluster_world(sim, processes=lambda _pod, _container: agent) as there:
            pod = await there.kube.create(PODS, _bare("p"), namespace=NAMESPACE)
            await there.sleep(10)
            await there.kube.delete(PODS, "p", uid=pod.metadata.uid, namespace=NAMESPACE, grace=0)
            await there.sleep(1)
            assert agent.calls[-1] == "end main 0"
            assert there.machine("n1").pods == {}

    run_world(main)


def test_a_kubelet_that_hears_nothing_learns_from_a_refusal_that_its_pod_is_another() -> None:
    agent = FakeProcess()

    async def main(sim: Sim) -> None:
        async with cluster_world(sim, processes=lambda _pod, _container: agent) as there:
            first = await there.kube.create(PODS, _bare("p"), namespace=NAMESPACE)
            await there.sleep(10)
            faults, user = there.server.faults, "system:kubelets"
            faults.add(Fault(effect=RefuseRequest(500), verbs=("list", "watch"), user=user))
            faults.drop_watches(kind="Pod", user=user)
            uid = first.metadata.uid
            await there.kube.delete(PODS, "p", uid=uid, namespace=NAMESPACE, grace=0)
            second = await there.kube.create(PODS, _bare("p"), namespace=NAMESPACE)
            agent.events["main"].ready(True)
            await there.sleep(1)
            assert agent.calls == ["begin main 0", "end main 0"]
            assert not (await there.pod("p")).ready
            faults.clear()
            await there.sleep(60)
            assert list(there.machine("n1").pods) == [second.metadata.uid]
            assert agent.calls[-1] == "begin main 1"

    run_world(main)


def test_a_pod_that_ended_too_late_takes_no_other_of_its_name_along() -> None:
    """The machine hears nothing while its pod is taken away by force, and made anew."""

    async def main(sim: Sim) -> None:
        async with cluster_world(sim, model=SteadyWorld(stop_seconds=20.0)) as there:
            first = await there.kube.create(PODS, _bare("p"), namespace=NAMESPACE)
            await there.ready("p", 1)
            uid = first.metadata.uid
            await there.kube.delete(PODS, "p", uid=uid, namespace=NAMESPACE)
            await there.sleep(1)
            faults, user = there.server.faults, "system:kubelets"
            faults.add(Fault(effect=RefuseRequest(500), verbs=("list", "watch"), user=user))
            faults.drop_watches(kind="Pod", user=user)
            await there.kube.delete(PODS, "p", uid=uid, namespace=NAMESPACE, grace=0)
            second = await there.kube.create(PODS, _bare("p"), namespace=NAMESPACE)
            await there.sleep(30)
            assert there.machine("n1").pods == {}
            late = there.journal(user="system:node:n1", kind="Pod", verb="delete")
            assert [each.code for each in late] == [409]
            faults.clear()
            await there.sleep(60)
            assert (await there.pod("p")).metadata.uid == second.metadata.uid
            await there.ready("p", 1)

    run_world(main)


def test_refused_and_cut_writes_are_said_again() -> None:
    async def main(sim: Sim) -> None:
        async with cluster_world(sim, 3) as there:
            faults = there.server.faults
            faults.add(
                Fault(effect=RefuseRequest(500), kind="Pod", verbs=("patch",), probability=0.5)
            )
            faults.add(Fault(effect=Cut("after"), kind="Pod", probability=0.2))
            faults.add(Fault(effect=RefuseRequest(503), kind="Lease", probability=0.5))
            await there.create(DAEMON_SETS, daemon_set())
            await there.sleep(120)
            faults.clear()
            await there.ready("d", 3)
            await there.sleep(60)
            for name in ("n1", "n2", "n3"):
                ready = (await there.node(name)).condition("Ready")
                assert ready is not None
                assert ready.status == "True"
            pods = await there.pods("d")
            assert [pod.status.container_statuses[0].restart_count for pod in pods] == [0, 0, 0]

    run_world(main)


def test_a_server_that_was_away_finds_nodes_and_pods_well_again() -> None:
    async def main(sim: Sim) -> None:
        async with cluster_world(sim, 2) as there:
            await there.create(DAEMON_SETS, daemon_set())
            await there.ready("d", 2)
            uids = {pod.metadata.uid for pod in await there.pods("d")}
            await there.server.stop()
            await there.sleep(30)
            await there.server.start()
            await there.sleep(120)
            assert {pod.metadata.uid for pod in await there.pods("d")} == uids
            await there.ready("d", 2)
            nodes = (await there.kube.list_page(NODES)).items
            assert [node.spec.taints for node in nodes] == [(), ()]

    run_world(main)
