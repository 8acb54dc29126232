"""Kubelets of the simulated cluster: reboots, devices, evictions and server faults."""

from libs.kube.resources import NODES as WHOLE_NODES
from libs.testing.apiserver.faults import Fault, RefuseRequest
from libs.testing.cluster.kubelet.container import ContainerInstance, ProcessEvents
from libs.testing.cluster.views import DAEMON_SETS, PODS
from libs.testing.simulation import Sim
from libs.testing.stage.worlds import SteadyWorld
from tests.builders.objects import container, daemon_set, pod
from tests.component.testing.cluster.world import (
    NAMESPACE,
    ClusterWorld,
    cluster_world,
    in_cluster,
    run_world,
)


async def _node_info(world: ClusterWorld, node: str) -> tuple[str, str]:
    info = (await world.kube.get(WHOLE_NODES, node)).status.node_info
    return info.boot_id, info.kernel_version


BOUND = pod("p", node="n1", meta={"labels": {"app": "p"}})


@in_cluster(model=SteadyWorld(boot_seconds=40.0))
async def test_a_reboot_gives_a_new_boot_id_and_restarts_every_container_in_place(
    world: ClusterWorld,
) -> None:
    await world.create(DAEMON_SETS, daemon_set(initContainers=[container("gate")]))
    await world.ready("d", 1)
    before, info = await world.pod("d"), await _node_info(world, "n1")
    started = world.now
    assert await world.machine("n1").reboot(kernel="5.15.0-140-generic")
    await world.ready("d", 1)

    async def restarted() -> bool:
        pod = await world.pod("d")
        return pod.ready and pod.status.container_statuses[0].restart_count == 1

    await world.until(restarted)
    after = await world.pod("d")
    boot_id, kernel = await _node_info(world, "n1")
    assert boot_id != info[0]
    assert boot_id == world.machine("n1").boot_id
    assert (info[1], kernel) == ("5.15.0-139-generic", "5.15.0-140-generic")
    assert after.metadata.uid == before.metadata.uid
    assert after.status.init_container_statuses[0].restart_count == 1
    old, new = (pod.status.container_statuses[0] for pod in (before, after))
    assert old.container_id != new.container_id
    assert old.state.running is not None
    assert new.state.running is not None
    assert old.state.running.started_at < new.state.running.started_at
    assert 42.0 <= (world.now - started) <= 44.0


@in_cluster()
async def test_a_pod_is_replaced_under_its_name_while_the_machine_is_disconnected(
    world: ClusterWorld,
) -> None:
    """The containers of the first pod end when the kubelet gets the second one."""
    first = await world.kube.create(PODS, BOUND, namespace=NAMESPACE)
    await world.ready("p", 1)
    world.machine("n1").disconnect()
    await world.kube.delete(PODS, "p", uid=first.metadata.uid, namespace=NAMESPACE, grace=0)
    second = await world.kube.create(PODS, BOUND, namespace=NAMESPACE)
    await world.sleep(20)
    assert list(world.machine("n1").pods) == [first.metadata.uid]
    world.machine("n1").reconnect()
    await world.ready("p", 1)
    assert list(world.machine("n1").pods) == [second.metadata.uid]


class FakeProcess:
    """A container process that the test controls and that records its calls."""

    def __init__(self) -> None:
        self.events: dict[str, ProcessEvents] = {}
        self.calls: list[str] = []

    def begin(self, instance: ContainerInstance, events: ProcessEvents) -> None:
        self.events[instance.container] = events
        self.calls.append(f"begin {instance.container} {instance.attempt}")

    def stop(self, instance: ContainerInstance) -> None:
        self.calls.append(f"stop {instance.container} {instance.attempt}")

    def end(self, instance: ContainerInstance) -> None:
        self.calls.append(f"end {instance.container} {instance.attempt}")


def test_a_kubelet_with_a_stale_cache_learns_of_a_replaced_pod_by_a_refusal() -> None:
    process = FakeProcess()

    async def main(sim: Sim) -> None:
        async with cluster_world(sim, processes=lambda _pod, _container: process) as world:
            first = await world.kube.create(PODS, BOUND, namespace=NAMESPACE)
            await world.sleep(10)
            faults, user = world.server.faults, "system:kubelets"
            faults.add(Fault(effect=RefuseRequest(500), verbs=("list", "watch"), user=user))
            faults.drop_watches(kind="Pod", user=user)
            uid = first.metadata.uid
            await world.kube.delete(PODS, "p", uid=uid, namespace=NAMESPACE, grace=0)
            second = await world.kube.create(PODS, BOUND, namespace=NAMESPACE)
            process.events["main"].ready(True)
            await world.sleep(1)
            assert process.calls == ["begin main 0", "end main 0"]
            assert not (await world.pod("p")).ready
            faults.clear()
            await world.sleep(60)
            assert list(world.machine("n1").pods) == [second.metadata.uid]
            assert process.calls[-1] == "begin main 1"

    run_world(main)
