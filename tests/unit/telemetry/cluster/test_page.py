"""The page of the fleet: every field, rows of MIG instances, and names that cannot be true."""

from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from libs.contracts.telemetry import GpuSample, InstanceSample
from libs.health.node import MAX_GPUS
from services.telemetry.cluster.page import (
    ALL_FIELDS,
    MAX_INSTANCES,
    ProperSamples,
    fleet_page,
    proper_samples,
)
from services.telemetry.exposition import NodeSamples
from tests.builders import gpus
from tests.builders.gpus import batch

NAMES = ("uuid", "index", "pci", "minor", "model", "instances", "pod_uid")
"""Parts of a sample that are no values."""
VALUES = tuple(name for name in GpuSample.__struct_fields__ if name not in NAMES)


sample = partial(gpus.sample, uuid="GPU-1", pci="0000:1b:00.0", minor=4, model="NVIDIA H100")


def node(name: str, *samples: GpuSample) -> NodeSamples:
    return NodeSamples(node=name, driver_version="580.95.05", samples=samples)


def rows(*nodes: NodeSamples) -> list[str]:
    page = fleet_page(nodes, hostname_label="hostname").decode()
    return [line for line in page.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("name", VALUES)
def test_every_value_of_a_sample_is_on_the_page(name: str) -> None:
    assert rows(node("a", sample(**{name: 1.0 if name.endswith(("_w", "e")) else 1})))


def test_samples_have_the_labels_of_a_nodes_own_page() -> None:
    labels = (
        '{gpu="0",UUID="GPU-1",pci_bus_id="00000000:1B:00.0",device="nvidia4",'
        'modelName="NVIDIA H100",hostname="a",DCGM_FI_DRIVER_VERSION="580.95.05"}'
    )
    assert rows(node("a", sample(temperature_c=40))) == [f"DCGM_FI_DEV_GPU_TEMP{labels} 40"]


def test_a_metric_has_one_header_for_all_nodes() -> None:
    nodes = [node(name, sample(temperature_c=40, sm_clock_mhz=1)) for name in ("a", "b", "c")]
    page = fleet_page(nodes, hostname_label="hostname").decode()
    families = list(text_string_to_metric_families(page))
    found = [(each.name, [row.labels["hostname"] for row in each.samples]) for each in families]
    abc = ["a", "b", "c"]
    assert found == [("DCGM_FI_DEV_SM_CLOCK", abc), ("DCGM_FI_DEV_GPU_TEMP", abc)]


def test_a_divided_gpu_has_a_row_per_instance() -> None:
    instances = (
        InstanceSample(gpu_instance=1, profile="3g.40gb", framebuffer_used_mib=300),
        InstanceSample(gpu_instance=9, profile="1g.10gb", framebuffer_used_mib=100),
    )
    first, second = rows(node("a", sample(framebuffer_used_mib=400, instances=instances)))
    assert 'GPU_I_PROFILE="3g.40gb",GPU_I_ID="1"' in first
    assert first.endswith(" 300")
    assert 'GPU_I_PROFILE="1g.10gb",GPU_I_ID="9"' in second
    assert second.endswith(" 100")


def test_all_fields_are_different() -> None:
    names = [metric.field.name for metric in ALL_FIELDS.metrics]
    assert len(set(names)) == len(names) > len(VALUES)


INSTANCE = InstanceSample(gpu_instance=1, profile="1g.10gb")


@pytest.mark.parametrize(
    "parts",
    [
        {"uuid": 'GPU-1",x="'},
        {"uuid": "GPU-" + "1" * 100},
        {"uuid": "MIG-1"},
        {"pci": "0000:1b:00.0\n"},
        {"index": MAX_GPUS},
        {"minor": -1},
        {"minor": 2**53 - 1},
        {"model": "x" * 4096},
        {"model": "H100\x1b[31m"},
        {"instances": (INSTANCE, INSTANCE)},
        {"instances": (InstanceSample(gpu_instance=MAX_INSTANCES, profile=""),)},
        {"instances": (InstanceSample(gpu_instance=1, profile='1g"'),)},
    ],
    ids=str,
)
def test_a_sample_whose_names_cannot_be_true_is_refused(parts: dict[str, Any]) -> None:
    found = proper_samples(batch(sample(**{"uuid": "GPU-2", **parts}), sample()))
    assert found == ProperSamples((sample(),), "580.95.05", refused=1)


def test_a_gpu_that_a_node_has_twice_counts_once() -> None:
    first, second = sample(temperature_c=1), sample(temperature_c=2, index=1)
    assert proper_samples(batch(first, second)) == ProperSamples((first,), "580.95.05", refused=1)


def test_a_node_has_a_limited_number_of_gpus() -> None:
    many = [sample(uuid=f"GPU-{number}") for number in range(MAX_GPUS + 5)]
    found = proper_samples(batch(*many))
    assert (len(found.samples), found.refused) == (MAX_GPUS, 5)


def test_a_gpu_that_was_never_read_is_left_out() -> None:
    assert proper_samples(batch(GpuSample("", 0, ""))) == ProperSamples((), "580.95.05")


@pytest.mark.parametrize("driver", ["580\n", "x" * 41, '5"'])
def test_a_driver_that_cannot_be_true_has_no_name(driver: str) -> None:
    assert proper_samples(batch(sample(), driver_version=driver)) == ProperSamples(
        (sample(),), "", 1
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_values_that_cannot_be_true_are_not_on_the_page(value: float) -> None:
    assert rows(node("a", sample(power_w=value, graphics_active=value))) == []
