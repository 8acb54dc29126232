"""What only the simulated kernel has; for the rest see the suite of all kernels."""

from pathlib import Path

import pytest

from libs.host import holders
from libs.host.tree import Tree
from libs.testing.machines.base_files import PLAIN, create_base_files, gpus
from libs.testing.machines.host_tree import HostTree
from libs.testing.machines.kernel import CONTROL, MEMORY, SimulatedKernel, device
from tests.unit.manual_clock import ManualClock
from tests.unit.testing.machines.builders import uid

CARDS = gpus("n1", 2, PLAIN.gpu)


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


def test_the_first_module_in_use_ends_an_unload_of_all(kernel: SimulatedKernel) -> None:
    load_driver(kernel)
    pid = kernel.start("python3")
    assert kernel.open(pid, (CONTROL, MEMORY, device(1)))
    assert kernel.unload_all() == "delete_module nvidia_uvm: Resource temporarily unavailable"
    assert not kernel.is_loaded("nvidia_modeset")
    kernel.close(pid)
    kernel.close(pid)
    assert kernel.unload_all() == ""
    assert not kernel.is_loaded("nvidia")


def test_pids_are_not_reused_and_ids_of_containers_are_filled_up(
    kernel: SimulatedKernel, tree: Tree
) -> None:
    load_driver(kernel)
    pid = kernel.start("python3", pod_uid=uid("p"), container_id="x://" + "ab" * 16)
    kernel.open(pid, (CONTROL, device(0)))
    (holder,) = holders.holders(tree)
    assert holder.container_id == "ab" * 16 + "0" * 32
    assert not kernel.is_idle("nvidia")
    kernel.end(pid)
    kernel.end(pid)
    assert kernel.is_idle("nvidia_uvm")
    assert kernel.start("next") == pid + 1
