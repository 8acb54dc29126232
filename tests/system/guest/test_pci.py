"""GPUs on a real kernel's PCI bus, as the readers of sysfs find them."""

import os
import struct
from pathlib import Path
from typing import Final

import pytest

from libs.contracts.facts import PciDevice, Vgpu
from libs.host import acs, pci, vgpu
from libs.host.tree import Tree
from libs.testing.guest import actions
from libs.testing.guest.gpu import A100, H100, T4, VIRTUAL, GpuModel
from libs.testing.guest.guest import GPUS, PORTS, Guest

HOST: Final = Tree("/")
_ACS: Final = 0x000D
_REDIRECT: Final = 0b1100


def gpus() -> tuple[PciDevice, ...]:
    return tuple(device for device in pci.devices(HOST) or () if pci.is_gpu(device))


def set_redirection(port: str, *, active: bool) -> None:
    """Let a port redirect what devices send to each other, or not, as firmware sets it."""
    with Path(f"{pci.DEVICES}/{port}/config").open("r+b", buffering=0) as file:
        offset = 0x100
        while True:
            (header,) = struct.unpack("<I", os.pread(file.fileno(), 4, offset))
            if header & 0xFFFF == _ACS:
                os.pwrite(file.fileno(), struct.pack("<H", _REDIRECT * active), offset + 6)
                return
            offset = header >> 20


async def test_a_gpu_is_found_with_its_ids_and_the_driver_that_has_it(guest: Guest) -> None:
    before = await guest.call(gpus)
    assert [(each.address, each.vendor, each.device) for each in before] == [
        (address, "10de", f"{A100.device:04x}") for address in GPUS
    ]
    assert {(each.subsystem_vendor, each.subsystem_device) for each in before} == {
        ("10de", f"{A100.subsystem:04x}")
    }
    assert {each.driver for each in before} == {""}
    await guest.call(actions.load_driver)
    assert {each.driver for each in await guest.call(gpus)} == {"nvidia"}


async def test_a_port_above_gpus_redirects_once_its_control_register_says_so(guest: Guest) -> None:
    found = await guest.call(gpus)
    assert await guest.call(acs.bridges_above, HOST, found) == set(PORTS)
    assert not await guest.call(acs.redirects, HOST, PORTS[0])
    await guest.call(set_redirection, PORTS[0], active=True)
    try:
        assert [await guest.call(acs.redirects, HOST, port) for port in PORTS] == [True, False]
    finally:
        await guest.call(set_redirection, PORTS[0], active=False)


@pytest.mark.parametrize("model", [A100, H100, T4], ids=["A100", "H100", "T4"])
async def test_a_real_gpu_is_not_a_virtual_one(guest: Guest, model: GpuModel) -> None:
    guest.gpus[1].become(model)
    try:
        assert await guest.call(vgpu.vgpu, HOST) == Vgpu()
    finally:
        guest.gpus[1].become(A100)


async def test_a_virtual_gpu_names_the_driver_of_its_host(guest: Guest) -> None:
    guest.gpus[1].become(VIRTUAL)
    try:
        found = await guest.call(vgpu.vgpu, HOST)
    finally:
        guest.gpus[1].become(A100)
    assert found == Vgpu(present=True, host_driver_version=VIRTUAL.vgpu_host_driver)
