"""What a node offers: every device that it has shown, healthy where a pod can use it."""

from typing import Any

import pytest

from libs.contracts.facts import Gpu
from libs.contracts.gpus import REMEDIES, GpuProblem
from libs.host.pci import DEVICES
from libs.host.tree import Tree
from libs.policy.plugin_config.config import MigStrategy, PluginConfig, TimeSlicing
from services.driver.plugin.inventory import NO_SPEC, Inventory, offers, unusable
from services.driver.plugin.places import Place, places_of
from tests.builders.machine_files import link, put
from tests.unit.driver.plugin.builders import gpu

CONFIG = PluginConfig(mig_strategy=MigStrategy.MIXED)
ALL = frozenset(("GPU-0", "GPU-1", "MIG-1-0", "MIG-1-1"))


def offered(
    inventory: Inventory, gpus: list[Gpu], config: PluginConfig = CONFIG, **known: Any
) -> dict[str, str]:
    """Return the ids by resource; those that are unhealthy end with an exclamation mark."""
    sick, in_specs = known.pop("sick", {}), known.pop("in_specs", ALL)
    reasons = unusable(inventory, gpus, sick, in_specs, **known)
    return {
        name: " ".join(each.id + ("" if each.healthy else "!") for each in devices)
        for name, devices in offers(inventory, reasons, config, {}).items()
    }


def test_a_device_is_unhealthy_and_not_left_out() -> None:
    gpus = [gpu(0), gpu(1)]
    inventory = Inventory().after(gpus, CONFIG)
    assert offered(inventory, gpus) == {"nvidia.com/gpu": "GPU-0 GPU-1"}
    without_one = {"nvidia.com/gpu": "GPU-0 GPU-1!"}
    assert offered(inventory, gpus, sick={"GPU-1": "XID 79"}) == without_one
    assert offered(inventory, gpus, in_specs={"GPU-0"}) == without_one
    for bad in (gpu(1, hung=True), gpu(1, problem=GpuProblem.LOST)):
        now = [gpu(0), bad]
        assert offered(inventory.after(now, CONFIG), now) == without_one
    withheld = offered(inventory, gpus, withheld="released")
    assert withheld == {"nvidia.com/gpu": "GPU-0! GPU-1!"}
    assert offered(inventory, gpus, in_specs=None) == {"nvidia.com/gpu": "GPU-0 GPU-1"}


def test_a_gpu_that_the_driver_lists_no_more_stays_unhealthy_until_it_is_back() -> None:
    gpus = [gpu(0), gpu(1, "1g.10gb")]
    inventory = Inventory().after(gpus, CONFIG)
    lost = inventory.after(gpus[:1], CONFIG)
    assert offered(lost, gpus[:1]) == {
        "nvidia.com/gpu": "GPU-0",
        "nvidia.com/mig-1g.10gb": "MIG-1-0!",
    }
    assert lost.lost == {"GPU-1"}
    assert lost.after(gpus, CONFIG) == inventory


def test_the_reason_of_a_gpu_that_cannot_be_described_is_its_problem_and_not_that_it_is_lost() -> (
    None
):
    inventory = Inventory().after([gpu(0), gpu(1)], CONFIG)
    now = [gpu(0), gpu(1, uuid="", problem=GpuProblem.FAILED)]
    reasons = unusable(inventory.after(now, CONFIG), now, {}, ALL)
    assert reasons == {"GPU-1": REMEDIES[GpuProblem.FAILED]}


def test_a_new_geometry_replaces_the_devices_of_a_gpu() -> None:
    before = Inventory().after([gpu(0), gpu(1)], CONFIG)
    now = [gpu(0), gpu(1, "1g.10gb", "1g.10gb")]
    assert offered(before.after(now, CONFIG), now) == {
        "nvidia.com/gpu": "GPU-0",
        "nvidia.com/mig-1g.10gb": "MIG-1-0 MIG-1-1",
    }


def test_what_does_not_fit_the_strategy_is_withdrawn() -> None:
    single = PluginConfig(mig_strategy=MigStrategy.SINGLE)
    inventory = Inventory().after([gpu(0), gpu(1)], single)
    now = [gpu(0), gpu(1, "1g.10gb")]
    unequal = inventory.after(now, single)
    assert "MIG is on in some GPUs" in unequal.problem
    assert offered(unequal, now, single) == {"nvidia.com/gpu": "GPU-0! GPU-1!"}
    assert unequal.after([gpu(0), gpu(1)], single) == inventory


@pytest.mark.parametrize(("rename", "name"), [(True, "gpu.shared"), (False, "gpu")])
def test_shared_devices_are_offered_several_times(rename: bool, name: str) -> None:
    slicing = TimeSlicing(replicas={"nvidia.com/gpu": 2}, rename=rename)
    config = PluginConfig(mig_strategy=MigStrategy.MIXED, time_slicing=slicing)
    gpus = [gpu(0), gpu(1, "1g.10gb")]
    assert offered(Inventory().after(gpus, config), gpus, config, in_specs={"MIG-1-0"}) == {
        f"nvidia.com/{name}": "GPU-0::0! GPU-0::1!",
        "nvidia.com/mig-1g.10gb": "MIG-1-0",
    }


def test_reasons_are_for_people() -> None:
    gpus = [gpu(0), gpu(1, problem=GpuProblem.LOST)]
    inventory = Inventory().after(gpus, CONFIG)
    reasons = unusable(inventory, gpus, {"GPU-0": "XID 79"}, {"GPU-1"})
    assert reasons["GPU-0"] == "XID 79"
    assert "fell off the bus" in reasons["GPU-1"]
    assert unusable(inventory, gpus, {}, {"GPU-1"})["GPU-0"] == NO_SPEC


def test_places_are_read_from_sysfs(tmp_path: Any) -> None:
    tree = Tree(tmp_path)
    target = "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    put(tmp_path, "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node", "1\n")
    link(tmp_path, f"{DEVICES}/0000:01:00.0", target)
    put(tmp_path, f"{DEVICES}/0000:02:00.0/numa_node", "-1\n")
    links = {"GPU-0": (gpu(1).pci, gpu(1).pci), "GPU-4": (gpu(0).pci,)}
    places = places_of(tree, [gpu(0), gpu(1), gpu(2), gpu(3, pci="what/../ever")], links)
    first, second, third = (f"0000:0{number}:00.0" for number in (1, 2, 3))
    bridges = ("pci0000:00", "0000:00:01.0")
    assert places == {
        "GPU-0": Place(numa_node=1, bridges=bridges, address=first, link_ends=(second, second)),
        "GPU-1": Place(address=second),
        "GPU-2": Place(address=third),
        "GPU-3": Place(),
    }
    inventory = Inventory().after([gpu(0), gpu(1)], CONFIG)
    listed = offers(inventory, {}, CONFIG, places)["nvidia.com/gpu"]
    assert [device.numa_node for device in listed] == [1, None]
