"""Writes of a leader to the API server: what they must not meet."""

from typing import Any

import pytest

from libs.kube.client import Kube
from libs.kube.resources import PODS
from libs.rollout.decision import PodRef
from libs.testing.apiserver.server import ApiServer
from libs.testing.simulation import Sim
from services.scheduler.effects.writes import Writes
from services.scheduler.inputs import Informers
from services.scheduler.metrics import SchedulerMetrics
from tests.support import in_virtual_time

NAMESPACE = "default"
DRIVER = {"name": "driver", "image": "driver:1"}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("evicted", [False, True])
@in_virtual_time
async def test_the_successor_of_a_pod_is_never_removed_for_it(
    sim: Sim, restarted: bool, evicted: bool
) -> None:
    """A pod may have gone since the decision, and another one of the same name be there."""
    server = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("server"))
    person, ours = (
        Kube(server.transport(user=name), manager=name, clock=sim.clock)
        for name in ("kubelet", "sluice-scheduler")
    )
    manifest: Any = {"metadata": {"name": "driver-a"}, "spec": {"containers": [DRIVER]}}
    seen = await person.create(PODS, manifest, namespace=NAMESPACE)
    uid = seen.metadata.uid
    if restarted:
        await person.delete(PODS, "driver-a", namespace=NAMESPACE, uid=uid, grace=0)
        uid = (await person.create(PODS, manifest, namespace=NAMESPACE)).metadata.uid
    env = sim.env()
    writes = Writes(
        ours,
        informers=Informers(ours, namespace=NAMESPACE, env=env),
        metrics=SchedulerMetrics(env.metrics),
    )
    decided = PodRef(namespace=NAMESPACE, name="driver-a", uid=seen.metadata.uid)
    if evicted:
        await writes.evict_pod(decided, by_force=True)
    else:
        await writes.delete_pod(decided)
    left = [pod.metadata.uid for pod in (await person.list_page(PODS)).items]
    assert left == ([uid] if restarted else [])
