"""The validator's checks of the GPUs of a stand-in, which the real pynvml reads."""

from libs.contracts.commands import Validate
from libs.contracts.gpus import GpuIdentity
from libs.host.tree import Tree
from services.validator.node.driver_check import probe_driver
from services.validator.node.probe import Probe
from tests.builders.fake_machine import KERNEL
from tests.builders.machine_files import put, put_device
from tests.component.gpus.machine import StandInMachine


def identity(bench: StandInMachine, index: int) -> GpuIdentity:
    gpu = bench.stand_in.gpus[index].state.identity
    address = f"{gpu.pci_domain:04x}:{gpu.pci_bus:02x}:{gpu.pci_device:02x}.0"
    return GpuIdentity(uuid=gpu.uuid.decode(), pci=address)


def probe(bench: StandInMachine, *failed_before: int) -> Probe:
    """Check once, in a fresh process, where these GPUs had failed before."""
    put(bench.root, "/proc/sys/kernel/osrelease", KERNEL)
    for index in range(8):
        put_device(bench.root, identity(bench, index).pci)
    before = tuple(identity(bench, index) for index in failed_before)
    request = Validate(label="d", failed_gpus=before)
    found = probe_driver(Tree(bench.root), bench.gpus, request)
    assert not bench.held()
    return found


def test_eight_gpus_work(bench: StandInMachine) -> None:
    found = probe(bench)
    assert (found.step, found.problem, found.found["gpus"]) == ("gpus", "", "8 of 8 GPUs work")
    assert [each.uuid for each in found.gpus] == [each.uuid for each in bench.stand_in.gpus]


def test_a_lost_gpu_hinders_the_proof_unless_it_had_failed_before(bench: StandInMachine) -> None:
    bench.stand_in.gpus[2].lose()
    found = probe(bench)
    # A process that never saw the GPU cannot ask it for its UUID.
    name = f"the GPU at {identity(bench, 2).pci}"
    assert found.problem.startswith(f"failed in this operation: {name} (the GPU cannot be used:")
    assert "the GPU fell off the bus" in found.problem
    assert found.found["gpus"] == "7 of 8 GPUs work"
    accepted = probe(bench, 2)
    assert accepted.problem == ""
    assert accepted.found["gpus"].startswith(
        f"7 of 8 GPUs work; failed before this operation: {name}"
    )
    assert probe(bench, 3).problem == found.problem


def test_gpus_that_hang_ask_for_a_reset_or_have_errors_have_failed(bench: StandInMachine) -> None:
    bench.stand_in.gpus[0].hang()
    bench.stand_in.gpus[5].require_reset()
    bench.stand_in.gpus[7].health.remap_failure = 1
    found = probe(bench)
    assert found.found["gpus"] == "5 of 8 GPUs work"
    assert "the GPU does not answer" in found.problem
    assert "drain the node, then reset the GPU" in found.problem
    assert "the remapping of a memory row failed" in found.problem
    assert probe(bench, 0, 5, 7).problem == ""
    assert probe(bench, 0, 5).problem.startswith(
        f"failed in this operation: {identity(bench, 7).uuid} at "
    )
    bench.stand_in.gpus[0].release()


def test_without_a_gpu_that_works_no_driver_is_proven(bench: StandInMachine) -> None:
    for gpu in bench.stand_in.gpus:
        gpu.lose()
    assert probe(bench, *range(8)).problem.startswith("no GPU works, so nothing proves the driver")
