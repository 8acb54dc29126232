"""The same machine on a real loop, with threads: as a process of its own has it."""

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from libs.contracts.node import DRIVER_LABEL
from libs.forecast.world import Steady
from libs.host import gate, modules
from libs.host.access import Threads
from libs.host.gate import Answer
from libs.host.linux import Unloaded
from libs.host.machine import Machine as HostMachine
from libs.kube.client import MERGE_PATCH, Kube
from libs.runtime.clock import SystemClock
from libs.runtime.ids import RandomIds
from libs.testing.apiserver.server import ApiServer
from libs.testing.cluster.cluster import Cluster
from libs.testing.cluster.kinds import NODES, PODS
from libs.testing.machines.machine import Machine, occupants
from tests.component.policy.strictly import apply
from tests.component.testing.machines.yard import OLD, account, driver_sets
from tests.support import eventually

QUICK = Steady(
    pulling=0.02, preparing=0.02, starting=0.02, stopping=0.02, loading=0.05, unloading=0.05
)


def given(seed: int) -> dict[str, Any]:
    return {"clock": SystemClock(), "ids": RandomIds(), "random": random.Random(seed)}


async def labelled(kube: Kube, labels: Mapping[str, str | None]) -> None:
    """`kubectl label`."""
    await kube.request(
        "PATCH",
        NODES.path(name="n1"),
        query={"fieldManager": kube.manager},
        body={"metadata": {"labels": dict(labels)}},
        content_type=MERGE_PATCH,
    )


async def let_in(host: HostMachine) -> None:
    """Whoever asks first."""

    def asks() -> bool:
        return bool(gate.asked(host.tree))

    await eventually(lambda: host.access.do(asks))
    (asking,) = await host.access.do(lambda: gate.asked(host.tree))
    answer = Answer(pod_uid=asking.pod_uid, label=asking.label, at=asking.started)
    await host.access.do(lambda: gate.answer(host.tree, answer))


async def test_a_driver_comes_goes_and_leaves_its_modules_to_the_agent(tmp_path: Path) -> None:
    server = ApiServer(**given(1))
    machines: dict[str, Machine] = {}

    def kube_for(user: str, manager: str) -> Kube:
        return Kube(server.transport(user=user), manager=manager, clock=SystemClock())

    cluster = Cluster(kube_for, model=QUICK, occupants=occupants(machines), **given(2))
    machines["n1"] = there = Machine(tmp_path, name="n1", model=QUICK, **given(3))
    kube, wire = kube_for("person", "kubectl"), server.transport(user="person")
    made, threads = driver_sets()[OLD], Threads("disk")

    async def ready() -> bool:
        pods = (await kube.page(PODS)).items
        return bool(pods) and all(pod.ready for pod in pods)

    async def gone() -> bool:
        return not (await kube.page(PODS)).items

    async with threads, cluster:
        await apply(wire, account())
        await apply(wire, made)
        there.join(cluster.fleet, labels={DRIVER_LABEL: made["metadata"]["labels"][DRIVER_LABEL]})
        host = there.host(threads, comm="sluice-driver", changes=True)
        await let_in(host)
        await eventually(ready)
        assert (await host.access.do(host.gpus.open)).driver_version == OLD
        assert len(await host.access.do(host.gpus.sample)) == 8
        await host.access.do(host.gpus.close)
        await labelled(kube, {DRIVER_LABEL: None})
        await eventually(gone)
        linux = host.linux
        assert linux is not None
        for name in ("nvidia_modeset", "nvidia_uvm", modules.DRIVER):
            answer = await host.access.do(lambda name=name: linux.unload(name))
            assert answer == Unloaded()
        assert there.driver is None
        assert there.oddities == ()
        there.power_off()
        await asyncio.sleep(0)
