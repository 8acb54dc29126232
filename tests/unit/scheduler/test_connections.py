"""Which service limits the connections to NATS."""

import asyncio
import random

import pytest

from libs.bus.connect import NatsSettings
from libs.contracts.identities import Identity, Writer
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import LocalServer
from libs.testing.simulation import Sim, run
from services.scheduler.role import SchedulerSettings
from services.scheduler.role import run as run_scheduler


@pytest.mark.parametrize(
    ("nats", "limits"),
    [
        pytest.param(NatsSettings(nkey_seed_file="/seed"), True, id="static keys"),
        pytest.param(NatsSettings(token_file="/token"), False, id="sign-in does"),
    ],
)
def test_the_scheduler_limits_connections_only_without_sign_in(
    nats: NatsSettings, limits: bool
) -> None:
    async def story(sim: Sim) -> set[str]:
        env = sim.env("scheduler")
        server = ApiServer(clock=sim.clock, ids=sim.ids, random=random.Random(1))
        names: set[str] = set()
        bus = LocalServer(env=sim.env("bus")).connect(Identity(writer=Writer.SCHEDULER))
        async with Service("scheduler", clock=sim.clock) as service:
            settings = SchedulerSettings(namespace="gpu-operator", nats=nats)
            kube = server.transport(user="scheduler")
            await run_scheduler(settings, env=env, bus=bus, kube=kube, service=service)
            names = {task.get_name() for task in asyncio.all_tasks()}
            service.stop("the test ends")
        bus.kill()
        await server.stop()
        return names

    names = run(story, seed=1)
    assert "scheduler/streams" in names
    assert ("scheduler/connections" in names) is limits
