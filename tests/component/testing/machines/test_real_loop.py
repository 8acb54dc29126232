"""A simulated machine on a real loop, with threads, as in a process of its own."""

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from libs.contracts.node import DRIVER_LABEL
from libs.host import gate, modules
from libs.host.gate import GateAnswer
from libs.host.linux import Unloaded
from libs.host.machine import Machine as HostMachine
from libs.host.machine import ThreadOffload
from libs.kube.client import MERGE_PATCH, Kube
from libs.runtime.clock import SystemClock
from libs.runtime.ids import RandomIds
from libs.testing.apiserver.server import ApiServer
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.cluster.views import NODES, PODS
from libs.testing.env import make_env
from libs.testing.machines.machine import SimulatedMachine, process_factory
from libs.testing.stage.worlds import SteadyWorld
from tests.component.policy.strict_writes import apply
from tests.component.testing.machines.world import OLD, account, driver_sets
from tests.support import eventually

QUICK = SteadyWorld(
    pull_seconds=0.02,
    init_seconds=0.02,
    ready_seconds=0.02,
    stop_seconds=0.02,
    load_seconds=0.05,
    unload_seconds=0.05,
)


def given(seed: int) -> dict[str, Any]:
    return {"clock": SystemClock(), "ids": RandomIds(), "random": random.Random(seed)}


async def labelled(kube: Kube, labels: Mapping[str, str | None]) -> None:
    await kube.request(
        "PATCH",
        NODES.path(name="n1"),
        query={"fieldManager": kube.manager},
        body={"metadata": {"labels": dict(labels)}},
        content_type=MERGE_PATCH,
    )


async def admit_first(host: HostMachine) -> None:
    """Whoever asks first."""

    def asks() -> bool:
        return bool(gate.list_requests(host.tree))

    await eventually(lambda: host.offload.do(asks))
    (asking,) = await host.offload.do(lambda: gate.list_requests(host.tree))
    answer = GateAnswer(pod_uid=asking.pod_uid, label=asking.label, at=asking.started)
    await host.offload.do(lambda: gate.put_answer(host.tree, answer))


async def test_a_driver_comes_goes_and_leaves_its_modules_to_the_agent(tmp_path: Path) -> None:
    server = ApiServer(**given(1))
    machines: dict[str, SimulatedMachine] = {}

    def kube_for(user: str, manager: str) -> Kube:
        return Kube(server.transport(user=user), manager=manager, clock=SystemClock())

    cluster = SimulatedCluster(
        kube_for,
        model=QUICK,
        processes=process_factory(machines),
        env=make_env(random=random.Random(2)),
    )
    machines["n1"] = world = SimulatedMachine(
        tmp_path, name="n1", model=QUICK, env=make_env(random=random.Random(3))
    )
    kube, wire = kube_for("person", "kubectl"), server.transport(user="person")
    made, threads = driver_sets()[OLD], ThreadOffload("disk")

    async def ready() -> bool:
        pods = (await kube.list_page(PODS)).items
        return bool(pods) and all(pod.ready for pod in pods)

    async def gone() -> bool:
        return not (await kube.list_page(PODS)).items

    async with threads, cluster:
        await apply(wire, account())
        await apply(wire, made)
        world.join(cluster.fleet, labels={DRIVER_LABEL: made["metadata"]["labels"][DRIVER_LABEL]})
        host = world.host(threads, comm="sluice-driver", changes=True)
        await admit_first(host)
        await eventually(ready)
        assert (await host.offload.do(host.gpus.open)).driver_version == OLD
        assert len(await host.offload.do(host.gpus.sample)) == 8
        await host.offload.do(host.gpus.close)
        await labelled(kube, {DRIVER_LABEL: None})
        await eventually(gone)
        linux = host.linux
        assert linux is not None
        for name in ("nvidia_modeset", "nvidia_uvm", modules.DRIVER):
            answer = await host.offload.do(lambda name=name: linux.unload(name))
            assert answer == Unloaded()
        assert world.driver is None
        assert world.incidents == ()
        world.power_off()
        await asyncio.sleep(0)
