"""The driver agent exchanges NVIDIA's own drivers on a real kernel."""

from functools import partial
from typing import Final

import pytest

from libs.contracts.reports import Outcome
from libs.host import driver_files, modules
from libs.host.tree import Tree
from libs.testing.guest import processes
from libs.testing.vendor import actions
from tests.system.guest import swaps
from tests.system.guest.test_pci import gpus
from tests.system.vendor.vendor_guest import VendorGuest
from tests.unit.host.kernel_suite import CONTROL

HOST: Final = Tree("/")


async def versions(vendor: VendorGuest) -> dict[str, str]:
    found = await vendor.guest.call(modules.loaded, HOST)
    return {name: each.version for name, each in found.items() if name.startswith("nvidia")}


def whole(version: str) -> dict[str, str]:
    return dict.fromkeys(("nvidia", "nvidia_uvm", "nvidia_modeset"), version)


@pytest.mark.dear("three drivers are loaded on an emulated processor")
async def test_the_agent_exchanges_one_version_for_the_other_and_back(vendor: VendorGuest) -> None:
    await vendor.load(vendor.old)
    assert await versions(vendor) == whole(vendor.old.version)
    for wanted in (vendor.new, vendor.old):
        load = partial(actions.load_driver, wanted.files())
        result = await vendor.guest.call(swaps.swap_until, 400.0, load)
        message = f"driver {wanted.version} is loaded"
        assert (result.outcome, result.message) == (Outcome.DONE, message)
        assert await versions(vendor) == whole(wanted.version)
        assert {each.driver for each in await vendor.guest.call(gpus)} == {"nvidia"}
    assert not await vendor.guest.call(Tree.exists, HOST, driver_files.ROOT)


async def test_a_holder_of_the_control_device_keeps_the_driver_loaded(vendor: VendorGuest) -> None:
    await vendor.load(vendor.new)
    pid = await vendor.guest.call(processes.start, "train.py")
    assert await vendor.guest.call(processes.open_devices, pid, (CONTROL,))
    load = partial(actions.load_driver, vendor.old.files())
    result = await vendor.guest.call(swaps.swap_until, 3.0, load)
    assert (result.outcome, result.code) == (Outcome.FAILED, "busy")
    assert f"train.py (pid {pid})" in result.message
    assert (await versions(vendor))["nvidia"] == vendor.new.version
