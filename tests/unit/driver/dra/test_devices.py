"""The names and attributes of devices are those of NVIDIA's driver."""

from msgspec.structs import replace

from libs.host.gpus.port import DriverLibrary
from services.driver.dra.devices import devices_of
from services.driver.dra.resources import Node
from services.driver.dra.slices import slice_of
from services.driver.plugin.places import Place
from tests.unit.driver.plugin.builders import gpu

LIBRARY = DriverLibrary(driver_version="550.163.01", cuda="12.4")
PLACE = Place(numa_node=1, bridges=("pci0000:00", "0000:00:01.0"))


def test_a_gpu_has_the_attributes_of_nvidias_driver() -> None:
    (device,) = devices_of([gpu(0, compute_capability=(9, 0))], {"GPU-0": PLACE}, LIBRARY).values()
    assert (device.name, device.uuid) == ("gpu-0", "GPU-0")
    assert device.attributes == {
        "type": {"string": "gpu"},
        "uuid": {"string": "GPU-0"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "550.163.1"},
        "cudaDriverVersion": {"version": "12.4.0"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        "resource.kubernetes.io/numaNode": {"int": 1},
    }
    assert device.capacity == {"memory": "81559Mi"}


def test_a_divided_gpu_is_its_mig_devices() -> None:
    divided = gpu(2, "1g.10gb", "1g.10gb+me", "1c.2g.20gb")
    found = devices_of([divided], {}, LIBRARY)
    assert list(found) == ["gpu-2-mig-1g10gb-7-0", "gpu-2-mig-1g10gb-me-8-0"]
    device = found["gpu-2-mig-1g10gb-me-8-0"]
    assert (device.uuid, device.gpu) == ("MIG-2-1", "GPU-2")
    assert device.attributes["type"] == {"string": "mig"}
    assert device.attributes["parentUUID"] == {"string": "GPU-2"}
    assert device.attributes["profile"] == {"string": "1g.10gb+me"}


def test_what_is_not_known_is_left_out() -> None:
    unknown = gpu(0, compute_capability=(0, 0), pci="", name="A" * 100 + "\n")
    (device,) = devices_of([unknown, gpu(1, minor=-1), gpu(2, uuid="")], {}, LIBRARY).values()
    assert device.attributes.keys() == {
        *("type", "uuid", "productName", "driverVersion", "cudaDriverVersion")
    }
    assert device.attributes["productName"] == {"string": "A" * 64}
    (device,) = devices_of([gpu(0)], {}, replace(LIBRARY, cuda="")).values()
    assert "cudaDriverVersion" not in device.attributes


def test_an_older_api_has_the_attributes_one_level_below() -> None:
    node = Node(name="a", uid="u")
    devices = devices_of([gpu(0)], {}, LIBRARY).values()
    (new,) = slice_of(node, devices, version="v1")["spec"]["devices"]
    (old,) = slice_of(node, devices, version="v1beta1")["spec"]["devices"]
    assert old == {"name": "gpu-0", "basic": {key: new[key] for key in ("attributes", "capacity")}}
