"""The metrics of a node's state tell what its files, its PCI bus and its kubelet tell."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.host.tree import Tree
from libs.testing.simulation import Sim
from services.validator.node import status_files
from services.validator.node.node_status import INTERVAL, NodeState, NodeStatus, read_state
from tests.builders.fake_machine import FakeMachine
from tests.builders.machine_files import put, put_device
from tests.support import in_virtual_time
from tests.unit.validator.node.kubelet import Kubelet

PREFIX = "gpu_operator_node_"


def values(status: NodeStatus) -> dict[str, float]:
    families = list(text_string_to_metric_families(status.page().body.decode()))
    assert {each.type for each in families} == {"gauge"}
    samples = [sample for each in families for sample in each.samples]
    assert all(sample.labels == {"node": "a"} for sample in samples)
    return {sample.name.removeprefix(PREFIX): sample.value for sample in samples}


@in_virtual_time
async def test_a_node_that_works_shows_it_and_later_when_it_last_did(
    sim: Sim, tmp_path: Path
) -> None:
    machine = FakeMachine(tmp_path)
    machine.load_driver("570.86.15")
    put(tmp_path, "/sys/module/nvidia/refcnt", "3\n")
    for path in (status_files.DRIVER, status_files.TOOLKIT, status_files.CUDA):
        put(tmp_path, path, "")
    put_device(tmp_path, "0000:01:00.0")
    began = sim.clock.now()
    kubelet = Kubelet({"nvidia.com/gpu": frozenset("ab"), "nvidia.com/other": frozenset("c")})
    status = NodeStatus(machine=machine.machine, node="a", clock=sim.clock, kubelet=kubelet)
    task = sim.loop.create_task(status.run())
    await sim.clock.sleep(1)
    shown = {
        "metrics_ready_ts_seconds": began,
        "driver_ready": 1,
        "toolkit_ready": 1,
        "plugin_ready": 0,
        "cuda_ready": 1,
        "driver_validation": 1,
        "driver_validation_last_success_ts_seconds": began,
        "device_plugin_devices_total": 2,
        "device_plugin_validation_last_success_ts_seconds": began,
        "gpu_operator_nvidia_pci_devices_total": 1,
    }
    assert values(status) == pytest.approx(shown)
    status_files.clear(machine.tree)
    await sim.clock.sleep(INTERVAL)
    gone = dict.fromkeys(("driver_ready", "toolkit_ready", "cuda_ready"), 0)
    seen = {"device_plugin_validation_last_success_ts_seconds": began + INTERVAL}
    assert values(status) == pytest.approx({**shown, **gone, **seen, "driver_validation": 0})
    task.cancel()


@in_virtual_time
async def test_what_cannot_be_counted_is_minus_one_and_what_never_was_is_absent(
    sim: Sim, tmp_path: Path
) -> None:
    machine, kubelet = FakeMachine(tmp_path).machine, Kubelet()
    status = NodeStatus(machine=machine, node="a", clock=sim.clock, kubelet=kubelet)
    await status.read()
    found = values(status)
    assert found["device_plugin_devices_total"] == -1
    assert found["gpu_operator_nvidia_pci_devices_total"] == -1
    assert not [name for name in found if "last_success" in name]


def test_a_driver_that_was_unloaded_is_not_validated(tmp_path: Path) -> None:
    put(tmp_path, status_files.DRIVER, "")
    state = read_state(Tree(tmp_path), Kubelet({}))
    assert state == NodeState(driver_ready=True, devices=0)
