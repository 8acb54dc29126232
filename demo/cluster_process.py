"""The cluster's process: the simulated API server over HTTP, and its controllers.

It knows no machine, and nothing of us: machines and services are clients of it like any other.
"""

import random as chance
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from demo.paths import DemoPaths
from libs.forecast.world import SteadyWorld
from libs.kube.client import Kube
from libs.policy.crds import CEL_RULES
from libs.runtime.logs import logger
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.service import Service
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.journal import RevisionJournal
from libs.testing.apiserver.server import ApiServer
from libs.testing.cluster.cluster import SimulatedCluster

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
    settings, clock = process.settings, process.env.clock
    places = DemoPaths(settings.folder)
    random = chance.Random(settings.seed)
    # Each revision is in the file at once: another process reads it when this one has ended.
    with RevisionJournal(spill=places.revisions, keeps=1) as journal:
        server = ApiServer(
            clock=clock, ids=process.env.ids, random=random, journal=journal, rules=CEL_RULES
        )

        def kube_for(user: str, manager: str) -> Kube:
            return Kube(server.transport(user=user), manager=manager, clock=clock)

        cluster = SimulatedCluster(
            kube_for,
            model=SteadyWorld(),
            env=msgspec.structs.replace(process.env, random=random),
        )
        async with serve_http(server) as door:
            for user in settings.users:
                door.kubeconfig(places.users, user)
            async with cluster:
                _log.info("api server started", url=door.url)
                yield
            await server.stop()
