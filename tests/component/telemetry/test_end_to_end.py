"""From a simulated machine's GPUs to the page of the fleet, over the bus, in virtual time."""

from pathlib import Path

from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import Command, Order, Quiesce
from libs.contracts.identities import Identity, Writer
from libs.contracts.subjects import STREAMS
from libs.host.holders import holders
from libs.host.machine import InlineOffload
from libs.host.tree import Tree
from libs.kube.client import Kube
from libs.kube.resources import NODES
from libs.runtime.metrics import Metrics
from libs.runtime.service import Service
from libs.testing.apiserver.server import ApiServer
from libs.testing.bus import LocalServer
from libs.testing.bus.memory_journal import MemoryJournal
from libs.testing.machines.base_files import System
from libs.testing.simulation import Sim, run
from services.telemetry.cluster import role
from services.telemetry.cluster.role import TelemetryClusterSettings
from services.telemetry.node import agent
from services.telemetry.node.agent import TelemetrySettings
from tests.unit.testing.machines.builders import machine

NAME = "n1"
COMM = "sluice-telemetry"


def held(root: Path) -> bool:
    return any(one.comm.startswith(COMM[:15]) for one in holders(Tree(root)))


def test_eight_gpus_are_measured_shown_and_let_go(tmp_path: Path) -> None:
    async def main(sim: Sim) -> None:
        there = machine(sim, tmp_path, system=System(driver="570.86.15"))
        api = ApiServer(clock=sim.clock, ids=sim.ids, random=sim.random_for("api"))
        server = LocalServer(env=sim.env("bus"))
        scheduler = server.connect(Identity(writer=Writer.SCHEDULER))
        for stream in STREAMS:
            await scheduler.ensure(stream)
        kube = Kube(api.transport(user="p"), manager="kubectl", clock=sim.clock)
        labels = {"nvidia.com/gpu.deploy.dcgm-exporter": "true"}
        made = await kube.create(NODES, {"metadata": {"name": NAME, "labels": labels}})
        uid = made.metadata.uid
        fleet = Metrics(version="0")
        agent_bus = server.connect(Identity(writer=Writer.TELEMETRY, node=NAME))
        role_bus = server.connect(Identity(writer=Writer.TELEMETRY_CLUSTER))
        pages: agent.Pages = {}

        async def on_node(service: Service) -> None:
            nonlocal pages
            async with service:
                pages = await agent.run(
                    TelemetrySettings(node=NAME, node_uid=uid),
                    bus=agent_bus,
                    host=there.host(InlineOffload(), comm=COMM),
                    journal=MemoryJournal([], pause=lambda: sim.clock.sleep(0.001)),
                    env=sim.env("agent", metrics=Metrics(version="0")),
                    service=service,
                )

        async def in_cluster(service: Service) -> None:
            async with service:
                await role.run(
                    TelemetryClusterSettings(),
                    kube=api.transport(user="telemetry-cluster"),
                    bus=role_bus,
                    env=sim.env("role", metrics=fleet),
                    service=service,
                )

        def shown(name: str) -> float | None:
            return fleet.registry.get_sample_value(name, {"node": NAME})

        services = [Service(name, clock=sim.clock) for name in ("cluster", "node")]
        tasks = [
            sim.loop.create_task(in_cluster(services[0])),
            sim.loop.create_task(on_node(services[1])),
        ]
        await sim.clock.sleep(40.0)
        assert held(tmp_path)
        text = pages["/metrics"]().body.decode()
        assert text.count("\nDCGM_FI_DEV_GPU_TEMP{") == 8
        assert 'DCGM_FI_DRIVER_VERSION="570.86.15"' in text
        assert (shown("sluice_node_gpus"), shown("sluice_node_gpus_mute")) == (8, 0)
        assert shown("sluice_node_gpu_utilization_ratio") == 0
        assert 8 * 70 <= (shown("sluice_node_gpu_power_watts") or 0) <= 8 * 78
        there.start_process(0, 1)
        there.report(2, 79)
        await sim.clock.sleep(30.0)
        assert (shown("sluice_node_gpu_utilization_ratio") or 0) > 0.2
        assert shown("sluice_node_gpu_xid_errors_total") == 1
        assert 'err_code="79"' in pages["/metrics"]().body.decode()

        command = Command.of(
            Quiesce(),
            node=NAME,
            node_uid=uid,
            boot_id=there.boot_id,
            epoch=1,
            order=Order(1, 1),
            deadline=sim.clock.now() + 60.0,
        )
        slot = subjects.Command(cluster="default", node=NAME, component=Writer.TELEMETRY)
        await SlotWriter(bus=scheduler, clock=sim.clock).write(slot, command)
        await sim.clock.sleep(1.0)
        assert not held(tmp_path)
        assert pages["/metrics"]().body == b""
        assert (shown("sluice_node_gpus"), shown("sluice_node_gpu_power_watts")) == (0, None)

        for service, task in zip(services, tasks, strict=True):
            service.stop("the test is over")
            await task
        for bus in (agent_bus, role_bus, scheduler):
            bus.kill()

    run(main, seed=0)
