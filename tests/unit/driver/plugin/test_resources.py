"""Which resources a node offers by MIG strategy, and the device files of each device."""

import pytest
from msgspec.structs import replace

from libs.contracts.facts import Gpu
from libs.policy.plugin_config.config import MigStrategy
from services.driver.plugin.resources import (
    Inconsistent,
    capability_files,
    device_files,
    resources_of,
)
from tests.unit.driver.plugin.builders import gpu

NONE, SINGLE, MIXED = MigStrategy
WHOLE = [gpu(0), gpu(1)]
DIVIDED = [gpu(0, "3g.40gb", "3g.40gb"), gpu(1, "3g.40gb")]
UNEQUAL = [gpu(0), gpu(1, "1g.10gb", "1g.10gb+me", "1c.2g.20gb", "")]


def named(gpus: list[Gpu], strategy: MigStrategy) -> dict[str, list[str]]:
    """Return the indices of the devices by resource."""
    found = resources_of(gpus, strategy)
    return {name: [device.index for device in devices] for name, devices in found.items()}


@pytest.mark.parametrize(
    ("gpus", "strategy", "resources"),
    [
        (WHOLE, NONE, {"nvidia.com/gpu": ["0", "1"]}),
        (DIVIDED, NONE, {"nvidia.com/gpu": ["0", "1"]}),
        (WHOLE, SINGLE, {"nvidia.com/gpu": ["0", "1"]}),
        (DIVIDED, SINGLE, {"nvidia.com/gpu": ["0:0", "0:1", "1:0"]}),
        (WHOLE, MIXED, {"nvidia.com/gpu": ["0", "1"]}),
        (DIVIDED, MIXED, {"nvidia.com/mig-3g.40gb": ["0:0", "0:1", "1:0"]}),
        (
            UNEQUAL,
            MIXED,
            {
                "nvidia.com/gpu": ["0"],
                "nvidia.com/mig-1g.10gb": ["1:0"],
                "nvidia.com/mig-1g.10gb.me": ["1:1"],
            },
        ),
        ([gpu(0, mig_mode=True)], MIXED, {}),
        ([gpu(0, uuid="")], NONE, {}),
        ([], SINGLE, {}),
    ],
)
def test_each_strategy_names_the_resources_of_mig_devices_in_its_way(
    gpus: list[Gpu], strategy: MigStrategy, resources: dict[str, list[str]]
) -> None:
    assert named(gpus, strategy) == resources


def test_mig_devices_are_named_by_nvmls_numbers_which_may_have_gaps() -> None:
    divided = gpu(0, "3g.40gb", "3g.40gb")
    migs = tuple(replace(each, number=2 + place) for place, each in enumerate(divided.migs))
    assert named([replace(divided, migs=migs)], SINGLE) == {"nvidia.com/gpu": ["0:2", "0:3"]}


@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        (UNEQUAL, "MIG is on in some GPUs of this node and off in others"),
        ([gpu(0, "1g.10gb"), gpu(1, mig_mode=True)], "GPU 1 has MIG on and no MIG device"),
        ([gpu(0, "1g.10gb"), gpu(1, "2g.20gb")], "MIG devices of several profiles"),
    ],
)
def test_the_strategy_single_refuses_gpus_that_differ(gpus: list[Gpu], reason: str) -> None:
    with pytest.raises(Inconsistent, match=reason):
        resources_of(gpus, SINGLE)


def test_a_mig_device_has_the_files_of_its_gpu_and_of_its_capabilities() -> None:
    listed = "config 1\nmonitor 2\ngpu1/gi7/access 12\ngpu1/gi7/ci0/access 13\nmalformed\n"
    capabilities = capability_files(listed)
    assert capabilities == {(1, 7, None): 12, (1, 7, 0): 13}
    whole, *parts = (
        device for devices in resources_of(UNEQUAL, MIXED).values() for device in devices
    )
    assert device_files(whole, capabilities) == ("/dev/nvidia0",)
    assert [device_files(part, capabilities) for part in parts] == [
        ("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"),
        ("/dev/nvidia1",),
    ]
