"""The cluster's process: the simulated API server over HTTP, and its controllers.

It knows no machine, and nothing of us: machines and services are clients of it like any other.
"""

import random as chance
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from sluice.demo.places import Places
from sluice.kube.client import Kube
from sluice.policy.rules import RULES
from sluice.rollout.world import Steady
from sluice.runtime.logs import logger
from sluice.runtime.process import Process, ProcessSettings
from sluice.runtime.service import Service
from sluice.sim.apiserver.http import front
from sluice.sim.apiserver.journal import Journal
from sluice.sim.apiserver.server import ApiServer
from sluice.sim.cluster.cluster import Cluster

_log = logger()


class ClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of the cluster's process."""

    folder: Path
    users: tuple[str, ...]
    """Each gets a kubeconfig."""
    seed: int = 0


async def start(process: Process[ClusterSettings], service: Service) -> None:
    """Ready when every user can come in."""
    await service.enter("cluster", _cluster(process))


@asynccontextmanager
async def _cluster(process: Process[ClusterSettings]) -> AsyncGenerator[None]:
    settings, clock = process.settings, process.clock
    places = Places(settings.folder)
    random = chance.Random(settings.seed)
    # Each revision is in the file at once: another process reads it when this one has ended.
    with Journal(spill=places.revisions, keeps=1) as journal:
        server = ApiServer(
            clock=clock, ids=process.ids, random=random, journal=journal, rules=RULES
        )

        def kube_for(user: str, manager: str) -> Kube:
            return Kube(server.transport(user=user), manager=manager, clock=clock)

        cluster = Cluster(kube_for, model=Steady(), clock=clock, ids=process.ids, random=random)
        async with front(server) as door:
            for user in settings.users:
                door.kubeconfig(places.users, user)
            async with cluster:
                _log.info("api server started", url=door.url)
                yield
            await server.stop()
