"""Which containers have which GPUs, from what the kubelet lists."""

from typing import Any

import pytest

from libs.contracts.facts import Gpu, Mig
from libs.host.podresources import api_pb2 as api
from libs.host.podresources.assignments import (
    MAX_USES,
    DeviceList,
    DeviceUse,
    PodContainer,
    device_list,
    pods_by_gpu,
)
from tests.builders.gpus import gpu

WEB = PodContainer("team-a", "web.1", "cuda")


MIG = Mig(uuid="MIG-aaaa", profile="1g.5gb", gpu_instance=9)
MACHINE = (
    gpu(0, uuid="GPU-0000", minor=4),
    gpu(1, uuid="GPU-0001", minor=5, migs=(MIG,)),
    Gpu(uuid="", index=2, minor=-1, pci="", name="", memory_mib=0),
)


def devices(resource: str, *ids: str, **names: str) -> api.PodResources:
    return pod(devices=[api.ContainerDevices(resource_name=resource, device_ids=ids)], **names)


def claim(driver: str, *names: str) -> api.PodResources:
    resources = [api.ClaimResource(driver_name=driver, device_name=name) for name in names]
    return pod(dynamic_resources=[api.DynamicResource(claim_resources=resources)])


def pod(
    *, namespace: str = "team-a", name: str = "web.1", container: str = "cuda", **parts: Any
) -> api.PodResources:
    resources = api.ContainerResources(name=container, **parts)
    return api.PodResources(name=name, namespace=namespace, containers=[resources])


def listed(*pods: api.PodResources) -> DeviceList:
    return device_list(api.ListPodResourcesResponse(pod_resources=pods))


@pytest.mark.parametrize(
    ("device", "entity", "replica"),
    [
        ("GPU-0000", ("GPU-0000", None), ""),
        ("GPU-0000::3", ("GPU-0000", None), "3"),
        ("MIG-aaaa", ("GPU-0001", 9), ""),
        ("MIG-aaaa::12", ("GPU-0001", 9), "12"),
        ("MIG-GPU-0001/7/0", ("GPU-0001", 7), ""),
        ("MIG-GPU-0001/7/0::1", ("GPU-0001", 7), "1"),
        ("nvidia4", ("GPU-0000", None), ""),
        ("nvidia4/vgpu2", ("GPU-0000", None), "2"),
        ("nvidia5/gi9", ("GPU-0001", 9), ""),
        ("nvidia5/gi9/vgpu0", ("GPU-0001", 9), "0"),
        ("gpu5", ("GPU-0001", None), ""),
        ("gpu-5", ("GPU-0001", None), ""),
    ],
)
def test_every_name_of_a_device_leads_to_its_gpu(
    device: str, entity: tuple[str, int | None], replica: str
) -> None:
    container = PodContainer("team-a", "web.1", "cuda", replica)
    assert pods_by_gpu([DeviceUse(device, WEB)], MACHINE) == {entity: (container,)}


@pytest.mark.parametrize(
    "device",
    [
        "",
        "GPU-9999",
        "GPU-0000::",
        "GPU-0000::x",
        "GPU-0000-extra",
        "GPU-0000/vgpu1/vgpu2",
        "MIG-bbbb",
        "MIG-GPU-9999/1/0",
        "nvidia6",
        "nvidia-1",
        "gpu-5-mig-1g5gb-19-0",
        "0",
        "GPU-0000\n",
        "gpu٤",
        "x" * 100_000,
    ],
)
def test_a_device_that_is_no_gpu_of_the_machine_has_no_container(device: str) -> None:
    assert pods_by_gpu([DeviceUse(device, WEB)], MACHINE) == {}


def test_containers_that_share_a_gpu_are_sorted_and_told_once() -> None:
    other = PodContainer("team-a", "web.2", "cuda")
    uses = [DeviceUse("GPU-0000::7", other), DeviceUse("GPU-0000", WEB), DeviceUse("nvidia4", WEB)]
    found = pods_by_gpu(uses, MACHINE)
    shared = PodContainer("team-a", "web.2", "cuda", "7")
    assert found == {("GPU-0000", None): (WEB, shared)}
    assert pods_by_gpu(reversed(uses), MACHINE) == found


@pytest.mark.parametrize(
    ("resource", "device"),
    [
        ("nvidia.com/gpu", "GPU-0000"),
        ("nvidia.com/gpu.shared", "GPU-0000::1"),
        ("nvidia.com/mig-1g.5gb", "MIG-aaaa"),
        ("nvidia.com/mig-1g.5gb.shared", "MIG-aaaa::1"),
        ("nvidia.com/gpu", "nvidia4"),
        ("company.example/gpu", "GPU-0000"),
    ],
)
def test_devices_of_gpu_resources_are_listed(resource: str, device: str) -> None:
    assert listed(devices(resource, device)) == DeviceList((DeviceUse(device, WEB),))


def test_devices_of_other_resources_are_not() -> None:
    assert listed(devices("intel.com/nic", "gpu5"), devices("nvidia.com/gpu")) == DeviceList()
    assert listed(claim("dra.example", "gpu-5"), pod()) == DeviceList()


def test_devices_of_claims_are_listed() -> None:
    uses = listed(claim("gpu.nvidia.com", "gpu-4", "gpu-5")).uses
    assert [use.device for use in uses] == ["gpu-4", "gpu-5"]
    assert pods_by_gpu(uses, MACHINE) == {("GPU-0000", None): (WEB,), ("GPU-0001", None): (WEB,)}
    assert all(use.claimed for use in uses)


def test_what_a_claim_gives_is_found_by_its_cdi_devices() -> None:
    named = [api.CDIDevice(name=f"nvidia.com/gpu={uuid}") for uuid in ("MIG-aaaa", "GPU-0000")]
    given = api.ClaimResource(
        driver_name="gpu.nvidia.com", device_name="gpu-5-mig-1g5gb-9-0", cdi_devices=named
    )
    uses = listed(pod(dynamic_resources=[api.DynamicResource(claim_resources=[given])])).uses
    assert pods_by_gpu(uses, MACHINE) == {("GPU-0001", 9): (WEB,), ("GPU-0000", None): (WEB,)}


@pytest.mark.parametrize(
    "names",
    [
        {"namespace": ""},
        {"namespace": "team.a"},
        {"namespace": "a" * 64},
        {"name": ""},
        {"name": 'web",pod="other'},
        {"name": "web\n"},
        {"name": "Web"},
        {"name": "a" * 254},
        {"container": "cu.da"},
        {"container": "-cuda"},
        {"container": "cudä"},
    ],
)
def test_names_that_no_pod_can_have_are_refused(names: dict[str, str]) -> None:
    proper = devices("nvidia.com/gpu", "GPU-0000")
    hostile = devices("nvidia.com/gpu", "GPU-0001", **names)
    assert listed(hostile, proper) == DeviceList((DeviceUse("GPU-0000", WEB),), refused=1)
    # Names of a container without a GPU are not read.
    assert listed(devices("intel.com/nic", "eth0", **names)) == DeviceList()


def test_a_list_is_limited() -> None:
    many = devices("nvidia.com/gpu", *(f"GPU-{n}" for n in range(MAX_USES)))
    found = listed(many, devices("nvidia.com/gpu", "GPU-0000"))
    assert (len(found.uses), found.refused) == (MAX_USES, 1)
