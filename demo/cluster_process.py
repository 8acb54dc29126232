"""The process of the simulated cluster: an API server over HTTP, and Kubernetes' controllers.

Machines and services are clients of it.
"""

import random as chance
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from demo.paths import DemoPaths
from libs.kube.client import Kube
from libs.policy.crds import CEL_RULES
from libs.runtime.logs import logger
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.service import Service
from libs.testing.apiserver.http import serve_http
from libs.testing.apiserver.journal import RevisionJournal
from libs.testing.apiserver.server import ApiServer
from libs.testing.cluster.cluster import SimulatedCluster
from libs.testing.stage.worlds import SteadyWorld

_log = logger()


class ClusterSettings(ProcessSettings, frozen=True, kw_only=True):
    folder: Path
    users: tuple[str, ...]
    """A kubeconfig is written for each."""
    seed: int = 0


async def start(process: Process[ClusterSettings], service: Service) -> None:
    await service.enter("cluster", _cluster(process))


@asynccontextmanager
async def _cluster(process: Process[ClusterSettings]) -> AsyncGenerator[None]:
    settings, clock = process.settings, process.env.clock
    paths = DemoPaths(settings.folder)
    random = chance.Random(settings.seed)
    # Keep revisions in the file: the demo reads them after this process has ended.
    with RevisionJournal(spill=paths.revisions, keeps=1) as journal:
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
        async with serve_http(server) as endpoint:
            for user in settings.users:
                endpoint.kubeconfig(paths.users, user)
            async with cluster:
                _log.info("api server started", url=endpoint.url)
                yield
            await server.stop()
