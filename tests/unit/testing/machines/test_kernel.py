"""Kernel modules: what keeps them loaded, and how files show them."""

from pathlib import Path

import pytest

from libs.host import holders, modules
from libs.host.linux import InUse, NotLoaded, Unloaded
from libs.host.tree import Tree
from libs.testing.machines.base_files import PLAIN, create_base_files, gpus
from libs.testing.machines.host_tree import HostTree
from libs.testing.machines.kernel import CONTROL, MEMORY, SimulatedKernel, device
from tests.unit.testing.machines.builders import uid

CARDS = gpus("n1", 2, PLAIN.gpu)
STARTED_AT = 1_800_000_000.0


class ManualClock:
    """A clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.time = STARTED_AT

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time - STARTED_AT

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kernel(tmp_path: Path, clock: ManualClock) -> SimulatedKernel:
    files = HostTree(tmp_path)
    create_base_files(files, name="n1", system=PLAIN, gpus=CARDS)
    kernel = SimulatedKernel(files, gpus=CARDS, clock=clock)
    kernel.boot(boot_id="b-1", release="6.8.0", nouveau=False)
    return kernel


def load_driver(kernel: SimulatedKernel) -> None:
    kernel.load("nvidia", version="580.95.05")
    kernel.load("nvidia_uvm", version="580.95.05", uses=("nvidia",))
    kernel.load("nvidia_modeset", version="580.95.05", uses=("nvidia",))


def loaded_modules(tree: Tree) -> dict[str, tuple[int, set[str]]]:
    loaded = modules.loaded(tree)
    return {name: (module.references, set(module.users)) for name, module in loaded.items()}


def test_modules_unload_only_in_order_of_dependency(kernel: SimulatedKernel, tree: Tree) -> None:
    load_driver(kernel)
    assert isinstance(kernel.unload("nvidia"), InUse)
    assert kernel.unload("gdrdrv") == NotLoaded()
    assert [type(kernel.unload(name)) for name in ("nvidia_modeset", "nvidia_uvm", "nvidia")] == [
        Unloaded
    ] * 3
    assert "nvidia" not in loaded_modules(tree)
    assert not tree.exists("/sys/module/nvidia")
    assert tree.link(f"/sys/bus/pci/devices/{CARDS[0].pci}/driver") is None
    assert tree.exists("/dev/nvidia0")


def test_an_open_device_keeps_its_module_loaded(kernel: SimulatedKernel, tree: Tree) -> None:
    load_driver(kernel)
    pid = kernel.start("python3", pod_uid=uid("p"), container_id="containerd://" + "ab" * 16)
    assert kernel.open(pid, (CONTROL, MEMORY, device(1)))
    assert loaded_modules(tree)["nvidia"][0] == 4
    assert loaded_modules(tree)["nvidia_uvm"][0] == 1
    assert kernel.unload_all() == "delete_module nvidia_uvm: Resource temporarily unavailable"
    kernel.close(pid)
    kernel.close(pid)
    assert holders.holders(tree) == ()
    assert kernel.unload_all() == ""
    assert not kernel.is_loaded("nvidia")


def test_a_process_shows_its_pod_and_releases_its_devices_at_its_end(
    kernel: SimulatedKernel, tree: Tree
) -> None:
    load_driver(kernel)
    pid = kernel.start(
        "a-very-long-process-name", pod_uid=uid("p"), container_id="x://" + "ab" * 16
    )
    kernel.open(pid, (CONTROL, device(0)))
    (holder,) = holders.holders(tree)
    assert (holder.pid, holder.comm, holder.pod_uid) == (pid, "a-very-long-pro", uid("p"))
    assert holder.devices == ("/dev/nvidia0", "/dev/nvidiactl")
    assert holder.container_id == "ab" * 16 + "0" * 32
    assert holders.containers(tree, uid("p")) == (holder.container_id,)
    kernel.end(pid)
    kernel.end(pid)
    assert holders.containers(tree, uid("p")) == ()
    assert kernel.is_idle("nvidia_uvm")
    assert kernel.start("next") == pid + 1
