"""Telemetry from the GPUs of a simulated machine to the fleet's metrics page."""

from typing import Any

from libs.bus.slots import SlotWriter
from libs.contracts import subjects
from libs.contracts.commands import Command, Order, Quiesce
from libs.contracts.identities import Writer
from libs.host.holders import holders
from libs.host.tree import Tree
from libs.testing.machines.base_files import System
from tests.component import world

NAME = "n1"


class World(world.World):
    WRITER = Writer.TELEMETRY_CLUSTER


def test_eight_gpus_are_measured_exported_and_released() -> None:
    async def story(world: World) -> None:
        await world.install()
        labels = {"nvidia.com/gpu.deploy.dcgm-exporter": "true"}
        machine = world.add_machine(NAME, labels=labels, system=System(driver="570.86.15"))
        await world.sleep(2)
        agent = await world.start_agent(NAME, Writer.TELEMETRY)
        role = world.start()

        def fleet(name: str) -> float | None:
            return role.value(name, node=NAME)

        def page() -> str:
            pages: Any = agent.result
            return pages["/metrics"]().body.decode()

        def holds_gpus() -> bool:
            return any(each.comm.startswith("sluice-tele") for each in holders(Tree(machine.root)))

        await world.sleep(40.0)
        assert holds_gpus()
        assert page().count("\nDCGM_FI_DEV_GPU_TEMP{") == 8
        assert 'DCGM_FI_DRIVER_VERSION="570.86.15"' in page()
        assert (fleet("sluice_node_gpus"), fleet("sluice_node_gpus_mute")) == (8, 0)
        assert fleet("sluice_node_gpu_utilization_ratio") == 0
        assert 8 * 70 <= (fleet("sluice_node_gpu_power_watts") or 0) <= 8 * 78
        machine.start_process(0, 1)
        machine.report(2, 79)
        await world.sleep(30.0)
        assert (fleet("sluice_node_gpu_utilization_ratio") or 0) > 0.2
        assert fleet("sluice_node_gpu_xid_errors_total") == 1
        assert 'err_code="79"' in page()

        command = Command.of(
            Quiesce(),
            node=NAME,
            node_uid=world.cluster.fleet[NAME].node_uid,
            boot_id=machine.boot_id,
            epoch=1,
            order=Order(1, 1),
            deadline=world.sim.clock.now() + 60.0,
        )
        slot = subjects.Command(cluster="default", node=NAME, component=Writer.TELEMETRY)
        bus = world.connect(Writer.SCHEDULER)
        await SlotWriter(bus=bus, clock=world.sim.clock).write(slot, command)
        await world.sleep(1.0)
        assert not holds_gpus()
        assert page() == ""
        assert (fleet("sluice_node_gpus"), fleet("sluice_node_gpu_power_watts")) == (0, None)
        bus.kill()

    world.run_world(story, World)
