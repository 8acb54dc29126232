"""What a container gets, by strategy."""

from collections.abc import Collection
from typing import Any

import pytest

from libs.host.deviceplugin.port import Allocation, AllocationRefused, DeviceFile, Mount
from libs.policy.plugin_config.config import IdStrategy, ListStrategy, PluginConfig, TimeSlicing
from libs.policy.plugin_config.config import MigStrategy as Mig
from services.driver.plugin.allocation import allocate
from services.driver.plugin.resources import device_files, resources_of
from tests.unit.driver.plugin.builders import gpu

DEVICES = {
    device.uuid: device
    for devices in resources_of([gpu(0), gpu(1), gpu(2, "1g.10gb")], Mig.MIXED).values()
    for device in devices
}
MOUNTED = "/var/run/nvidia-container-devices"
CDI = ("nvidia.com/gpu=GPU-0", "nvidia.com/gpu=GPU-1")


EXTRAS = {
    "gds": "nvidia.com/gds=all",
    "gdrcopy": "nvidia.com/gdrcopy=all",
    "mofed": "nvidia.com/mofed=all",
    "imex": "nvidia.com/imex-channel=0",
}


def given(
    *ids: str, shared: bool = False, extras: Collection[str] = (), **config: Any
) -> Allocation:
    return allocate(
        ids,
        devices=DEVICES,
        config=PluginConfig(**config),
        extras=extras,
        shared=shared,
        new_id=lambda: "id",
        files=lambda device: ("/dev/nvidiactl", *device_files(device, {})),
    )


def by(*strategies: ListStrategy) -> dict[str, Any]:
    return {"list_strategies": frozenset(strategies)}


CASES: list[tuple[dict[str, Any], Allocation]] = [
    ({}, Allocation(cdi_devices=CDI)),
    ({"pass_device_specs": True, "gds": True, "imex": True}, Allocation(cdi_devices=CDI)),
    (
        by(ListStrategy.CDI_ANNOTATIONS),
        Allocation(annotations={"cdi.k8s.io/nvidia-device-plugin_id": ",".join(CDI)}),
    ),
    (by(ListStrategy.ENVVAR), Allocation(env={"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"})),
    (
        {**by(ListStrategy.ENVVAR), "id_strategy": IdStrategy.INDEX, "mofed": True, "imex": True},
        Allocation(
            env={
                "NVIDIA_VISIBLE_DEVICES": "0,1",
                "NVIDIA_IMEX_CHANNELS": "0",
                "NVIDIA_MOFED": "enabled",
            }
        ),
    ),
    (
        {**by(ListStrategy.VOLUME_MOUNTS), "imex": True},
        Allocation(
            env={"NVIDIA_VISIBLE_DEVICES": MOUNTED},
            mounts=tuple(
                Mount(source="/dev/null", target=f"{MOUNTED}/{name}")
                for name in ("GPU-0", "GPU-1", "imex/0")
            ),
        ),
    ),
    (
        {**by(ListStrategy.CDI_CRI, ListStrategy.ENVVAR), "pass_device_specs": True},
        Allocation(
            cdi_devices=CDI,
            env={"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"},
            files=tuple(
                DeviceFile(path=f"/dev/{name}") for name in ("nvidiactl", "nvidia0", "nvidia1")
            ),
        ),
    ),
]


@pytest.mark.parametrize(("config", "allocation"), CASES, ids=range(len(CASES)))
def test_a_container_gets_its_devices_in_the_ways_of_the_configuration(
    config: dict[str, Any], allocation: Allocation
) -> None:
    assert given("GPU-0", "GPU-1", **config) == allocation


def test_replicas_of_a_device_are_one_device() -> None:
    assert given("GPU-1::3", "GPU-0::1", "GPU-1::0").cdi_devices == CDI[::-1]
    assert given("MIG-2-0::1").cdi_devices == ("nvidia.com/gpu=MIG-2-0",)
    assert given("MIG-2-0", **by(ListStrategy.ENVVAR), id_strategy=IdStrategy.INDEX).env == {
        "NVIDIA_VISIBLE_DEVICES": "2:0"
    }


def test_a_device_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(AllocationRefused, match="the device GPU-7 cannot be used now"):
        given("GPU-0", "GPU-7::1")


def test_several_shares_are_refused_where_the_configuration_says_so() -> None:
    slicing = TimeSlicing(replicas={"nvidia.com/gpu": 4}, one_per_container=True)
    shares = ("GPU-0::0", "GPU-0::1")
    assert given(*shares, time_slicing=slicing).cdi_devices == CDI[:1]
    assert given(shares[0], shared=True, time_slicing=slicing).cdi_devices == CDI[:1]
    with pytest.raises(AllocationRefused, match="size for shared resources is 1; found 2"):
        given(*shares, shared=True, time_slicing=slicing)


@pytest.mark.parametrize("switch", EXTRAS)
def test_what_is_switched_on_beside_gpus_is_given_where_the_machine_has_it(switch: str) -> None:
    switched = {switch: True}
    everything = EXTRAS.values()
    assert given("GPU-0", extras=everything).cdi_devices == CDI[:1]
    assert given("GPU-0", extras=everything, **switched).cdi_devices == (CDI[0], EXTRAS[switch])
    others = set(everything) - {EXTRAS[switch]}
    assert given("GPU-0", extras=others, **switched).cdi_devices == CDI[:1]
    found = given("GPU-0", extras=everything, **switched, **by(ListStrategy.CDI_ANNOTATIONS))
    assert list(found.annotations.values()) == [f"{CDI[0]},{EXTRAS[switch]}"]
