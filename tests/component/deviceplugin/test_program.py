"""The device plugin's program, from NVML to the kubelet."""

import signal
from pathlib import Path

import aiohttp

from libs.contracts.commands import Idle, Quiesce
from libs.contracts.reports import Outcome
from libs.host import validations
from libs.host.tree import Tree
from services.driver.plugin.offering import UNPROVEN
from tests.component.deviceplugin.kubelet import Kubelet
from tests.component.deviceplugin.program import plugin_on
from tests.component.gpus.conftest import bench
from tests.component.gpus.machine import StandInMachine, with_machine
from tests.component.programs import address_of
from tests.support import eventually

__all__ = ["bench"]

GPU = "nvidia.com/gpu"


def healthy(kubelet: Kubelet) -> list[str]:
    listed = kubelet.last.get(GPU, {})
    return [uuid for uuid, health in listed.items() if health == "Healthy"]


async def test_gpus_are_offered_given_and_withdrawn(
    bench: StandInMachine, kubelet: Kubelet, tmp_path: Path
) -> None:
    async with plugin_on(bench, tmp_path, sockets=kubelet.folder) as plugin:
        uuids = plugin.uuids
        await eventually(lambda: healthy(kubelet) == uuids, within=60)
        given = await kubelet.allocate(GPU, uuids[2])
        assert [each.name for each in given.cdi_devices] == [f"{GPU}={uuids[2]}"]
        assert not given.envs
        assert not given.mounts
        assert await kubelet.prefer(GPU, uuids[1:], 2) == uuids[1:3]
        assert (await plugin.send(Quiesce())).outcome is Outcome.DONE
        assert healthy(kubelet) == []
        assert sorted(kubelet.last[GPU]) == sorted(uuids)
        assert (await plugin.send(Idle())).outcome is Outcome.DONE
        await eventually(lambda: healthy(kubelet) == uuids, within=60)
        await plugin.child.end(signal.SIGTERM, code=0)
    assert [file.name for file in kubelet.folder.iterdir()] == ["kubelet.sock"]


async def test_without_nats_gpus_are_offered_once_they_are_proven_in_this_boot(
    bench: StandInMachine, kubelet: Kubelet, tmp_path: Path
) -> None:
    async with plugin_on(bench, tmp_path, sockets=kubelet.folder, has_nats=False) as plugin:
        url = await address_of(plugin.child, "probe server")
        async with aiohttp.ClientSession() as http:

            async def waits() -> bool:
                async with http.get(f"{url}/readyz") as response:
                    return UNPROVEN in await response.text()

            await eventually(waits, within=60)
        assert not kubelet.lists
        Tree(bench.root).write(validations.CUDA, b"")
        await eventually(lambda: healthy(kubelet) == plugin.uuids, within=60)
        await plugin.child.end(signal.SIGKILL, code=-signal.SIGKILL)


async def test_a_gpu_that_falls_off_the_bus_is_unhealthy(
    bench: StandInMachine, kubelet: Kubelet, tmp_path: Path
) -> None:
    async with plugin_on(bench, tmp_path, sockets=kubelet.folder) as plugin:
        uuids = plugin.uuids
        await eventually(lambda: healthy(kubelet) == uuids, within=60)
        lists = len(kubelet.lists[GPU])
        bench.stand_in.gpus[3].lose()
        await eventually(lambda: len(kubelet.lists[GPU]) > lists, within=60)
        assert healthy(kubelet) == [uuid for uuid in uuids if uuid != uuids[3]]
        assert kubelet.last[GPU][uuids[3]] == "Unhealthy"
        await plugin.child.end(signal.SIGTERM, code=0)


async def test_shared_gpus_by_a_configuration_file(
    bench: StandInMachine, kubelet: Kubelet, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}")
    async with plugin_on(
        bench,
        tmp_path,
        sockets=kubelet.folder,
        plugin_config_dir=str(tmp_path),
        plugin_config=file.name,
    ) as plugin:
        await eventually(lambda: len(healthy(kubelet)) == 3 * len(plugin.uuids), within=60)
        first, second = (f"{uuid}::1" for uuid in plugin.uuids[:2])
        given = await kubelet.allocate(GPU, first, second)
        assert [each.name for each in given.cdi_devices] == [
            f"{GPU}={uuid}" for uuid in plugin.uuids[:2]
        ]


@with_machine(profile="A100-40GB-PAIRS")
async def test_gpus_that_nvlinks_join_are_preferred(
    bench: StandInMachine, kubelet: Kubelet, tmp_path: Path
) -> None:
    async with plugin_on(bench, tmp_path, sockets=kubelet.folder) as plugin:
        first, second, third, fourth = plugin.uuids
        await eventually(lambda: healthy(kubelet) == plugin.uuids, within=60)
        assert await kubelet.prefer(GPU, plugin.uuids, 2) == [first, third]
        assert await kubelet.prefer(GPU, [first, second, fourth], 2) == [second, fourth]
        await plugin.child.end(signal.SIGTERM, code=0)
