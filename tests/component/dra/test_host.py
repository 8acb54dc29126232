"""A driver is found by its sockets, answers for claims in both versions, and is served again."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from libs.host.dra.host import DraHost
from libs.host.dra.port import Claim, ClaimFailed, PreparedDevice
from libs.host.machine import ThreadOffload
from libs.runtime.clock import SystemClock
from tests.component.dra.kubelet import Kubelet

DRIVER = "gpu.example.com"
GIVEN = PreparedDevice(
    request="gpu", pool="a", device="gpu-0", cdi_devices=("nvidia.com/gpu=GPU-0",)
)
GOOD = Claim(namespace="ml", name="good", uid="1")
BAD = Claim(namespace="ml", name="bad", uid="2")


class Claims:
    def __init__(self) -> None:
        self.forgotten: list[Claim] = []
        self.begun = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def prepare(self, claim: Claim) -> Sequence[PreparedDevice]:
        self.begun.set()
        await self.goes_on.wait()
        if claim == BAD:
            raise ClaimFailed("the GPU is away")
        return (GIVEN,)

    async def unprepare(self, claim: Claim) -> None:
        if claim == BAD:
            raise ClaimFailed("the disk is full")
        self.forgotten.append(claim)


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    # The path of a unix socket is limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        yield Kubelet(Path(folder))


@pytest.fixture
def claims() -> Claims:
    return Claims()


@pytest.fixture
async def host(kubelet: Kubelet, claims: Claims) -> AsyncIterator[DraHost]:
    async with ThreadOffload("test") as offload:
        host = DraHost(
            DRIVER,
            plugins=str(kubelet.plugins),
            registry=str(kubelet.registry),
            kubelet_plugins=str(kubelet.plugins),
            claims=claims,
            offload=offload,
            clock=SystemClock(),
        )
        async with host:
            await host.check()
            yield host


async def test_a_kubelet_finds_the_driver_and_tells_it(kubelet: Kubelet, host: DraHost) -> None:
    assert f"the kubelet has not asked on {kubelet.registry}" in host.problem
    info = await kubelet.register(DRIVER, refusal="the version\nis old")
    assert (info.type, info.name) == ("DRAPlugin", DRIVER)
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert info.endpoint == str(kubelet.plugins / DRIVER / "dra.sock")
    assert (host.is_registered, host.problem) == (False, "the version is old")
    await kubelet.register(DRIVER)
    assert (host.is_registered, host.problem) == (True, "")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_claims_are_answered_one_by_one(
    version: str, kubelet: Kubelet, host: DraHost, claims: Claims
) -> None:
    endpoint = (await kubelet.register(DRIVER)).endpoint
    answers = await kubelet.prepare(endpoint, GOOD, BAD, version=version)
    assert answers["2"].error == "the GPU is away"
    (device,) = answers["1"].devices
    assert list(device.request_names) == ["gpu"]
    assert (device.pool_name, device.device_name) == ("a", "gpu-0")
    assert list(device.cdi_device_ids) == ["nvidia.com/gpu=GPU-0"]
    errors = await kubelet.unprepare(endpoint, GOOD, BAD, version=version)
    assert errors == {"1": "", "2": "the disk is full"}
    assert claims.forgotten == [GOOD]


async def test_what_is_asked_is_answered_before_the_driver_stops(
    kubelet: Kubelet, host: DraHost, claims: Claims
) -> None:
    """Otherwise the claim is prepared, and the kubelet does not know."""
    endpoint = (await kubelet.register(DRIVER)).endpoint
    claims.goes_on.clear()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(kubelet.prepare(endpoint, GOOD))
        await claims.begun.wait()
        group.create_task(host.__aexit__())
        await asyncio.sleep(0.1)
        claims.goes_on.set()
    assert not asked.result()["1"].error


@pytest.mark.parametrize("lost", ["registry", "plugins"])
async def test_a_socket_that_vanishes_is_made_again(
    lost: str, kubelet: Kubelet, host: DraHost
) -> None:
    await kubelet.register(DRIVER)
    file = {
        "registry": kubelet.registry / f"{DRIVER}-reg.sock",
        "plugins": kubelet.plugins / DRIVER / "dra.sock",
    }[lost]
    file.unlink()
    await host.check()
    assert not host.is_registered
    endpoint = (await kubelet.register(DRIVER)).endpoint
    assert await kubelet.unprepare(endpoint, GOOD) == {"1": ""}


async def test_leftovers_are_replaced_and_nothing_is_left(kubelet: Kubelet, host: DraHost) -> None:
    await host.__aexit__()
    sockets = (kubelet.registry / f"{DRIVER}-reg.sock", kubelet.plugins / DRIVER / "dra.sock")
    assert not any(socket.exists() for socket in sockets)
    for socket in sockets:
        socket.touch()
    await host.check()
    await kubelet.register(DRIVER)
    assert host.problem == ""


async def test_without_the_folder_of_the_kubelet_the_reason_is_told(
    kubelet: Kubelet, host: DraHost
) -> None:
    await host.__aexit__()
    kubelet.registry.rmdir()
    await host.check()
    assert f"the socket {kubelet.registry}/{DRIVER}-reg.sock cannot be made" in host.problem
    kubelet.registry.mkdir()
    await host.check()
    await kubelet.register(DRIVER)
    assert host.problem == ""
