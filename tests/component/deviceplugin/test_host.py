"""Resources are served and registered at a kubelet: lists, answers, restarts, failures."""

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc.aio
import pytest

from libs.host.deviceplugin.host import PluginHost
from libs.host.deviceplugin.port import (
    Allocation,
    AllocationRefused,
    DeviceFile,
    Mount,
    OfferedDevice,
)
from libs.host.machine import ThreadOffload
from libs.runtime.clock import SystemClock
from tests.component.deviceplugin.kubelet import Kubelet
from tests.support import eventually

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"
GIVEN = Allocation(
    cdi_devices=("nvidia.com/gpu=GPU-0",),
    annotations={"cdi.k8s.io/a": "b"},
    env={"NVIDIA_VISIBLE_DEVICES": "GPU-0"},
    mounts=(Mount(source="/dev/null", target="/a"),),
    files=(DeviceFile(path="/dev/nvidia0"),),
)


class FirstOnes:
    """Prefers the first devices, and gives all but the last."""

    def allocate(self, ids: Sequence[str]) -> Allocation:
        if "bad" in ids:
            raise AllocationRefused("bad is in use")
        return GIVEN

    def prefer(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        if size > len(available):
            raise AllocationRefused("not enough")
        return [*required, *available][:size]


@pytest.fixture
async def host(kubelet: Kubelet) -> AsyncIterator[PluginHost]:
    async with ThreadOffload("test") as offload:
        host = PluginHost(
            str(kubelet.folder),
            allocator_for=lambda _resource: FirstOnes(),
            offload=offload,
            clock=SystemClock(),
        )
        async with host:
            yield host


def devices(*ids: str, unhealthy: str = "") -> tuple[OfferedDevice, ...]:
    return tuple(OfferedDevice(id=each, healthy=each != unhealthy) for each in ids)


async def until_listed(kubelet: Kubelet, **expected: str) -> None:
    """Wait until the kubelet has these lists; `!` stands for unhealthy."""
    wanted = {
        {"gpu": GPU, "mig": MIG}[name]: {
            each.rstrip("!"): "Unhealthy" if each.endswith("!") else "Healthy"
            for each in text.split()
        }
        for name, text in expected.items()
    }
    await eventually(lambda: kubelet.last == wanted, within=20.0)


async def test_resources_are_registered_and_listed(kubelet: Kubelet, host: PluginHost) -> None:
    one = OfferedDevice(id="a", healthy=True, numa_node=1)
    await host.offer({GPU: (one, *devices("b")), MIG: devices("c")})
    await until_listed(kubelet, gpu="a b", mig="c")
    assert kubelet.numa_nodes == {"a": [1], "b": [], "c": []}
    assert host.problem == ""
    assert [
        (each.version, each.endpoint, each.resource_name) for each in kubelet.registrations
    ] == [("v1beta1", "nvidia-gpu.sock", GPU), ("v1beta1", "nvidia-mig-1g.10gb.sock", MIG)]


async def test_a_change_is_with_the_kubelet_when_the_offer_returns(
    kubelet: Kubelet, host: PluginHost
) -> None:
    await host.offer({GPU: devices("a", "b")})
    await until_listed(kubelet, gpu="a b")
    await host.offer({GPU: devices("a", "b", unhealthy="b")})
    await until_listed(kubelet, gpu="a b!")
    await host.offer({GPU: devices("a", "b", unhealthy="b")})
    await host.offer({GPU: devices("a", "b")})
    await until_listed(kubelet, gpu="a b")
    assert len(kubelet.lists[GPU]) == 3
    assert len(kubelet.registrations) == 1


async def test_a_resource_that_is_gone_has_no_devices(kubelet: Kubelet, host: PluginHost) -> None:
    await host.offer({GPU: devices("a")})
    await until_listed(kubelet, gpu="a")
    await host.offer({MIG: devices("b")})
    await until_listed(kubelet, gpu="", mig="b")
    assert not (kubelet.folder / "nvidia-gpu.sock").exists()


async def test_the_kubelet_gets_what_the_allocator_answers(
    kubelet: Kubelet, host: PluginHost
) -> None:
    await host.offer({GPU: devices("a", "b", "bad")})
    await until_listed(kubelet, gpu="a b bad")
    given = await kubelet.allocate(GPU, "a")
    assert [each.name for each in given.cdi_devices] == list(GIVEN.cdi_devices)
    assert dict(given.annotations) == GIVEN.annotations
    assert dict(given.envs) == GIVEN.env
    (mount,) = given.mounts
    assert (mount.host_path, mount.container_path, mount.read_only) == ("/dev/null", "/a", True)
    (file,) = given.devices
    assert (file.host_path, file.permissions) == ("/dev/nvidia0", "rw")
    assert await kubelet.prefer(GPU, ["a", "b"], 1) == ["a"]
    for call, text in (
        (kubelet.allocate(GPU, "a", "bad"), "bad is in use"),
        (kubelet.prefer(GPU, ["a"], 2), "not enough"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
        assert error.value.details() == text


async def test_a_kubelet_that_restarts_gets_everything_anew(
    kubelet: Kubelet, host: PluginHost
) -> None:
    await host.offer({GPU: devices("a"), MIG: devices("b")})
    await until_listed(kubelet, gpu="a", mig="b")
    for count in (4, 6):
        await kubelet.stop()
        await host.check()
        await kubelet.start()
        await host.check()
        await until_listed(kubelet, gpu="a", mig="b")
        assert len(kubelet.registrations) == count
    (kubelet.folder / "nvidia-gpu.sock").unlink()
    await host.check()
    await until_listed(kubelet, gpu="a", mig="b")
    assert (kubelet.folder / "nvidia-gpu.sock").exists()


async def test_without_a_kubelet_the_reason_is_told(kubelet: Kubelet, host: PluginHost) -> None:
    kubelet.refusal = "the version\nis old"
    await host.offer({GPU: devices("a")})
    assert host.problem == (
        "the kubelet did not accept a registration: UNKNOWN: the version is old"
    )
    (kubelet.folder / "kubelet.sock").unlink()
    await host.check()
    assert f"there is no socket {kubelet.folder}/kubelet.sock" in host.problem
    kubelet.refusal = ""
    await kubelet.stop()
    await kubelet.start()
    await host.check()
    await until_listed(kubelet, gpu="a")
    assert host.problem == ""


async def test_a_kubelet_that_does_not_read_does_not_hold_up_an_offer(
    kubelet: Kubelet, host: PluginHost
) -> None:
    kubelet.reads = False
    await host.offer({GPU: devices("a")})
    await host.offer({GPU: devices("a", unhealthy="a")})
    assert kubelet.lists == {}
    await kubelet.stop()
    kubelet.reads = True
    await kubelet.start()
    await host.check()
    await until_listed(kubelet, gpu="a!")


async def test_what_ends_leaves_no_socket(kubelet: Kubelet, host: PluginHost) -> None:
    await host.offer({GPU: devices("a")})
    await until_listed(kubelet, gpu="a")
    await host.__aexit__()
    await until_listed(kubelet, gpu="a!")
    assert [file.name for file in kubelet.folder.iterdir()] == ["kubelet.sock"]


async def test_a_leftover_of_a_killed_process_is_replaced(
    kubelet: Kubelet, host: PluginHost
) -> None:
    (kubelet.folder / "nvidia-gpu.sock").touch()
    await host.offer({GPU: devices("a")})
    await until_listed(kubelet, gpu="a")


def test_grpc_is_loaded_with_the_first_resource_only(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from libs.host.deviceplugin.host import PluginHost
from libs.host.machine import InlineOffload
from libs.runtime.clock import SystemClock
async def main():
    host = PluginHost(
        "{tmp_path}", allocator_for=None, offload=InlineOffload(), clock=SystemClock()
    )
    await host.offer({{}})
    await host.check()
asyncio.run(main())
print(sorted({{"grpc", "google"}} & set(sys.modules)))
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert child.stdout == b"[]\n"
