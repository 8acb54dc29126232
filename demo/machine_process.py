"""A machine's process: its files, its kernel and its GPUs, its kubelet, and our agents on it.

Everything that it is asked and told comes over NATS and HTTP, as on a real one.
"""

import asyncio
import random as chance
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from demo.exporter import GpuExporter
from demo.node import SimulatedNode
from demo.paths import KILL_AGENTS_SIGNAL, DemoPaths, kubelet_users
from demo.world import demo_world
from libs.bus.credentials import Credentials
from libs.bus.nats.bus import connect as join
from libs.bus.port import Bus
from libs.contracts.identities import Identity, Writer
from libs.host.machine import ThreadOffload
from libs.kube.client import Kube
from libs.kube.config import open_transport
from libs.kube.http import HttpTransport
from libs.runtime.logs import logger
from libs.runtime.process import Process, ProcessSettings
from libs.runtime.service import Service
from libs.testing.machines.machine import SimulatedMachine

_SERVER_WITHIN = 60.0

_log = logger()


class MachineSettings(ProcessSettings, frozen=True, kw_only=True):
    """Settings of a machine's process."""

    folder: Path
    node: str
    nats_url: str
    seed: int = 0


async def start(process: Process[MachineSettings], service: Service) -> None:
    """Switch the machine on."""
    settings, clock = process.settings, process.env.clock
    places = DemoPaths(settings.folder)
    env = msgspec.structs.replace(
        process.env, random=chance.Random(f"{settings.seed}/{settings.node}")
    )
    model = demo_world(settings.seed, bad=places.bad_drivers)
    machine = SimulatedMachine(
        places.machine(settings.node),
        name=settings.node,
        model=model,
        env=env,
    )
    ways = dict[str, HttpTransport]()
    for user in kubelet_users(settings.node):
        way = await open_transport(clock=clock, kubeconfig=places.kubeconfig(user))
        ways[user] = await service.enter(f"kube as {user}", way)

    def kube_for(user: str, manager: str) -> Kube:
        return Kube(ways[user], manager=manager, clock=clock)

    async def joined(agent: Service, identity: Identity) -> Bus:
        connected = join(
            url=settings.nats_url,
            identity=identity,
            env=env,
            credentials=Credentials(nkey_seed_file=str(places.key(identity))),
            wait=_SERVER_WITHIN,
        )
        bus = await agent.enter("nats", connected)
        agent.run_forever("nats", bus.guard())
        return bus

    exporter = GpuExporter()
    _, port = (await service.enter("exporter", exporter.server)).address
    _log.info("exporter started", port=port)
    station = SimulatedNode(
        machine,
        kube_for=kube_for,
        connect=joined,
        serve_pages=exporter.serve,
        model=model,
        access=await service.enter("disk", ThreadOffload("disk")),
        env=process.env,
        random_for=lambda name: chance.Random(f"{settings.seed}/{settings.node}/{name}"),
    )
    await service.enter("oddities", _told(machine, places.incidents(settings.node)))
    service.run_forever("station", station.run())
    service.run_forever("deaths", _deaths(station, places.kill_list(settings.node)))


async def _deaths(station: SimulatedNode, file: Path) -> None:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(KILL_AGENTS_SIGNAL, asked.set)
    while True:
        await asked.wait()
        asked.clear()
        for name in (await asyncio.to_thread(file.read_text)).split():
            station.kill(Writer(name))


@asynccontextmanager
async def _told(machine: SimulatedMachine, file: Path) -> AsyncGenerator[None]:
    """What must never happen is written down at the end: whoever judges has no other witness."""
    yield
    lines = "".join(f"{oddity}\n" for oddity in machine.incidents)
    await asyncio.to_thread(file.write_text, lines)
