"""The simulated cluster as a whole: cost, determinism, restarts and end."""

import asyncio
import collections
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from libs.testing.apiserver.server import FIRST_NAMESPACES
from libs.testing.cluster.cluster import CONTROLLERS, INFORMERS, KUBELETS, SimulatedCluster
from libs.testing.cluster.kubelet.hardware import Hardware
from libs.testing.cluster.views import DAEMON_SETS, REPLICA_SETS
from libs.testing.simulation import Sim
from libs.testing.stage.worlds import SteadyWorld
from tests.builders.objects import daemon_set, replica_set
from tests.component.testing.cluster.world import ClusterWorld, cluster_world, in_cluster, run_world


def test_the_number_of_writes_per_node_is_bounded() -> None:
    """Count the writes that register a node and start two daemons on it."""
    nodes = 100

    async def main(sim: Sim) -> tuple[collections.Counter[str], float]:
        world = ClusterWorld(sim, model=SteadyWorld())
        async with world.cluster:
            for number in range(nodes):
                world.cluster.fleet.add(f"n{number:04d}", Hardware())
            for name in ("driver", "plugin"):
                await world.create(DAEMON_SETS, daemon_set(name))
            started = world.now

            async def ready() -> bool:
                counts = [(await world.daemon_set(name)).status for name in ("driver", "plugin")]
                return all(count.number_ready == nodes for count in counts)

            await world.until(ready, every=0.5)
            seconds = world.now - started
            tasks = len(asyncio.all_tasks())
            assert tasks < 140
        writes = collections.Counter(
            f"{revision.kind} {revision.verb} {revision.code}"
            for revision in world.journal()
            if revision.kind != "DaemonSet"
        )
        return writes, seconds

    writes, seconds = run_world(main)
    assert seconds < 10
    leases = writes.pop("Lease update 200", 0)
    assert leases <= nodes
    assert writes == {
        "ServiceAccount create 201": len(FIRST_NAMESPACES),
        "ConfigMap create 201": len(FIRST_NAMESPACES),
        "Node create 201": nodes,
        "Lease create 201": nodes,
        "Node patch 200": 2 * nodes,  # its TTL annotation and its taint
        "ControllerRevision create 201": 2,
        "Pod create 201": 2 * nodes,
        "Binding create 201": 2 * nodes,
        "Pod patch 200": 3 * 2 * nodes,  # creating, running, ready
    }


async def story(sim: Sim) -> bytes:
    """Run many kinds of changes; return the journal."""
    model = SteadyWorld(seed=sim.seed, jitter=0.5)
    async with cluster_world(sim, 4, model=model, labels={"driver": "old"}) as world:
        await world.create(DAEMON_SETS, daemon_set("old", selector={"driver": "old"}))
        await world.create(DAEMON_SETS, daemon_set("new", selector={"driver": "new"}))
        await world.create(REPLICA_SETS, replica_set("w", replicas=6, gpus=1))
        await world.ready("w", 6)
        await world.label("n1", {"driver": "new"})
        await world.cordon("n2")
        world.machine("n3").disconnect()
        await world.machine("n4").reboot()
        world.machine("n3").reconnect()
        await world.cluster.kill("daemon-sets")
        await world.label("n2", {"driver": "new"})
        world.cluster.start("daemon-sets")
        await world.sleep(400)
        assert len(await world.pods("new")) == 2
        assert len(await world.pods("old")) == 2
        return msgspec.json.encode(world.journal())


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_the_same_journal_comes_from_another_process(hash_seed: str) -> None:
    script = (
        "import hashlib\n"
        "from tests.component.testing.cluster.test_cluster import story\n"
        "from tests.component.testing.cluster.world import run_world\n"
        "print(hashlib.sha256(run_world(story, seed=5)).hexdigest())\n"
    )
    root = Path(__file__).parents[4]
    process = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert process.stdout.strip() == hashlib.sha256(run_world(story, seed=5)).hexdigest()


@pytest.mark.parametrize("controller", sorted(CONTROLLERS))
@in_cluster(3)
async def test_a_killed_controller_catches_up_after_its_restart(
    world: ClusterWorld, controller: str
) -> None:
    await world.create(DAEMON_SETS, daemon_set())
    await world.create(REPLICA_SETS, replica_set("w", replicas=3, gpus=1))
    await world.sleep(0.1)
    await world.cluster.kill(controller)
    assert controller not in world.cluster.running
    await world.cordon("n1")
    await world.sleep(5)
    world.cluster.start(controller)
    await world.ready("d", 3)
    await world.ready("w", 3)
    await world.sleep(2)
    (taint,) = (await world.node("n1")).spec.taints
    assert taint.key == "node.kubernetes.io/unschedulable"
    assert (await world.daemon_set("d")).status.number_ready == 3
    assert sorted(world.cluster.running) == sorted([*CONTROLLERS, INFORMERS, KUBELETS])


def test_a_failing_controller_ends_the_cluster() -> None:
    async def main(sim: Sim) -> None:
        world = ClusterWorld(sim, model=SteadyWorld())

        def broken(_pod: object, _container: str) -> None:
            raise LookupError("no process for this container")

        world.cluster = SimulatedCluster(
            world.kube_for,
            model=SteadyWorld(),
            env=sim.env(),
            processes=broken,
        )
        async with world.cluster:
            world.cluster.fleet.add("n1")
            await world.create(DAEMON_SETS, daemon_set())
            await world.sleep(60)
        raise AssertionError("the cluster did not end")

    with pytest.raises(ExceptionGroup) as caught:
        run_world(main)
    assert caught.group_contains(LookupError, match="no process")
