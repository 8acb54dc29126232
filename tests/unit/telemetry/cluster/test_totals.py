"""Totals of nodes and fleets: absent values do not count as zero."""

import pytest

from services.telemetry.cluster.totals import MIB, GpuTotals, node_totals, sum_totals
from tests.builders.gpus import sample

BUSY = sample(
    0,
    gpu_utilization=90,
    power_w=600.5,
    temperature_c=70,
    framebuffer_used_mib=60_000,
    framebuffer_free_mib=20_000,
    framebuffer_reserved_mib=1_559,
)
IDLE = sample(
    1,
    gpu_utilization=0,
    power_w=70.0,
    temperature_c=30,
    framebuffer_used_mib=600,
    framebuffer_free_mib=80_000,
)


def test_a_nodes_totals_leave_out_what_was_not_measured() -> None:
    assert node_totals([BUSY, IDLE, sample(2, xid=79)]) == GpuTotals(
        gpus=3,
        mute=1,
        busy=0.9,
        busy_of=2,
        memory_used=60_600 * MIB,
        memory=162_159 * MIB,
        power=670.5,
        hottest=70,
    )


def test_the_mean_is_over_measured_gpus_and_unmeasured_values_are_absent() -> None:
    assert node_totals([BUSY, IDLE, sample(2)]).utilization == pytest.approx(0.45)
    assert node_totals([IDLE]).utilization == 0.0
    assert node_totals([sample()]).utilization is None
    assert node_totals([]) == GpuTotals()
    assert node_totals([sample()]) == GpuTotals(gpus=1, mute=1)
    half = node_totals([sample(framebuffer_used_mib=5)])
    assert (half.mute, half.memory_used, half.memory) == (0, None, None)


def test_sums_of_node_totals_equal_the_totals_of_all_gpus() -> None:
    parts = [node_totals([BUSY]), node_totals([IDLE, sample(2)]), node_totals([])]
    assert sum_totals(parts) == node_totals([BUSY, IDLE, sample(2)])
